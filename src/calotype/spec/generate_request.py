"""The generation request: one image, or several with consecutive seeds.

Frozen and strict: unknown keys, wrong types and values out of range are rejected, and all problems are
reported at once. The engine checks what a given model or machine supports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from calotype.core.errors import Problem, RequestError, did_you_mean
from calotype.spec.constants import SAMPLERS, SCHEDULES
from calotype.spec.validation_errors import problems_of, short_repr

MIN_SIDE = 16
MAX_SIDE = 16384
MAX_SEED = 2**64 - 1
MAX_PROMPT_LENGTH = 20_000
MAX_LORAS = 64


MODEL_DECIDES = ("steps", "cfg", "sampler", "schedule")
"""Settings whose defaults come from the model."""


def _side(pixels: int) -> int:
    nearest = round(min(max(pixels, MIN_SIDE), MAX_SIDE) / 8) * 8
    if pixels != nearest:
        rule = f"is not a multiple of 8 from {MIN_SIDE} to {MAX_SIDE}; the nearest is {nearest}"
        raise ValueError(f"{short_repr(pixels)} {rule}")
    return pixels


_SIDE_SCHEMA = {"minimum": MIN_SIDE, "maximum": MAX_SIDE, "multipleOf": 8}
Side = Annotated[int, AfterValidator(_side), Field(json_schema_extra=_SIDE_SCHEMA)]
Pixels = Annotated[int, Field(ge=1, le=65536)]
Offset = Annotated[int, Field(ge=0, le=65536)]
Weight = Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class LoraUse(_Frozen):
    """A LoRA to apply for this request."""

    name: str
    """File name inside the model folder's `loras/`."""
    strength: Weight = 1.0
    """Strength in the UNet."""
    text_strength: Weight | None = None
    """Strength in the text encoders. Default: as `strength`."""


class MicroConditioning(_Frozen):
    """SDXL size conditioning: size and crop of the assumed training image."""

    # Lists are accepted for tuples, as JSON has no tuples.
    original_size: Annotated[tuple[Pixels, Pixels], Field(strict=False)] | None = None
    """Height and width before any crop. Default: the size of the image."""
    crop_top_left: Annotated[tuple[Offset, Offset], Field(strict=False)] = (0, 0)
    """Top and left of the crop."""
    target_size: Annotated[tuple[Pixels, Pixels], Field(strict=False)] | None = None
    """Height and width after the crop. Default: the size of the image."""


class ImageInput(_Frozen):
    """An input image, identified by its hash in the record."""

    path: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class GenerateRequest(_Frozen):
    """All settings that determine an image, given a model."""

    prompt: str
    """Text prompt. `(word:1.2)` sets the weight of a word, `embedding:name` uses a textual inversion."""
    negative_prompt: str | None = None
    """Negative prompt. Default: the unconditional embedding of the model."""
    width: Side | None = None
    """In pixels, a multiple of 8. Default: the native size of the model."""
    height: Side | None = None
    """In pixels, a multiple of 8. Default: the native size of the model."""
    steps: Annotated[int, Field(ge=1, le=1000)] = 20
    """Intervals of the noise schedule; all of them are run, whatever `strength` is.

    Default: that of the model, which is 20 or what a model distilled to few steps takes.
    """
    cfg: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 7.5
    """Classifier-free guidance; 1 turns it off and halves the work. Default: that of the model."""
    sampler: str = "dpmpp_2m"
    """Default: the one that the scheduler configuration of the model names."""
    schedule: str = "karras"
    """Default: the timestep spacing that the scheduler configuration of the model names."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    """Seed of the first image; each further image has the next seed."""
    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of images."""
    eta: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Share of fresh noise in ancestral and SDE samplers and ddim. Default: that of the sampler."""
    clip_skip: Annotated[int, Field(ge=0, le=12)] = 0
    """Number of final text encoder layers to skip, beyond those that the model skips."""
    loras: Annotated[tuple[LoraUse, ...], Field(strict=False, max_length=MAX_LORAS)] = ()
    vae: str | None = None
    """File in `vae/` of the model folder, instead of the VAE of the model."""
    image: ImageInput | None = None
    """Initial image for image-to-image."""
    mask: ImageInput | None = None
    """Inpainting mask: white is repainted, black is kept."""
    strength: Annotated[float, Field(ge=0.01, le=1, allow_inf_nan=False)] | None = None
    """With `image`: denoising strength. Default: 0.75, or 1 with a mask."""
    tile_vae: bool | None = None
    """Decode in tiles, which bounds memory and can shift colors slightly. Default: if memory requires it."""
    micro: MicroConditioning = MicroConditioning()

    @field_validator("prompt", "negative_prompt")
    @classmethod
    def _usable_text(cls, text: str | None) -> str | None:
        if text is None:
            return None
        if len(text) > MAX_PROMPT_LENGTH:
            raise ValueError(f"is {len(text)} characters long, the limit is {MAX_PROMPT_LENGTH}")
        if "\0" in text:
            raise ValueError(f"holds a NUL character at position {text.index(chr(0))}; remove it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"holds half a character at position {error.start}; remove it") from None
        return text

    @field_validator("sampler")
    @classmethod
    def _known_sampler(cls, name: str) -> str:
        return _known(name, SAMPLERS)

    @field_validator("schedule")
    @classmethod
    def _known_schedule(cls, name: str) -> str:
        return _known(name, SCHEDULES)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        found = _contradictions(vars(self))
        if found:
            raise ValueError("; ".join(str(problem) for problem in found))
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> GenerateRequest:
        """Build from plain values; raises RequestError listing every problem."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise RequestError([*problems_of(cls, error), *_contradictions(values)]) from None

    def seeds(self) -> list[int]:
        """One seed per image, counting up with wraparound."""
        return [(self.seed + i) & MAX_SEED for i in range(self.count)]

    def with_changes(self, **changes: object) -> GenerateRequest:
        """A validated copy with some values replaced."""
        return self.parse({**self.as_dict(), **changes})

    def settled(self, defaults: Mapping[str, Any] | None = None) -> GenerateRequest:
        """A copy with all of `MODEL_DECIDES` set, from `defaults` or the defaults here if unset."""
        unset = [name for name in MODEL_DECIDES if name not in self.model_fields_set]
        values = {name: (defaults or {}).get(name, getattr(self, name)) for name in unset}
        return self.with_changes(**values)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, including defaults, so that records keep their meaning if a default changes.

        Unset values of MODEL_DECIDES are left out; the process that has the model sets them.
        """
        unset = {name for name in MODEL_DECIDES if name not in self.model_fields_set}
        return self.model_dump(mode="json", exclude=unset)


def _known(name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        raise ValueError(f"{short_repr(name)} is not known; {did_you_mean(name[:60], names)}")
    return name


def _contradictions(values: Mapping[str, Any]) -> list[Problem]:
    """Problems of combinations of values that are valid on their own."""
    if values.get("image") is not None:
        return []
    found = []
    if values.get("mask") is not None:
        found.append(Problem("mask", "a mask needs the image it belongs to; give `image` too"))
    strength = values.get("strength")
    if isinstance(strength, int | float) and strength < 1:
        rule = "applies to an initial image; give `image` too, or omit it"
        found.append(Problem("strength", f"{short_repr(strength)} {rule}", strength))
    return found
