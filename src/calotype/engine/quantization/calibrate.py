"""Finds how large the numbers behind a model's norms get, by making pictures. Knows nothing of eight bits."""

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
"""In the embedded model's wording; other models make something of them too."""


def calibrate(
    model: Model,
    *,
    prompts: Sequence[str] = PROMPTS,
    steps: int = STEPS,
    size: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make a picture of each prompt, at the model's own size if none is said; keep what was seen."""
    watcher, seen = progress or Silent(), _Seen(model)
    usual = tuple(one for one in resolve_passes(model, "low-memory") if one in PRESETS["fast"])
    engine = Engine(model, networks=build_networks(model, (*usual, seen.watching())))
    side = size or model.architecture.native_size
    watcher.start("calibrating", len(prompts))
    for seed, prompt in enumerate(prompts):
        engine.generate(prompt, width=side, height=side, steps=steps, seed=seed)
        watcher.advance()
    digest = hashlib.sha256("\n".join(prompts).encode()).hexdigest()
    about = {"prompts": str(len(prompts)), "prompts_sha256": digest, "steps": str(steps), "size": str(side)}
    return calibration_data.save_ranges(model, seen.ranges, about)


class _Seen:
    """The largest numbers of all channels so far."""

    def __init__(self, model: Model) -> None:
        self._names = {norm: name for name, norm, _ in calibration_data.norms_of(model.unet)}
        self.ranges: dict[str, Tensor] = {}

    def watching(self) -> Pass:
        """A pass that looks at what norms write."""

        def apply(assembly: NetworkBuilder) -> None:
            usual = assembly.operations.layer_norm

            def layer_norm(
                x: Tensor, norm: nn.LayerNorm, addend: Tensor | None = None, bias: Tensor | None = None
            ) -> tuple[Tensor, Tensor]:
                normal, whole = usual(x, norm, addend, bias)
                self._note(self._names[norm], normal)
                return normal, whole

            assembly.operations = replace(assembly.operations, layer_norm=layer_norm)

        return Pass("watching", "exact", no_requirements, apply)

    def _note(self, name: str, normal: Tensor) -> None:
        largest = normal.flatten(0, -2).abs().amax(0).float().cpu()
        self.ranges[name] = largest.maximum(self.ranges[name]) if name in self.ranges else largest
