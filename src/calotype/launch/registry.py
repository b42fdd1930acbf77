"""The backends by name. Each is imported on use, so that none needs another's libraries."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from calotype.core.errors import Problem, RequestError, did_you_mean
from calotype.launch.backend import Backend

_BACKENDS = {
    "kubernetes": "calotype.launch.kubernetes:KubernetesBackend",
    "local": "calotype.launch.local:LocalBackend",
    "ray": "calotype.launch.ray:RayBackend",
    "slurm": "calotype.launch.slurm:SlurmBackend",
}


def backend_names() -> list[str]:
    return sorted(_BACKENDS)


def open_backend(name: str) -> Backend:
    """Create the backend of this name."""
    if name not in _BACKENDS:
        raise RequestError(
            [Problem("--launch", f"no backend {name!r}; {did_you_mean(name, _BACKENDS)}", name)]
        )
    module, _, kind = _BACKENDS[name].partition(":")
    return cast("Backend", getattr(import_module(module), kind)())
