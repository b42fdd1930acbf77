"""The back ends by name. Each is imported when it is asked for, so that none needs another's libraries."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from calotype.core.errors import Problem, RequestError, did_you_mean
from calotype.launch.backend import Backend

_PLACES = {
    "kubernetes": "calotype.launch.kubernetes:KubernetesBackend",
    "local": "calotype.launch.local:LocalBackend",
    "ray": "calotype.launch.ray:RayBackend",
    "slurm": "calotype.launch.slurm:SlurmBackend",
}


def backend_names() -> list[str]:
    return sorted(_PLACES)


def open_backend(name: str) -> Backend:
    """The back end of this name."""
    if name not in _PLACES:
        raise RequestError(
            [Problem("--launch", f"no back end {name!r}; {did_you_mean(name, _PLACES)}", name)]
        )
    module, _, kind = _PLACES[name].partition(":")
    return cast("Backend", getattr(import_module(module), kind)())
