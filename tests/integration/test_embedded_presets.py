"""Every preset on the embedded model, held against the fp32 picture of the baseline by PSNR and SSIM.

Captions whose pictures a little noise does not turn into others: docs/log.md says why a bound on any would
be one on the caption. tests/unit/engine/quantization/test_calibration.py covers `int8-static`,
tests/gpu/engine.py what needs a GPU.
"""

from __future__ import annotations

import pytest
from torch import Tensor

from calotype.bench.quality.generate import generate_images
from calotype.bench.quality.image_metrics import psnr, ssim
from calotype.core.progress import CancelToken, Silent
from calotype.engine.load import load
from calotype.engine.presets import all_passes
from calotype.spec.generate_request import GenerateRequest

PROMPTS = (
    "a red apple, flat style, on a light blue background",
    "a fox, twemoji style, on a white background",
)
LEAST: dict[str, tuple[float, float]] = {
    "fast": (75.0, 0.9999),
    "low-memory": (75.0, 0.9999),
    "int8": (40.0, 0.995),
    "fp8": (33.0, 0.985),
    "cached": (25.0, 0.93),
    "passes:guidance_interval": (28.0, 0.97),
    "passes:own_forward+fp8": (36.0, 0.99),
}
"""Decibels of PSNR, and SSIM. Measured: 90, 90, 49, 37, 29, 32 and 44 dB."""
DIFFERENT_DB = 70.0
"""What a lossy preset does not reach: it would not have been at work."""


def pictures(preset: str) -> Tensor:
    engine = load("emoji", device="cpu", precision="fp32", preset=preset)
    requests = [GenerateRequest(prompt=prompt, steps=12, cfg=4.0, seed=0) for prompt in PROMPTS]
    return generate_images(engine, requests, batch_size=None, progress=Silent(), cancel=CancelToken())


@pytest.fixture(scope="module")
def exact() -> Tensor:
    return pictures("baseline")


@pytest.mark.parametrize("preset", LEAST)
def test_a_preset_makes_the_picture_of_fp32(preset: str, exact: Tensor) -> None:
    found, (least_db, least_ssim) = pictures(preset), LEAST[preset]
    noise, alike = psnr(found, exact), ssim(found, exact)
    assert float(noise.min()) >= least_db
    assert float(alike.min()) >= least_ssim
    lossy = any(one.effect == "lossy" for one in all_passes(preset))
    assert lossy == (float(noise.max()) < DIFFERENT_DB)
