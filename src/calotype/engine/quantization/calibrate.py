"""Measures the activation ranges after a model's norms by generating images."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from calotype.core.progress import Progress, Silent
from calotype.engine.engine import Engine
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import no_requirements
from calotype.engine.presets import PRESETS, build_networks, resolve_passes
from calotype.engine.quantization import calibration_data
from calotype.models.model import Model

STEPS = 12
PROMPTS: tuple[str, ...] = (
    "a green apple, noto style, on a white background",
    "a dog face, flat style, on a light blue background",
    "a rocket, twemoji style, on a yellow background",
    "a crying face, noto style, on a black background",
    "a woman scientist, flat style, on a green background",
    "a pizza, noto style, on a purple background",
    "a sun, twemoji style, on a white background",
    "a bicycle, flat style, on a red background",
)
"""In the embedded model's wording; other models can use them too."""


def calibrate(
    model: Model,
    *,
    prompts: Sequence[str] = PROMPTS,
    steps: int = STEPS,
    size: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Generate an image of each prompt, by default at the model's native size; save the ranges."""
    reporter, observer = progress or Silent(), _RangeObserver(model)
    passes = tuple(each for each in resolve_passes(model, "low-memory") if each in PRESETS["fast"])
    engine = Engine(model, networks=build_networks(model, (*passes, observer.as_pass())))
    side = size or model.architecture.native_size
    reporter.start("calibrating", len(prompts))
    for seed, prompt in enumerate(prompts):
        engine.generate(prompt, width=side, height=side, steps=steps, seed=seed)
        reporter.advance()
    digest = hashlib.sha256("\n".join(prompts).encode()).hexdigest()
    about = {"prompts": str(len(prompts)), "prompts_sha256": digest, "steps": str(steps), "size": str(side)}
    return calibration_data.save_ranges(model, observer.ranges, about)


class _RangeObserver:
    """Observes the largest absolute value of each channel."""

    def __init__(self, model: Model) -> None:
        self._names = {norm: name for name, norm, _ in calibration_data.norms_of(model.unet)}
        self.ranges: dict[str, Tensor] = {}

    def as_pass(self) -> Pass:
        """A pass that observes the output of norms."""

        def apply(builder: NetworkBuilder) -> None:
            original = builder.operations.layer_norm

            def layer_norm(
                x: Tensor, norm: nn.LayerNorm, addend: Tensor | None = None, bias: Tensor | None = None
            ) -> tuple[Tensor, Tensor]:
                normed, total = original(x, norm, addend, bias)
                self._update(self._names[norm], normed)
                return normed, total

            builder.operations = replace(builder.operations, layer_norm=layer_norm)

        return Pass("watching", "exact", no_requirements, apply)

    def _update(self, name: str, normed: Tensor) -> None:
        largest = normed.flatten(0, -2).abs().amax(0).float().cpu()
        self.ranges[name] = largest.maximum(self.ranges[name]) if name in self.ranges else largest
