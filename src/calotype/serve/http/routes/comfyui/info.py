"""ComfyUI's routes for nodes, model files and the machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from calotype.core.errors import NotFoundError, did_you_mean
from calotype.core.hardware import read_memory
from calotype.serve.http.dependencies import AppStateDep, ClientDep, WorkflowServiceDep
from calotype.version import VERSION

router = APIRouter(tags=["ComfyUI"])
FOLDERS = ("checkpoints", "loras", "vae", "controlnet", "embeddings", "upscale_models")
BODIES: list[type[BaseModel]] = []


@router.get("/object_info")
async def object_info(workflows: WorkflowServiceDep, caller: ClientDep) -> Mapping[str, Any]:
    """Describe all nodes: inputs with limits and choices, outputs and menu category."""
    return await workflows.object_info(client=caller.name)


@router.get("/object_info/{node_class}")
async def one_object_info(
    node_class: str, workflows: WorkflowServiceDep, caller: ClientDep
) -> Mapping[str, Any]:
    """Describe one node; empty if no node has this name."""
    return await workflows.object_info(client=caller.name, name=node_class)


@router.get("/models")
async def folders() -> list[str]:
    """List the model folders."""
    return list(FOLDERS)


@router.get("/models/{folder}")
async def models(folder: str, workflows: WorkflowServiceDep) -> list[str]:
    """List the models in a folder."""
    if folder not in FOLDERS:
        raise NotFoundError(f"no folder {folder[:80]!r}; {did_you_mean(folder[:80], FOLDERS)}")
    return list(await workflows.model_files(folder))


@router.get("/embeddings")
async def embeddings(workflows: WorkflowServiceDep) -> list[str]:
    """List the textual inversion embeddings that prompts may use, without file suffix."""
    return [name.rpartition(".")[0] or name for name in await workflows.model_files("embeddings")]


@router.get("/system_stats")
async def system_stats(reach: AppStateDep) -> dict[str, Any]:
    """Describe the machine and the devices of its workers."""
    memory = read_memory()
    workers = reach.service.status().workers
    return {
        "system": {
            "os": platform.system().lower(),
            "ram_total": memory.total_bytes,
            "ram_free": memory.available_bytes,
            # Clients check the version before they use newer features.
            "comfyui_version": f"calotype {VERSION}",
            "python_version": sys.version,
            "pytorch_version": _version("torch"),
            "embedded_python": False,
            "argv": [],
        },
        "devices": [
            {
                "name": worker.device,
                "type": "cpu" if worker.device == "cpu" else "cuda",
                "index": index,
                "vram_total": worker.memory_bytes,
                "vram_free": worker.free_bytes,
                "torch_vram_total": worker.memory_bytes,
                "torch_vram_free": worker.free_bytes,
            }
            for index, worker in enumerate(workers)
        ],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
