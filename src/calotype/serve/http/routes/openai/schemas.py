"""What OpenAI's image clients send and read, and what of it becomes a request of ours.

Knows nothing of routes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from calotype.core.errors import Problem, RequestError
from calotype.imaging.image_io import MAX_SIDES
from calotype.serve.http.json_limits import loads
from calotype.serve.http.request_body import without_null
from calotype.serve.request_parsing import rename_error_fields, seed_for
from calotype.serve.settings import ServeSettings
from calotype.spec.validation_errors import short_repr

MAX_IMAGES = 10
MAX_PARTIAL = 3
STEPS = {"low": 10, "medium": 20, "standard": 20, "high": 40, "hd": 40}
"""What `quality` means here, where no steps are given; `auto` leaves them to the model."""
NAMES = {"count": "n", "width": "size", "height": "size"}
_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})")
_LORA_PART = re.compile(r"loras\[\]\[(.*)\]", re.DOTALL)
"""How OpenAI's client calls a part of each of a list's objects in a form."""
_KNOBS = ("negative_prompt", "cfg", "sampler", "schedule", "strength", "loras", "clip_skip")


class ImageGeneration(BaseModel):
    """A request for pictures as OpenAI's clients make it, and some knobs of ours (`extra_body`)."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    prompt: str
    """What to show."""
    model: str | None = None
    """One of `/v1/models`; the deployment's first if not said."""
    n: Annotated[int, Field(ge=1, le=MAX_IMAGES)] | None = None
    """How many pictures."""
    size: str | None = None
    """`WIDTHxHEIGHT` in multiples of 8, or `auto`: the model's own, or the given picture's."""
    response_format: Literal["b64_json", "url"] | None = None
    """`b64_json` if not said. Fetching a `url` needs the API key too."""
    quality: Literal["low", "medium", "standard", "auto", "high", "hd"] | None = None
    """Steps, where `steps` are not given: 10, 20 or 40; `auto` is the model's own number."""
    output_format: Literal["png", "jpeg", "webp"] | None = None
    """`png` if not said. Pictures at a `url` are PNG."""
    output_compression: Annotated[int, Field(ge=0, le=100)] | None = None
    """Quality of jpeg and webp; 95 if not said."""
    stream: bool | None = None
    """Answer by server-sent events."""
    partial_images: Annotated[int, Field(ge=0, le=MAX_PARTIAL)] | None = None
    """Previews on the way, with `stream`."""
    background: Literal["opaque", "auto"] | None = None
    """Pictures have no transparency."""
    moderation: Literal["low", "auto"] | None = None
    """Taken and without effect: nothing is moderated here."""
    style: Literal["vivid", "natural"] | None = None
    """Taken and without effect: describe the style in the prompt."""
    user: Annotated[str, Field(max_length=512)] | None = None
    """Taken and without effect; answered as `safety_identifier`."""
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    """Taken and without effect; answered as it is."""
    seed: int | None = None
    """Of the first picture; a random one if not said, the same for the same `Idempotency-Key`."""
    steps: int | None = None
    """Of the noise schedule."""
    negative_prompt: str | None = None
    """What to keep away from."""
    cfg: float | None = None
    """Classifier-free guidance."""
    sampler: str | None = None
    schedule: str | None = None
    clip_skip: int | None = None
    loras: list[dict[str, Any]] | None = None
    """As in `/v1/jobs`: name, strength, text_strength."""

    def request_values(self, idempotency_key: str | None) -> dict[str, Any]:
        """The values of a GenerateRequest, for a client that calls it so."""
        width, height = _size(self.size)
        knobs = {name: getattr(self, name, None) for name in _KNOBS}
        knobs["steps"] = self.steps if self.steps is not None else STEPS.get(self.quality or "auto")
        return {
            "prompt": self.prompt,
            "width": width,
            "height": height,
            "count": self.n or 1,
            "seed": self.seed if self.seed is not None else seed_for(idempotency_key),
            **{name: value for name, value in knobs.items() if value is not None},
        }

    def check(self, given: tuple[int, int] | None) -> None:
        """What does not go together; `given` is the size of a picture to change."""
        if self.response_format == "url" and self.output_format not in (None, "png"):
            rule = f"{self.output_format!r} cannot be had at a url; ask for b64_json"
            raise RequestError([Problem("output_format", rule, self.output_format)])
        if self.response_format == "url" and self.stream:
            raise RequestError([Problem("response_format", "a stream carries b64_json; leave it out")])
        self._check_sides(given)

    def _check_sides(self, given: tuple[int, int] | None) -> None:
        width, height = _size(self.size)
        sides = (width, height) if width and height else given or (0, 0)
        most = MAX_SIDES.get(self.output_format or "png")
        if most is not None and max(sides) > most:
            size = f"{sides[0]}x{sides[1]}"
            rule = f"{self.output_format!r} has at most {most} pixels a side, a picture of {size} more"
            fix = "ask for png, or for a smaller size"
            raise RequestError([Problem("output_format", f"{rule}; {fix}", self.output_format)])


