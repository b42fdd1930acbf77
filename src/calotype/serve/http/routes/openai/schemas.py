"""Models of OpenAI's image requests and responses, and their conversion to a GenerateRequest."""

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
"""Steps for each `quality` if the request has no `steps`; `auto` uses the model's default."""
NAMES = {"count": "n", "width": "size", "height": "size"}
_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})")
_LORA_PART = re.compile(r"loras\[\]\[(.*)\]", re.DOTALL)
"""How OpenAI's client names a property of the objects of a list in a form."""
_KNOBS = ("negative_prompt", "cfg", "sampler", "schedule", "strength", "loras", "clip_skip")


class ImageGeneration(BaseModel):
    """An image request of OpenAI's clients, with options of Calotype (`extra_body`)."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    prompt: str
    """What the image shows."""
    model: str | None = None
    """One of `/v1/models`; default: the deployment's first model."""
    n: Annotated[int, Field(ge=1, le=MAX_IMAGES)] | None = None
    """Number of images."""
    size: str | None = None
    """`WIDTHxHEIGHT` in multiples of 8, or `auto`: the input image's size, or the model's native size."""
    response_format: Literal["b64_json", "url"] | None = None
    """Default `b64_json`. Fetching a `url` needs the API key too."""
    quality: Literal["low", "medium", "standard", "auto", "high", "hd"] | None = None
    """Sets the steps if `steps` is missing: 10, 20 or 40; `auto` uses the model's default."""
    output_format: Literal["png", "jpeg", "webp"] | None = None
    """Default `png`. Images at a `url` are PNG."""
    output_compression: Annotated[int, Field(ge=0, le=100)] | None = None
    """Quality of jpeg and webp; default 95."""
    stream: bool | None = None
    """Respond with server-sent events."""
    partial_images: Annotated[int, Field(ge=0, le=MAX_PARTIAL)] | None = None
    """Number of previews, with `stream`."""
    background: Literal["opaque", "auto"] | None = None
    """Images have no transparency."""
    moderation: Literal["low", "auto"] | None = None
    """Accepted without effect: the server does not moderate."""
    style: Literal["vivid", "natural"] | None = None
    """Accepted without effect: describe the style in the prompt."""
    user: Annotated[str, Field(max_length=512)] | None = None
    """Accepted without effect; the response returns it as `safety_identifier`."""
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    """Accepted without effect; the response returns it."""
    seed: int | None = None
    """Seed of the first image; random by default, the same for the same `Idempotency-Key`."""
    steps: int | None = None
    """Number of sampling steps."""
    negative_prompt: str | None = None
    """What the image should not show."""
    cfg: float | None = None
    """Scale of classifier-free guidance."""
    sampler: str | None = None
    schedule: str | None = None
    clip_skip: int | None = None
    loras: list[dict[str, Any]] | None = None
    """As in `/v1/jobs`: objects with name, strength and text_strength."""

    def request_values(self, idempotency_key: str | None) -> dict[str, Any]:
        """Return the values of a GenerateRequest."""
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
        """Reject options that do not go together; `given` is the size of the input image."""
        if self.response_format == "url" and self.output_format not in (None, "png"):
            rule = f"{self.output_format!r} is not available at a url; use b64_json"
            raise RequestError([Problem("output_format", rule, self.output_format)])
        if self.response_format == "url" and self.stream:
            raise RequestError(
                [Problem("response_format", "a stream carries b64_json; leave response_format out")]
            )
        self._check_sides(given)

    def _check_sides(self, given: tuple[int, int] | None) -> None:
        width, height = _size(self.size)
        sides = (width, height) if width and height else given or (0, 0)
        most = MAX_SIDES.get(self.output_format or "png")
        if most is not None and max(sides) > most:
            size = f"{sides[0]}x{sides[1]}"
            rule = f"{self.output_format!r} has at most {most} pixels a side, and the image has {size}"
            fix = "use png, or a smaller size"
            raise RequestError([Problem("output_format", f"{rule}; {fix}", self.output_format)])


class ImageEdit(ImageGeneration):
    """A request to edit an image; a form with files."""

    # Fields of a form are text.
    model_config = ConfigDict(strict=False)

    strength: float | None = None
    """How far to depart from the input image; default 0.75, or 1 with a mask."""
    input_fidelity: Literal["high", "low"] | None = None
    """Sets the strength if it is missing: `high` 0.5, `low` 0.75."""

    def request_values(self, idempotency_key: str | None) -> dict[str, Any]:
        """Return the values of a GenerateRequest."""
        values = super().request_values(idempotency_key)
        if self.input_fidelity and self.strength is None:
            values["strength"] = {"high": 0.5, "low": 0.75}[self.input_fidelity]
        return values


class ImageEditForm(ImageEdit):
    """The form of a request to edit an image."""

    model_config = ConfigDict(json_schema_extra=without_null)

    image: Annotated[str, Field(json_schema_extra={"format": "binary"})]
    """PNG, WebP or JPEG."""
    mask: Annotated[str, Field(json_schema_extra={"format": "binary"})] | None = None
    """Its fully transparent areas are repainted."""


def form_values(fields: Mapping[str, list[str]], settings: ServeSettings) -> dict[str, Any]:
    """Parse the values of a form; LoRAs are JSON text, or a list of objects as OpenAI's client writes it."""
    values: dict[str, Any] = {}
    parts: dict[str, list[str]] = {}
    for name, texts in fields.items():
        if match := _LORA_PART.fullmatch(name):
            parts[match[1]] = texts
        else:
            values[name] = texts[-1]
    if "loras" in values:
        with rename_error_fields({"body": "loras"}):
            values["loras"] = loads(values["loras"].encode(), settings)
    return {**values, "loras": _zip_loras(parts)} if parts else values


def _zip_loras(parts: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """Build LoRAs from the list of their names, the list of their strengths, and so on."""
    count = len(parts.get("name", ()))
    for part, texts in parts.items():
        if len(texts) != count:
            rule = f"has {count} names but {len(texts)} of {short_repr(part)}"
            raise RequestError(
                [Problem("loras", f"{rule}; give one for each, or send the list as JSON text")]
            )
    return [
        {part: texts[index] if part == "name" else _as_number(texts[index]) for part, texts in parts.items()}
        for index in range(count)
    ]


def _as_number(text: str) -> float | str:
    """Return other text unchanged: validation reports it with all other problems."""
    try:
        return float(text)
    except ValueError:
        return text


class MadeImage(BaseModel):
    """One generated image."""

    b64_json: str | None = None
    url: str | None = None


class ImagesMade(BaseModel):
    """Generated images, as OpenAI's clients read them."""

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
    match = _SIZE.fullmatch(text or "")
    if not match:
        raise RequestError([Problem("size", f"{short_repr(text)} is not WIDTHxHEIGHT or 'auto'", text)])
    return int(match[1]), int(match[2])
