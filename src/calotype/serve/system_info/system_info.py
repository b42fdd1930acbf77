"""What the web page shows about a deployment's environment: machine, model files, records and reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from calotype.core.errors import NotFoundError, did_you_mean
from calotype.core.hardware import GpuSource
from calotype.core.nvml import NvmlGpus
from calotype.core.paths import list_files, models_dir, resolve_inside
from calotype.serve.scheduler.settings import RequestLimits
from calotype.serve.system_info.benchmark_records import Records
from calotype.serve.system_info.host_info import host_info
from calotype.serve.system_info.model_inspector import Inspector
from calotype.serve.workflow.catalogue import WorkflowCatalogue
from calotype.spec.constants import LOSSY_PRESETS, PRESETS, SAMPLERS, SCHEDULES
from calotype.spec.records.measurement import Kind

FOLDERS = ("checkpoints", "loras", "vae", "controlnet", "embeddings", "upscale_models")
EMBEDDED = "emoji"


@dataclass(frozen=True)
class SystemInfo:
    """A deployment's environment and configuration."""

    models: Sequence[str] = (EMBEDDED,)
    models_folder: Path | None = None
    limits: RequestLimits = field(default_factory=RequestLimits)
    records: Records = field(default_factory=lambda: Records(()))
    folder: Path | None = None
    """The deployment's folder, which holds its queue."""
    gpus: GpuSource = field(default_factory=NvmlGpus)
    started_at: float = field(default_factory=time.time)
    inspector: Inspector = field(default_factory=Inspector)

    async def system(self) -> dict[str, Any]:
        """Describe the machine and the choices and limits of requests."""
        disks = {"models": self.model_folder} | ({"queue": self.folder} if self.folder else {})
        return {
            "started_at": self.started_at,
            "limits": self.limits.model_dump(),
            "defaults": {"model": self.models[0], "models": list(self.models)},
            "samplers": list(SAMPLERS),
            "schedules": list(SCHEDULES),
            "presets": list(PRESETS),
            "lossy_presets": list(LOSSY_PRESETS),
            **await asyncio.to_thread(host_info, self.gpus, disks),
        }

    async def model_files(self) -> list[dict[str, Any]]:
        """List all model files, loaded or not."""
        return await asyncio.to_thread(self._model_files)

    def _model_files(self) -> list[dict[str, Any]]:
        root, catalogue = self.model_folder, WorkflowCatalogue(self.model_folder, self.models, ())
        return [
            {
                "folder": folder,
                "name": name,
                "bytes": _bytes_of(root / folder / name),
                "in_package": (folder, name) == ("checkpoints", EMBEDDED),
            }
            for folder in FOLDERS
            for name in dict.fromkeys(catalogue.files(folder))
        ]

    async def inspect(self, folder: str, name: str) -> dict[str, Any]:
        """Inspect a model file."""
        if folder not in FOLDERS:
            raise NotFoundError(f"no folder {folder[:80]!r}; {did_you_mean(folder[:80], FOLDERS)}")
        if (folder, name) == ("checkpoints", EMBEDDED):
            return await self.inspector.inspect(
                Path(str(package_files("calotype.resources.assets") / EMBEDDED))
            )
        path = await asyncio.to_thread(resolve_inside, self.model_folder / folder, name)
        return await self.inspector.inspect(path)

    async def listed_records(self, kind: Kind | None, most: int, *, values: bool) -> dict[str, Any]:
        """Return the deployment's measurements, latest first."""
        return await asyncio.to_thread(self.records.listed, kind, most, values=values)

    async def reports(self) -> list[dict[str, Any]]:
        """List the deployment's report pages."""
        return await asyncio.to_thread(self.records.reports)

    async def report(self, name: str) -> bytes:
        return await asyncio.to_thread(self.records.report, name)

    @property
    def model_folder(self) -> Path:
        """The folder of model files."""
        return self.models_folder or models_dir()


def _bytes_of(path: Path) -> int | None:
    """Return the size of a file or of a model folder; None if neither exists."""
    if path.is_dir():
        return sum((path / name).stat().st_size for name in list_files(path))
    return path.stat().st_size if path.is_file() else None
