"""Lists the slices to serve from, and renders a compose file, a `docker run` script and firewall rules with
one container per slice.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from calotype.core.errors import NotFoundError
from calotype.mig.driver import GpuState
from calotype.mig.persist import CDI_SPEC

KEYS = "/etc/calotype-keys"


@dataclass(frozen=True)
class Deployment:
    """Deployment settings of all slices."""

    image: str = "calotype-serve:latest"
    command: Sequence[str] = ()
    """Command in the container; the image's own if empty."""
    first_port: int = 8081
    container_port: int = 8188
    health_path: str = "/readyz"
    folder: str = "/srv/calotype"
    """On the host; each slice has a subfolder."""
    inside: str = "/var/lib/calotype"
    """Path of that subfolder in the container."""
    keys: str | None = None
    """A folder of the host with keys.json, the clients' API keys; mounted read-only at KEYS."""


@dataclass(frozen=True)
class Served:
    """One slice, one server, one port."""

    name: str
    uuid: str
    profile: str
    port: int


def served(states: Iterable[GpuState], deployment: Deployment) -> list[Served]:
    """Every compute instance of every GPU, in placement order."""
    found: list[Served] = []
    for state in states:
        for instance in state.instances:
            for part in instance.compute:
                inner = f"-{part.part.start}" if len(instance.compute) > 1 else ""
                name = f"calotype-gpu{state.index}-slice{instance.start}{inner}"
                profile = state.model.by_id(instance.profile_id).name
                found.append(Served(name, part.uuid or "", profile, deployment.first_port + len(found)))
    if not found:
        raise NotFoundError("no GPU has a slice to deploy on; create some with `calotype mig apply`")
    return found


def compose_file(slices: Sequence[Served], deployment: Deployment) -> str:
    """A compose file with device, volume, port, health check and restart policy of each slice."""
    services = {each.name: _service(each, deployment) for each in slices}
    return OmegaConf.to_yaml(OmegaConf.create({"services": services}))


def run_script(slices: Sequence[Served], deployment: Deployment) -> str:
    """The same as a shell script that may be run repeatedly."""
    lines = ["#!/bin/sh", "set -eu", ""]
    for each in slices:
        words = ["docker", "run", "--detach", "--name", each.name, "--gpus", f'"device={each.uuid}"']
        for volume in _volumes(each, deployment):
            words += ["--volume", volume]
        words += ["--publish", f"{each.port}:{deployment.container_port}", "--restart", "unless-stopped"]
        words += ["--health-cmd", shlex.join(_health(deployment)), "--health-interval", "10s"]
        words += ["--health-timeout", "5s", "--health-retries", "6", "--health-start-period", "120s"]
        words += [deployment.image, *deployment.command]
        lines += [f"docker rm --force {each.name} >/dev/null 2>&1 || true", shlex.join(words), ""]
    return "\n".join(lines)


def firewall_lines(slices: Sequence[Served]) -> list[str]:
    """ufw commands that open one port per slice."""
    return [*(f"sudo ufw allow {each.port}/tcp" for each in slices), "sudo ufw reload"]


def cdi_line() -> str:
    """Command to run after every layout change; otherwise containers request slices that are gone."""
    return f"sudo nvidia-ctk cdi generate --output={CDI_SPEC}"


def _service(each: Served, deployment: Deployment) -> dict[str, Any]:
    device = {"driver": "nvidia", "device_ids": [each.uuid], "capabilities": ["gpu"]}
    service: dict[str, Any] = {
        "image": _literal(deployment.image),
        "container_name": each.name,
        "ports": [f"{each.port}:{deployment.container_port}"],
        "volumes": [_literal(volume) for volume in _volumes(each, deployment)],
        "restart": "unless-stopped",
        "healthcheck": {
            "test": ["CMD", *map(_literal, _health(deployment))],
            "interval": "10s",
            "timeout": "5s",
            "retries": 6,
            "start_period": "120s",
        },
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
    }
    return service | ({"command": list(map(_literal, deployment.command))} if deployment.command else {})


def _literal(word: str) -> str:
    """Escape `$`, which compose would expand."""
    return word.replace("$", "$$")


def _volumes(each: Served, deployment: Deployment) -> list[str]:
    own = f"{deployment.folder}/{each.name}:{deployment.inside}"
    return [own, f"{deployment.keys}:{KEYS}:ro"] if deployment.keys else [own]


def _health(deployment: Deployment) -> list[str]:
    """A health check in Python, which every image has."""
    address = f"http://127.0.0.1:{deployment.container_port}{deployment.health_path}"
    return ["python3", "-c", f"import urllib.request; urllib.request.urlopen('{address}', timeout=4)"]
