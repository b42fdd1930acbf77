"""Resolves CONDITIONING for one model and one size of latents: prompts, areas, masks and noise ranges.

A CONDITIONING has ComfyUI's layout: a list of pairs of the text embedding, (1, tokens, width), and a dict
that may hold: `pooled_output`; `area` as (height, width, y, x) in units of 8 pixels, or ("percentage", …) in
fractions of the image; `strength`; `mask`, `mask_strength` and `set_area_to_bounds`; `start_percent` and
`end_percent` of the sampling; SDXL's `width`, `height`, `crop_w`, `crop_h`, `target_width`, `target_height`
and `aesthetic_score`; `control` with `control_apply_to_uncond`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from calotype.core.errors import Problem, RequestError
from calotype.engine.engine import AESTHETIC_SCORES
from calotype.engine.text_encoder import Conditioning
from calotype.models.model import Model
from calotype.sampling import TrainingSchedule
from calotype.workflow.nodes.impl.masks import faded
from calotype.workflow.nodes.value_types import ControlNetValue

Pairs = Sequence[tuple[Tensor, Mapping[str, Any]]]
"""The value on a CONDITIONING link."""
Side = Literal["positive", "negative"]

AREA_UNIT = 8
"""Unit of `area` in pixels, whatever the model's VAE factor is."""
PERCENTAGE = "percentage"
MIN_BOUNDS = 8
"""Minimum side, in latent pixels, of an area that follows a mask."""
FADE = 8
"""Latent pixels over which an area fades at edges that are not the image's."""
AESTHETIC_SCORE: dict[Side, float] = dict(zip(("positive", "negative"), AESTHETIC_SCORES, strict=True))


class Area(NamedTuple):
    """A part of the latents, in their pixels."""

    height: int
    width: int
    y: int
    x: int

    @classmethod
    def whole(cls, latents: Tensor) -> Area:
        height, width = latents.shape[-2:]
        return cls(height, width, 0, 0)

    def holds(self, other: Area) -> bool:
        return (
            other.y >= self.y
            and other.x >= self.x
            and self.height + self.y >= other.height + other.y
            and self.width + self.x >= other.width + other.x
        )

    def of(self, tensor: Tensor) -> Tensor:
        return tensor[..., self.y : self.y + self.height, self.x : self.x + self.width]


@dataclass(frozen=True)
class Control:
    """A ControlNet as applied to a conditioning."""

    net: ControlNetValue
    image: Tensor
    """(batch, 3, height, width) from 0 to 1."""
    strength: float
    start_percent: float = 0.0
    end_percent: float = 1.0


@dataclass(frozen=True, eq=False)
class ResolvedConditioning:
    """The conditioning of the UNet: a prompt and, for SDXL, sizes."""

    prompt: Conditioning
    time_ids: Tensor | None


