"""Guidance only in the middle of the noise levels: half the rows elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calotype.engine.denoiser import DenoiseInput, Denoiser, Guidance
from calotype.engine.engine import Engine
from calotype.engine.passes.guidance_interval import GUIDANCE_INTERVAL, INTERVAL
from calotype.engine.presets import build_networks
from calotype.engine.text_encoder import Conditioning
from calotype.engine.unet_runner import Row
from calotype.sampling import DenoiseQuery


class Told:
    """A network that notes the rows it is asked about, and answers each with its prompt's number."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        self.rows.append(len(rows))
        return torch.stack([s * 0 + row.prompt.context.mean() for s, row in zip(sample, rows, strict=True)])

    def invalidate(self) -> None: ...


def test_the_negative_prompt_is_asked_inside_the_interval_only(engine: Engine) -> None:
    network = Told()
    between = build_networks(engine.model, (GUIDANCE_INTERVAL,)).guided_between
    denoiser = Denoiser(engine.model, engine.schedule, network, between)
    positive, negative = (Conditioning(torch.full((1, 2, 4), float(n)), None) for n in (1, -1))
    last = len(engine.schedule.sigmas) - 1
    answers = []
    for share in (0.0, INTERVAL[0] + 0.01, 0.5, INTERVAL[1] - 0.01, 1.0):
        sigma = engine.schedule.timestep_to_sigma(share * last)
        query = DenoiseQuery(torch.zeros(3, 4, 8, 8), sigma, 0)
        (answer,) = denoiser.denoise([DenoiseInput(query, Guidance(positive, negative, cfg=4.0))])
        answers.append(answer)
    assert network.rows == [3, 6, 6, 6, 3]
    # Of v-prediction at x = 0, the estimate is −σ/√(σ²+1) times the answer: 1 alone, 7 with guidance.
    sigma = engine.schedule.timestep_to_sigma(0.5 * last)
    assert torch.allclose(answers[2], torch.tensor(-7 * sigma / (sigma**2 + 1) ** 0.5), rtol=1e-4)
    top = engine.schedule.sigma_max
    assert torch.allclose(answers[4], torch.tensor(-top / (top**2 + 1) ** 0.5), rtol=1e-4)