class ImageEdit(ImageGeneration):
    """A request to change a picture; a form with files."""

    # Fields of a form are text.
    model_config = ConfigDict(strict=False)

    strength: float | None = None
    """How far to leave the given picture; 0.75 if not said, or all the way with a mask."""
    input_fidelity: Literal["high", "low"] | None = None
    """Strength, where it is not said: `high` stays at 0.5 and `low` goes to 0.75."""

    def request_values(self, idempotency_key: str | None) -> dict[str, Any]:
        """The values of a GenerateRequest, for a client that calls it so."""
        values = super().request_values(idempotency_key)
        if self.input_fidelity and self.strength is None:
            values["strength"] = {"high": 0.5, "low": 0.75}[self.input_fidelity]
        return values


class ImageEditForm(ImageEdit):
    """A request to change a picture, as a form."""

    model_config = ConfigDict(json_schema_extra=without_null)

    image: Annotated[str, Field(json_schema_extra={"format": "binary"})]
    """PNG, WebP or JPEG."""
    mask: Annotated[str, Field(json_schema_extra={"format": "binary"})] | None = None
    """What is fully transparent in it is painted anew."""


def form_values(fields: Mapping[str, list[str]], settings: ServeSettings) -> dict[str, Any]:
    """The values of a form; LoRAs are JSON text, or as OpenAI's client writes a list of objects."""
    values: dict[str, Any] = {}
    parts: dict[str, list[str]] = {}
    for name, said in fields.items():
        if found := _LORA_PART.fullmatch(name):
            parts[found[1]] = said
        else:
            values[name] = said[-1]
    if "loras" in values:
        with rename_error_fields({"body": "loras"}):
            values["loras"] = loads(values["loras"].encode(), settings)
    return {**values, "loras": _put_together(parts)} if parts else values


def _put_together(parts: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """LoRAs of all their names, all their strengths and so on."""
    count = len(parts.get("name", ()))
    for part, said in parts.items():
        if len(said) != count:
            rule = f"{count} names and {len(said)} of {short_repr(part)}, and a form does not say whose"
            raise RequestError([Problem("loras", f"{rule}; say it of each, or send the list as JSON text")])
    return [
        {part: said[index] if part == "name" else _as_number(said[index]) for part, said in parts.items()}
        for index in range(count)
    ]


def _as_number(text: str) -> float | str:
    """What is none is refused with everything else that is wrong."""
    try:
        return float(text)
    except ValueError:
        return text


class MadeImage(BaseModel):
    """One picture."""

    b64_json: str | None = None
    url: str | None = None


class ImagesMade(BaseModel):
    """Pictures, as OpenAI's clients read them."""

    created: int
    data: list[MadeImage]
    background: str = "opaque"
    output_format: str = "png"
    size: str | None = None
    safety_identifier: str | None = None


class ModelEntry(BaseModel):
    """One model, as OpenAI's clients read it."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "calotype"


class ModelList(BaseModel):
    """The deployment's models, as OpenAI's clients read them."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


def _size(text: str | None) -> tuple[int | None, int | None]:
    if text in (None, "auto"):
        return None, None
    found = _SIZE.fullmatch(text or "")
    if not found:
        raise RequestError([Problem("size", f"{short_repr(text)} is not WIDTHxHEIGHT or 'auto'", text)])
    return int(found[1]), int(found[2])
