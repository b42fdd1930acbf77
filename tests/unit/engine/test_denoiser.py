"""An answer is the sampler's to keep, whatever the network does with its own memory afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from calotype.engine.denoiser import DenoiseInput, Denoiser, Guidance
from calotype.engine.engine import Engine
from calotype.engine.text_encoder import Conditioning
from calotype.engine.unet_runner import Row
from calotype.sampling import DenoiseQuery


class Overwriting:
    """A network that answers in one place, as a CUDA graph does: each answer overwrites the one before."""

    def __init__(self) -> None:
        self._answer = torch.zeros(2, 4, 8, 8)

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        assert len(sample) == len(rows)
        return self._answer.add_(1)

    def invalidate(self) -> None: ...


def test_the_next_evaluation_does_not_overwrite_an_answer(engine: Engine) -> None:
    # Of all kinds of models only one that says the clean latent itself has its answer handed on as it is.
    scheduler = {**engine.model.architecture.scheduler, "prediction_type": "sample"}
    architecture = replace(engine.model.architecture, scheduler=scheduler)
    denoiser = Denoiser(replace(engine.model, architecture=architecture), engine.schedule, Overwriting())
    prompt = Conditioning(torch.zeros(1, 2, 4), None)
    question = DenoiseInput(DenoiseQuery(torch.zeros(2, 4, 8, 8), 1.0, 0), Guidance(prompt, None, cfg=1.0))
    first, second = (denoiser.denoise([question])[0] for _ in range(2))
    assert (float(first.mean()), float(second.mean())) == (1.0, 2.0)
