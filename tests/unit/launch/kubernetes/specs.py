"""A job as tests ask for it."""

from __future__ import annotations

from typing import Any

from calotype.spec.launch import LaunchSpec


def a_job(**changes: Any) -> LaunchSpec:
    """Two P5 nodes with EFA; `kubernetes` and `network` are changed key by key."""
    values: dict[str, Any] = {
        "name": "sd2",
        "command": ["train", "sd2-base", "trainer.nodes=2"],
        "nodes": 2,
        "gpus_per_node": 8,
        "image": "registry.example/calotype-train:1",
    }
    part = {"instance_type": "p5.48xlarge", **changes.pop("kubernetes", {})}
    network = {"interface": "eth0", "efa_devices": 32, **changes.pop("network", {})}
    return LaunchSpec.parse({**values, **changes, "kubernetes": part, "network": network})
