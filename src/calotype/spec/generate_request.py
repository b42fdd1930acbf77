"""What may be asked of an engine: one picture, or several from consecutive seeds.

Frozen and strict: an unknown key, a string where a number belongs or a value past its limit is refused, and
every problem is reported at once. Knows nothing of models: what a given model or machine cannot do is said by
the engine.
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
"""What the model's own defaults fill in where a request does not give it."""


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
    """One LoRA applied to the model for this request."""

    name: str
    """File name inside the model folder's `loras/`."""
    strength: Weight = 1.0
    """How much of it goes into the UNet."""
    text_strength: Weight | None = None
    """How much of it goes into the text encoders; as `strength` if not said."""


class MicroConditioning(_Frozen):
    """What SDXL is told about the picture it imagines to have been trained on."""

    # Lists are welcome where tuples are kept: JSON has no tuples.
    original_size: Annotated[tuple[Pixels, Pixels], Field(strict=False)] | None = None
    """Height and width before any crop; the picture's own if not said."""
    crop_top_left: Annotated[tuple[Offset, Offset], Field(strict=False)] = (0, 0)
    """Top and left of the crop."""
    target_size: Annotated[tuple[Pixels, Pixels], Field(strict=False)] | None = None
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
    """Intervals of the noise schedule; all of them are run, whatever `strength` is.

    If not given, the model's own number: 20, or what a model distilled to few steps takes.
    """
    cfg: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 7.5
    """Classifier-free guidance; 1 switches it off and halves the work. If not given, the model's own."""
    sampler: str = "dpmpp_2m"
    """If not given, the one that the model's scheduler configuration names."""
    schedule: str = "karras"
    """If not given, the timestep spacing that the model's scheduler configuration names."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    """Seed of the first picture; the next has the next seed."""
    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How many pictures."""
    eta: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Share of fresh noise in ancestral and SDE samplers and ddim; the sampler's own if not said."""
    clip_skip: Annotated[int, Field(ge=0, le=12)] = 0
    """Text encoder layers to leave out at the end, beyond what the model was trained with."""
    loras: Annotated[tuple[LoraUse, ...], Field(strict=False, max_length=MAX_LORAS)] = ()
    vae: str | None = None
    """File name inside the model folder's `vae/` to use instead of the model's own."""
    image: ImageInput | None = None
    """Start from this picture instead of from noise alone."""
    mask: ImageInput | None = None
    """White is painted anew, black is kept."""
    strength: Annotated[float, Field(ge=0.01, le=1, allow_inf_nan=False)] | None = None
    """With `image`: how far to go back towards noise. Not said: 0.75, or all the way with a mask."""
    tile_vae: bool | None = None
    """Decode in tiles, which bounds memory and can shift colours slightly; when needed, if not said."""
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
        """One seed per picture, counting up and around."""
        return [(self.seed + i) & MAX_SEED for i in range(self.count)]

    def with_changes(self, **changes: object) -> GenerateRequest:
        """A checked copy with some values replaced."""
        return self.parse({**self.as_dict(), **changes})

    def settled(self, defaults: Mapping[str, Any] | None = None) -> GenerateRequest:
        """The same with all of `MODEL_DECIDES` given: from `defaults` where they were not, or our own."""
        unsaid = [name for name in MODEL_DECIDES if name not in self.model_fields_set]
        values = {name: (defaults or {}).get(name, getattr(self, name)) for name in unsaid}
        return self.with_changes(**values)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, defaults included: a record must not change its meaning when a default does.

        What the model decides is left out until it is settled, so that it can be decided where the model is.
        """
        unsaid = {name for name in MODEL_DECIDES if name not in self.model_fields_set}
        return self.model_dump(mode="json", exclude=unsaid)


def _known(name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        raise ValueError(f"{short_repr(name)} is not known; {did_you_mean(name[:60], names)}")
    return name


def _contradictions(values: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the values together, where each alone may be right."""
    if values.get("image") is not None:
        return []
    found = []
    if values.get("mask") is not None:
        found.append(Problem("mask", "a mask needs the image it belongs to; give `image` too"))
    strength = values.get("strength")
    if isinstance(strength, int | float) and strength < 1:
        rule = "says how far to leave a given image; give `image` too, or leave it out"
        found.append(Problem("strength", f"{short_repr(strength)} {rule}", strength))
    return found