@dataclass(frozen=True, eq=False)
class ConditioningEntry:
    """One pair of a CONDITIONING, with its area, noise range and weight."""

    told: ResolvedConditioning
    area: Area | None = None
    mask: Tensor | None = None
    """(batch, height, width) in latent pixels."""
    strength: float = 1.0
    sigmas: tuple[float, float] = (0.0, math.inf)
    """The range of noise levels in which it applies."""
    controls: tuple[Control, ...] = ()
    control_of_both: bool = field(default=False)
    """Whether the other side gets the same ControlNets."""

    def counts_at(self, sigma: float) -> bool:
        return self.sigmas[0] <= sigma <= self.sigmas[1]

    @property
    def is_plain(self) -> bool:
        """Whether it applies to the whole image at all noise levels, so that alone it needs no weighting."""
        return (
            self.area is None and self.mask is None and not self.controls and self.sigmas == (0.0, math.inf)
        )

    def weight(self, latents: Tensor) -> Tensor:
        """The weight at each latent pixel of its area: (rows or 1, 1, height, width)."""
        area = self.area or Area.whole(latents)
        if self.mask is not None:
            rows = torch.arange(len(latents)) % len(self.mask)
            return area.of(self.mask[rows, None]).to(latents.device) * self.strength
        weight = torch.ones(1, 1, area.height, area.width, device=latents.device)
        if self.area is not None:
            height, width = latents.shape[-2:]
            rows = faded(area.height, area.y, height, min(FADE, area.height // 4))
            columns = faded(area.width, area.x, width, min(FADE, area.width // 4))
            weight *= torch.outer(rows, columns).to(latents.device)
        return weight * self.strength


class Conditions:
    """The resolved entries of both sides of guidance for latents of one size."""

    def __init__(
        self,
        model: Model,
        schedule: TrainingSchedule,
        size: tuple[int, int],
        positive: Pairs,
        negative: Pairs,
    ) -> None:
        """`size` is the height and width of the latents."""
        self._model, self._schedule, self._size = model, schedule, size
        positives = [self._entry(pair, "positive") for pair in positive]
        negatives = [self._entry(pair, "negative") for pair in negative]
        _mirror_areas(positives, negatives)
        _mirror_areas(negatives, positives)
        _share_controls(positives, negatives)
        self.positive, self.negative = positives, negatives

    def _entry(self, pair: tuple[Tensor, Mapping[str, Any]], side: Side) -> ConditioningEntry:
        context, options = pair
        mask = self._mask(options)
        return ConditioningEntry(
            ResolvedConditioning(self._prompt(context, options, side), self._time_ids(options, side)),
            area=self._area(options, mask),
            mask=None if mask is None else mask * float(options.get("mask_strength", 1.0)),
            strength=float(options.get("strength", 1.0)),
            sigmas=(
                self._sigma(float(options.get("end_percent", 1.0))),
                self._sigma(float(options.get("start_percent", 0.0))),
            ),
            controls=tuple(options.get("control", ())),
            control_of_both=bool(options.get("control_apply_to_uncond", False)),
        )

    def _prompt(self, context: Tensor, options: Mapping[str, Any], side: Side) -> Conditioning:
        model = self._model
        reads = model.unet.config.cross_attention_dim
        width = reads if isinstance(reads, int) else reads[0]
        if context.shape[-1] != width:
            rule = f"is {context.shape[-1]} wide, {model.architecture.title} reads {width}"
            raise RequestError([Problem(side, f"{rule}; encode it with the CLIP of the same checkpoint")])
        pooled = options.get("pooled_output")
        if pooled is None and model.architecture.family == "sdxl":
            rule = f"has no pooled output, which {model.architecture.title} reads"
            raise RequestError([Problem(side, f"{rule}; encode it with the CLIP of the same checkpoint")])
        return Conditioning(
            context.to(model.device, model.dtype),
            None if pooled is None else pooled.to(model.device, model.dtype),
        )

    def _time_ids(self, options: Mapping[str, Any], side: Side) -> Tensor | None:
        architecture = self._model.architecture
        if architecture.family != "sdxl":
            return None
        height, width = (length * architecture.vae_factor for length in self._size)
        height, width = options.get("height", height), options.get("width", width)
        numbers = [height, width, options.get("crop_h", 0), options.get("crop_w", 0)]
        if architecture.reads_aesthetic_score:
            numbers.append(options.get("aesthetic_score", AESTHETIC_SCORE[side]))
        else:
            numbers += [options.get("target_height", height), options.get("target_width", width)]
        return torch.tensor([numbers], dtype=torch.float32, device=self._model.device)

    def _area(self, options: Mapping[str, Any], mask: Tensor | None) -> Area | None:
        if mask is not None and options.get("set_area_to_bounds"):
            return _within(_bounds(mask), self._size)
        area = options.get("area")
        if area is None:
            return None
        if area[0] == PERCENTAGE:
            lengths = [
                max(1, round(share * whole)) for share, whole in zip(area[1:3], self._size, strict=True)
            ]
            starts = [round(share * whole) for share, whole in zip(area[3:5], self._size, strict=True)]
            return _within(Area(*lengths, *starts), self._size)
        factor = self._model.architecture.vae_factor
        return _within(Area(*(round(length * AREA_UNIT / factor) for length in area)), self._size)

    def _mask(self, options: Mapping[str, Any]) -> Tensor | None:
        mask = options.get("mask")
        if mask is None:
            return None
        mask = mask.reshape(-1, *mask.shape[-2:]).float()
        if tuple(mask.shape[-2:]) != tuple(self._size):
            mask = interpolate(mask[:, None], size=tuple(self._size), mode="bilinear")[:, 0]
        return mask

    def _sigma(self, percent: float) -> float:
        """The noise level at a fraction of the sampling."""
        if percent <= 0:
            return math.inf
        if percent >= 1:
            return 0.0
        return self._schedule.timestep_to_sigma((1 - percent) * (len(self._schedule.sigmas) - 1))


def _within(area: Area, size: tuple[int, int]) -> Area:
    y, x = min(area.y, size[0] - 1), min(area.x, size[1] - 1)
    return Area(min(area.height, size[0] - y), min(area.width, size[1] - x), y, x)


def _bounds(mask: Tensor) -> Area:
    """The bounding box of a mask, with sides of at least MIN_BOUNDS."""
    covered = mask.abs().amax(0) > 0
    rows, columns = covered.any(1).nonzero(), covered.any(0).nonzero()
    if not len(rows):
        return Area(MIN_BOUNDS, MIN_BOUNDS, 0, 0)
    y, x = int(rows.min()), int(columns.min())
    height, width = int(rows.max()) - y + 1, int(columns.max()) - x + 1
    return Area(max(MIN_BOUNDS, height), max(MIN_BOUNDS, width), y, x)


def _mirror_areas(entries: Sequence[ConditioningEntry], others: list[ConditioningEntry]) -> None:
    """Add a counterpart of each area to the other side, with that side's smallest text that covers it."""
    for entry in entries:
        if entry.area is None:
            continue
        covering = [other for other in others if other.area is None or other.area.holds(entry.area)]
        smallest = min(covering, key=_area_size, default=None)
        if smallest is not None and smallest.area != entry.area:
            others.append(replace(entry, told=smallest.told))


def _area_size(entry: ConditioningEntry) -> float:
    return math.inf if entry.area is None else entry.area.height * entry.area.width


def _share_controls(positives: Sequence[ConditioningEntry], negatives: list[ConditioningEntry]) -> None:
    """Copy ControlNets that apply to both sides to the negative side; only positive entries hold them."""
    shared = [entry for entry in positives if entry.control_of_both and entry.controls and entry.area is None]
    indices = [index for index, entry in enumerate(negatives) if entry.area is None]
    if not indices or any(entry.controls for entry in negatives):
        return
    for number, entry in enumerate(shared):
        index = indices[number % len(indices)]
        changed = replace(negatives[index], controls=entry.controls)
        if negatives[index].controls:
            negatives.append(changed)
        else:
            negatives[index] = changed
