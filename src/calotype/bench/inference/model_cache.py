"""A model that stays loaded from one point to the next, as it was when it was read. Measures nothing."""

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
    """Jobs with the same answer can have one model between them; None can share with nobody."""
    if not isinstance(job, InferenceJob) or job.system == "diffusers-compile":
        return None
    # It has the model made in another way, and torch's memory with it.
    if job.preset and TEXT_ENCODER_OFFLOAD in all_passes(job.preset):
        return None
    return job.model, job.precision, job.device


class LoadedModels:
    """Has one model at a time; whoever asks is of those that `shared_by` lets share it."""

    def __init__(self) -> None:
        self._model: Model | None = None

    @property
    def holds_model(self) -> bool:
        return self._model is not None

    def engine_for(self, job: InferenceJob, models: Path | None) -> Engine:
        """An engine of its own, with nothing in it of those before."""
        preset = job.preset or "baseline"
        if self._model is not None:
            _put_back(self._model)
            return build_engine(self._model, preset=preset, models_folder=models)
        engine = load(
            job.model,
            device=job.device,
            precision=job.precision,
            preset=preset,
            models_folder=models,
            # Peers and the baseline run diffusers' modules themselves.
            outlined=False,
        )
        self._model = engine.model
        return engine

    def is_clean(self) -> bool:
        """Free what is not in use; whether nothing but the weights is left on the device."""
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


def _put_back(model: Model) -> None:
    """All that engines and peers do to a model itself: move parts of it, and lay its weights out anew."""
    for part in (model.vae, *model.text_encoders):
        part.to(model.device)
    model.unet.to(memory_format=torch.contiguous_format)
