"""Keeps a model loaded from one point to the next, restored to its state after loading."""

from __future__ import annotations

import gc
from pathlib import Path

import torch

from calotype.engine.engine import Engine
from calotype.engine.load import build_engine, load
from calotype.engine.memory_planner import WORKSPACE_BYTES
from calotype.engine.passes.text_encoder_offload import TEXT_ENCODER_OFFLOAD
from calotype.engine.presets import all_passes
from calotype.models.model import Model
from calotype.spec.bench_job import InferenceJob, Job


def shared_by(job: Job) -> tuple[object, ...] | None:
    """Return a key: jobs with equal keys can share a model; None means no sharing."""
    if not isinstance(job, InferenceJob) or job.system == "diffusers-compile":
        return None
    # It has the model made in another way, and torch's memory with it.
    if job.preset and TEXT_ENCODER_OFFLOAD in all_passes(job.preset):
        return None
    return job.model, job.precision, job.device


class LoadedModels:
    """Holds one model at a time, for jobs that can share it according to `shared_by`."""

    def __init__(self) -> None:
        self._model: Model | None = None

    @property
    def holds_model(self) -> bool:
        return self._model is not None

    def engine_for(self, job: InferenceJob, models: Path | None) -> Engine:
        """Return a new engine without state of earlier ones."""
        preset = job.preset or "baseline"
        if self._model is not None:
            _restore(self._model)
            return build_engine(self._model, preset=preset, models_folder=models)
        engine = load(
            job.model,
            device=job.device,
            precision=job.precision,
            preset=preset,
            models_folder=models,
            # Peers and the baseline run the diffusers modules directly.
            outlined=False,
        )
        self._model = engine.model
        return engine

    def is_clean(self) -> bool:
        """Free unused memory; return whether only the weights are left on the device."""
        gc.collect()
        model = self._model
        if model is None or model.device.type != "cuda":
            return True
        torch.cuda.empty_cache()
        weights = sum(
            each.nbytes
            for part in (model.unet, model.vae, *model.text_encoders)
            for each in (*part.parameters(), *part.buffers())
            if each.device.type == "cuda"
        )
        return torch.cuda.memory_allocated(model.device) <= weights + WORKSPACE_BYTES


def _restore(model: Model) -> None:
    """Undo what engines and peers change in a model: the device of its parts and its memory format."""
    for part in (model.vae, *model.text_encoders):
        part.to(model.device)
    model.unet.to(memory_format=torch.contiguous_format)
