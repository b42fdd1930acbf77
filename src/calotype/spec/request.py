"""What may be asked of an engine: one picture, or several from consecutive seeds.

Frozen and strict: an unknown key, a string where a number belongs or a value past its limit is refused, and every
problem is reported at once. Knows nothing of models: what a given model or machine cannot do is said by the engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from calotype.core.errors import Problem, RequestError, near_matches
from calotype.spec.names import SAMPLERS, SCHEDULES

LARGEST_SIDE = 16384
LARGEST_SEED = 2**64 - 1
LONGEST_PROMPT = 20_000

Side = Annotated[int, Field(ge=16, le=LARGEST_SIDE, multiple_of=8)]
Strength = Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Build from plain values; raises RequestError listing every problem."""
        try:
            # Through JSON-like lax containers: lists become tuples, but numbers stay strict.
            return cls.model_validate(_tuples(values))
        except ValidationError as error:
            raise RequestError(_problem(cls, details) for details in error.errors()) from None


class LoraUse(_Frozen):
    """One LoRA applied to the model for this request."""

    name: str
    """File name inside the model folder's `loras/`."""
    strength: Strength = 1.0
    """How much of it goes into the UNet."""
    text_strength: Strength | None = None
    """How much of it goes into the text encoders; as `strength` if not said."""


class MicroConditioning(_Frozen):
    """What SDXL is told about the picture it imagines to have been trained on."""

    original_size: tuple[Side, Side] | None = None
    """Height and width before any crop; the picture's own if not said."""
    crop_top_left: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = (0, 0)
    """Top and left of the crop."""
    target_size: tuple[Side, Side] | None = None
    """Height and width after the crop; the picture's own if not said."""


class ImageInput(_Frozen):
    """A picture given with a request, so that the record says which one it was."""

    path: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class GenerateRequest(_Frozen):
    """Everything that decides what a picture looks like, given a model."""

    prompt: str
    """What to show. `(word:1.2)` weighs a word, `embedding:name` uses a learned one."""
    negative_prompt: str | None = None
    """What to keep away from. Not said: the model's own idea of nothing."""
    width: Side | None = None
    """In pixels, a multiple of 8; the model's own size if not said."""
    height: Side | None = None
    """In pixels, a multiple of 8; the model's own size if not said."""
    steps: Annotated[int, Field(ge=1, le=1000)] = 20
    """Intervals of the noise schedule; all of them are run, whatever `strength` is."""
    cfg: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 7.5
    """Classifier-free guidance; 1 switches it off and halves the work."""
    sampler: str = "dpmpp_2m"
    schedule: str = "karras"
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    """Seed of the first picture; the next has the next seed."""
    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How many pictures."""
    eta: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Share of fresh noise in ancestral and SDE samplers and ddim; the sampler's own if not said."""
    clip_skip: Annotated[int, Field(ge=0, le=12)] = 0
    """Text encoder layers to leave out at the end, beyond what the model was trained with."""
    loras: tuple[LoraUse, ...] = ()
    vae: str | None = None
    """File name inside the model folder's `vae/` to use instead of the model's own."""
    image: ImageInput | None = None
    """Start from this picture instead of from noise alone."""
    mask: ImageInput | None = None
    """White is painted anew, black is kept."""
    strength: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    """With `image`: how far to go back towards noise."""
    tile_vae: bool | None = None
    """Decode in tiles, which bounds memory and can shift colours slightly; when needed, if not said."""
    micro: MicroConditioning = MicroConditioning()

    @field_validator("prompt", "negative_prompt")
    @classmethod
    def _usable_text(cls, text: str | None) -> str | None:
        if text is not None and len(text) > LONGEST_PROMPT:
            raise ValueError(f"is {len(text)} characters long, the limit is {LONGEST_PROMPT}")
        if text is not None and "\0" in text:
            raise ValueError(f"holds a NUL character at position {text.index(chr(0))}; remove it")
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
        if self.mask is not None and self.image is None:
            raise ValueError("mask: a mask needs the image it belongs to; give `image` too")
        if self.strength < 1 and self.image is None:
            raise ValueError("strength: it says how far to leave a given image; give `image` too, or leave it at 1")
        return self

    def seeds(self) -> list[int]:
        """One seed per picture, counting up and around."""
        return [(self.seed + i) & LARGEST_SEED for i in range(self.count)]

    def with_changes(self, **changes: object) -> GenerateRequest:
        """A checked copy with some values replaced."""
        return self.parse({**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """Plain values, defaults included: a record must not change its meaning when a default does."""
        return self.model_dump(mode="json")


def _known(name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        raise ValueError(f"{name[:60]!r} is not known; {near_matches(name, names)}")
    return name


def _tuples(value: object) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value


def _problem(model: type[BaseModel], details: Mapping[str, Any]) -> Problem:
    field = ".".join(str(part) for part in details["loc"])
    value, context = details.get("input"), details.get("ctx", {})
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    match details["type"]:
        case "extra_forbidden":
            message = f"is not a known setting; {near_matches(field, model.model_fields)}"
        case "missing":
            message = "is required"
        case "multiple_of":
            nearest = min(max(round(int(value or 0) / 8) * 8, 16), LARGEST_SIDE)
            message = f"{shown} is not a multiple of 8 from 16 to {LARGEST_SIDE}; the nearest is {nearest}"
        case "greater_than_equal" | "greater_than" | "less_than_equal" | "less_than":
            words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
            rule = ", ".join(f"{words[key]} {limit}" for key, limit in context.items())
            message = f"{shown} is out of range; it must be {rule}"
        case "finite_number":
            message = f"{shown} is not a finite number"
        case "value_error":
            message = str(context["error"])
            if not field and ": " in message:
                field, _, message = message.partition(": ")
        case _:
            message = f"{shown}: {details['msg'][0].lower()}{details['msg'][1:]}"
    return Problem(field, message, value if not (isinstance(value, float) and math.isnan(value)) else "NaN")
