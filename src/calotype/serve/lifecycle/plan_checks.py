"""Checks a new deployment plan against this machine, before anything is written or started.

A plan cannot check by itself whether its folders, models and keys exist. A restart does not repeat these
checks, so that a key that was revoked since then stops no server.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from calotype.core.errors import Problem, RequestError, did_you_mean
from calotype.core.paths import models_dir
from calotype.serve.api_keys import ApiKeys
from calotype.serve.lifecycle.config import DeploymentConfig, makes_tiny_pictures
from calotype.serve.lifecycle.registry import DeploymentDir
from calotype.workflow.file_catalogue import FolderCatalogue

RANDOM = "random:"
_FILE_SUFFIXES = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")


def check_plan(plan: DeploymentConfig, directory: DeploymentDir) -> None:
    """Raise RequestError with every problem."""
    problems = [*_folders(plan), *_models(plan), *_admins(plan, directory)]
    if problems:
        raise RequestError(problems)


def _folders(plan: DeploymentConfig) -> Iterator[Problem]:
    named = [("records", path) for path in plan.records]
    if plan.models_folder is not None:
        named.insert(0, ("models_folder", plan.models_folder))
    for field, folder in named:
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "does not exist"
            yield Problem(field, f"{folder} {what}; name a folder, or create it first", str(folder))


def _models(plan: DeploymentConfig) -> Iterator[Problem]:
    # That engine loads no weights and accepts any name. The files of a cluster are on its own machines.
    if makes_tiny_pictures(plan.engine) or plan.cluster is not None:
        return
    catalogue = [name.removesuffix(".json") for name in _catalogue_files()]
    folder = plan.models_folder or models_dir()
    in_folder = FolderCatalogue(folder).files("checkpoints")
    known = {*catalogue, *in_folder, *(str(Path(name).with_suffix("")) for name in in_folder)}
    for model in plan.models:
        on_the_hub = model.count("/") == 1 and not model.endswith(_FILE_SUFFIXES)
        if model in known or model.startswith(RANDOM) or on_the_hub or _exists(model):
            continue
        where = f"not a file, not in {folder / 'checkpoints'}, not in the catalogue"
        rule = f"there is no model {model[:80]!r}: {where}; {did_you_mean(model[:80], known)}"
        yield Problem("models", rule, model)


def _catalogue_files() -> list[str]:
    # By folder: importing the catalogue would import torch.
    folder = files("calotype") / "models" / "catalogue"
    return sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))


def _exists(model: str) -> bool:
    try:
        return bool(model) and Path(model).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def _admins(plan: DeploymentConfig, directory: DeploymentDir) -> Iterator[Problem]:
    if not plan.reached.admins:
        return
    names = [key.name for key in ApiKeys(plan.keys_folder or directory.folder).all()]
    for admin in plan.reached.admins:
        if admin not in names:
            rule = f"no API key is named {admin[:80]!r}; {did_you_mean(admin, names)}; create it first with "
            yield Problem("admins", f"{rule}`calotype keys create NAME --deployment {plan.name}`", admin)
