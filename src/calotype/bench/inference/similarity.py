"""Compares an image with the reference image of the baseline preset on the same weights."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from calotype.bench.quality.image_metrics import psnr, ssim
from calotype.engine.engine import Engine
from calotype.engine.presets import resolve_passes
from calotype.models.model import Model
from calotype.spec.bench_job import OURS, InferenceJob
from calotype.spec.records.measurement import Likeness

REFERENCE = "baseline"


def can_differ(job: InferenceJob, model: Model) -> bool:
    """Whether the images may differ from the reference images."""
    if job.system != OURS or job.preset is None:
        return True
    return any(one.effect != "exact" for one in resolve_passes(model, job.preset))


def similarity_to_baseline(image: Image.Image, job: InferenceJob, model: Model) -> Likeness:
    """Of the first picture of a batch to the plain one of its seed, in the same precision."""
    for part in (model.vae, *model.text_encoders):
        # A pass or a peer may have put them aside.
        part.to(model.device)
    (plain,) = Engine(model, preset=REFERENCE).generate(job.request, count=1, batch_size=1).images
    one, other = _pixels(image), _pixels(plain)
    same = bool((one == other).all())
    return Likeness(
        reference=f"{REFERENCE} in the same precision",
        psnr_db=None if same else float(psnr(one, other)[0]),
        ssim=float(ssim(one, other)[0]),
    )


def _pixels(image: Image.Image) -> Tensor:
    """(1, 3, height, width) in uint8."""
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)[None].contiguous()
