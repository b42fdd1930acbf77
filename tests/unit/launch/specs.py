"""Launches that tests render. Knows nothing of any test."""

from __future__ import annotations

from typing import Any

from calotype.spec.launch import LaunchSpec

TRAINING: dict[str, Any] = {
    "name": "sd2-base",
    "command": ["train", "sd2-base", "data.path=/fsx/laion/{00000..01023}.tar", "trainer.nodes=16"],
    "nodes": 16,
    "gpus_per_node": 8,
    "cpus_per_node": 96,
    "memory_per_node": "1T",
    "time_limit": "2d",
    "work_folder": "/fsx/launches/{name}",
    "python": "/fsx/calotype/bin/python",
    "directory": "/fsx/runs",
    "slurm": {"partition": "p5", "account": "diffusion"},
}
"""On the machine's own Python."""

CONTAINER: dict[str, Any] = {
    **TRAINING,
    "python": None,
    "image": "registry.example.com/team/calotype:0.1",
    "mounts": ["/fsx:/fsx", "/data/laion:/data:ro"],
    "environment": {"GREETING": "it's $HOME"},
    "network": {"interface": "ens32", "efa_devices": 32, "nccl": {"DEBUG": "INFO"}},
    "setup": ["module load cuda/12.8"],
}

SWEEP: dict[str, Any] = {
    "name": "sweep",
    "command": ["bench", "train", "--sweep=batch=1,2,4", "--out=/fsx/out", "--part={task}/{tasks}"],
    "launcher": "plain",
    "gpus_per_node": 1,
    "array": 3,
    "array_at_once": 2,
    "work_folder": "/fsx/launches/{name}",
    "python": "/fsx/calotype/bin/python",
    "requeue": False,
    "slurm": {"exclusive": True},
}

ELASTIC: dict[str, Any] = {**TRAINING, "min_nodes": 8, "max_restarts": 3, "slurm": {"gpu_type": "h100"}}

HERE: dict[str, Any] = {
    "name": "here",
    "command": ["train", "emoji", "trainer.devices=2"],
    "processes_per_node": 2,
    "time_limit": "12h",
    "work_folder": "/home/ada/launches/{name}",
    "python": "/home/ada/.venv/bin/python",
    "directory": "/home/ada",
}


def spec(values: dict[str, Any], **changes: Any) -> LaunchSpec:
    return LaunchSpec.parse({**values, **changes})
