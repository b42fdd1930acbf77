"""Computes the denoised estimate of a sampler's query from the entries of two CONDITIONINGs.

Entries of one shape share a UNet evaluation. Where several apply to a latent pixel, their estimates are
averaged by weight.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

import torch
from torch import Tensor

from calotype.engine.denoiser import DenoiseInput, Guidance
from calotype.engine.engine import Engine
from calotype.engine.unet_runner import UNetRunner
from calotype.sampling import DenoiseQuery
from calotype.workflow.nodes.impl.conditioning_masks import Area, ConditioningEntry, Conditions, Control

NetworkOf = Callable[[tuple[Control, ...], tuple[int, int]], UNetRunner]
"""Builds the UNet runner with ControlNets for latents of a size."""


class MultiCondDenoiser:
    """Evaluates the queries of one sampling."""

    def __init__(
        self,
        conditions: Conditions,
        cfg: float,
        network_of: NetworkOf,
        extra_channels: Tensor | None = None,
    ) -> None:
        """`extra_channels` are the additional input channels of an inpainting UNet."""
        self._cfg = cfg
        self._positive = conditions.positive
        self._negative = [] if math.isclose(cfg, 1.0) else conditions.negative
        self._extra_channels, self._network_of = extra_channels, network_of
        # The same object at every step: engines cache by identity what does not change.
        self._simple_guidance = _simple_guidance(self._positive, self._negative, cfg)
        self._guidances: dict[ConditioningEntry, Guidance] = {}
        self._weights: dict[ConditioningEntry, Tensor] = {}
        self._networks: dict[Hashable, UNetRunner] = {}

    def denoise(self, engine: Engine, query: DenoiseQuery) -> Tensor:
        """The estimate for a query, from an engine with the model's LoRAs merged."""
        if self._simple_guidance is not None:
            return engine.denoise([DenoiseInput(query, self._simple_guidance, self._extra_channels)])[0]
        active = [entry for entry in (*self._positive, *self._negative) if entry.counts_at(query.sigma)]
        estimates = self._estimates(engine, query, active)
        positive = self._averaged(query.x, self._positive, estimates)
        if not self._negative:
            return positive
        negative = self._averaged(query.x, self._negative, estimates)
        return negative + self._cfg * (positive - negative)

    def _estimates(
        self, engine: Engine, query: DenoiseQuery, entries: Sequence[ConditioningEntry]
    ) -> dict[ConditioningEntry, Tensor]:
        groups: dict[Hashable, list[ConditioningEntry]] = defaultdict(list)
        for entry in entries:
            shape = query.x.shape[-2:] if entry.area is None else entry.area[:2]
            groups[tuple(shape), tuple(map(id, entry.controls))].append(entry)
        estimates: dict[ConditioningEntry, Tensor] = {}
        for key, group in groups.items():
            inputs = [self._input(query, entry) for entry in group]
            network = self._network(key, group[0].controls, inputs[0])
            estimates.update(zip(group, engine.denoise(inputs, network), strict=True))
        return estimates

    def _input(self, query: DenoiseQuery, entry: ConditioningEntry) -> DenoiseInput:
        if entry not in self._guidances:
            resolved = entry.told
            self._guidances[entry] = Guidance(resolved.prompt, None, 1.0, resolved.time_ids)
        area = entry.area or Area.whole(query.x)
        extra = None if self._extra_channels is None else area.of(self._extra_channels)
        return DenoiseInput(query._replace(x=area.of(query.x)), self._guidances[entry], extra)

    def _network(
        self, key: Hashable, controls: tuple[Control, ...], denoise_input: DenoiseInput
    ) -> UNetRunner | None:
        if not controls:
            return None
        if key not in self._networks:
            height, width = denoise_input.query.x.shape[-2:]
            self._networks[key] = self._network_of(controls, (height, width))
        return self._networks[key]

    def _averaged(
        self, x: Tensor, entries: Sequence[ConditioningEntry], estimates: Mapping[ConditioningEntry, Tensor]
    ) -> Tensor:
        """The weighted average of the estimates; 0 where no entry applies."""
        total, weights = torch.zeros_like(x), torch.zeros_like(x)
        for entry in entries:
            if entry in estimates:
                area, weight = entry.area or Area.whole(x), self._weight(entry, x)
                area.of(total).add_(estimates[entry] * weight)
                area.of(weights).add_(weight)
        return torch.where(weights != 0, total / weights, 0.0)

    def _weight(self, entry: ConditioningEntry, x: Tensor) -> Tensor:
        if entry not in self._weights:
            self._weights[entry] = entry.weight(x)
        return self._weights[entry]


def _simple_guidance(
    positive: Sequence[ConditioningEntry], negative: Sequence[ConditioningEntry], cfg: float
) -> Guidance | None:
    """The guidance of the usual case, one unrestricted prompt on each side, which the engine applies."""
    if len(positive) != 1 or len(negative) > 1 or not all(e.is_plain for e in (*positive, *negative)):
        return None
    resolved = positive[0].told
    if not negative:
        return Guidance(resolved.prompt, None, 1.0, resolved.time_ids)
    other = negative[0].told
    return Guidance(resolved.prompt, other.prompt, cfg, resolved.time_ids, other.time_ids)
