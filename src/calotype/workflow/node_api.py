"""The node API: what a node declares and what a host offers to it.

A node is a value (`NodeDef`) with a function to run. The host owns the loop: a node with long work is a
generator that yields a `Step` between two units of work. Closing it cancels it, and a server does other work
in between, just as with samplers.

Values on links are untyped. By convention they have ComfyUI's layout, so that code written for it works here:
IMAGE is a float tensor (batch, height, width, 3) from 0 to 1, MASK (batch, height, width), LATENT a dict with
"samples" (batch, channels, height / 8, width / 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    from PIL.Image import Image

MODEL = "MODEL"
CLIP = "CLIP"
VAE = "VAE"
CONDITIONING = "CONDITIONING"
LATENT = "LATENT"
IMAGE = "IMAGE"
MASK = "MASK"
CONTROL_NET = "CONTROL_NET"
STRING = "STRING"
INT = "INT"
FLOAT = "FLOAT"
BOOLEAN = "BOOLEAN"
COMBO = "COMBO"
ANY = "*"
"""Links to every type: for nodes that only forward a value."""

WIDGETS = (STRING, INT, FLOAT, BOOLEAN, COMBO)
"""Types whose value may be in the graph. All others need a link."""

MAX_SEED = 2**64 - 1

Kind = Literal["output", "temp"]
"""Saved images and previews."""

InputValues = Mapping[str, Any]


class Catalogue(Protocol):
    """The available names. It lists files but never opens them, because a server uses it without torch."""

    def files(self, folder: str) -> Sequence[str]:
        """Names of the models in `checkpoints`, `loras`, `vae`, `controlnet`, `embeddings`, `upscale_models`.

        An unknown folder is empty.
        """

    def find(self, folder: str, name: str) -> str | Path:
        """The path of `name` from `files`, or a reference that `models.resolve` accepts."""

    def pictures(self) -> Sequence[str]:
        """Names of images that `Context.read_input` can read."""

    def samplers(self) -> Sequence[str]:
        """Names of samplers in the API."""

    def schedulers(self) -> Sequence[str]:
        """Names of noise schedules."""

    def presets(self) -> Sequence[str]:
        """Names of the engine's presets."""


class SavedPicture(TypedDict):
    """The location of a saved image, with the names that clients use to fetch it."""

    filename: str
    subfolder: str
    type: str


class Context(Protocol):
    """The services of a host for a running node."""

    @property
    def models(self) -> Any:
        """Loads and caches engines (`workflow.nodes.model_provider`); opaque to everything except nodes."""

    @property
    def catalogue(self) -> Catalogue:
        """The available names."""

    @property
    def prompt(self) -> Mapping[str, Any]:
        """The running graph in API format."""

    @property
    def extra_pnginfo(self) -> Mapping[str, Any]:
        """Additional metadata for saved images, mainly the editor's `workflow`."""

    def read_input(self, name: str) -> bytes:
        """Read an input file; NotFoundError suggests the closest names."""

    def save(self, picture: Image, prefix: str, kind: Kind = "output") -> SavedPicture:
        """Save one image as PNG; the host chooses name and folder and embeds `prompt` and `workflow`."""


@dataclass(frozen=True)
class OutputSize:
    """The size of an IMAGE, MASK or LATENT: the number of images and their size in pixels."""

    count: int = 1
    width: int = 0
    height: int = 0
    """0 if unknown."""


Choices = Sequence[str] | Callable[[Catalogue], Sequence[str]]


@dataclass(frozen=True)
class Input:
    """One named input of a node."""

    name: str
    type: str
    default: Any = None
    """None requires a value or a link, unless the input is optional."""
    choices: Choices | None = None
    """For COMBO: the names, or a function that lists them."""
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    """A hint for editors; like ComfyUI, values between steps are accepted."""
    multiline: bool = False
    optional: bool = False
    """The node runs without it; `run` then does not get this argument."""
    lazy: bool = False
    """Evaluated only if the node's `needs` names it; else `run` gets None."""
    help: str = ""
    control_after_generate: bool = False
    """Editors randomize the number after each run; their files hold one more value for it."""
    upload: bool = False
    """Editors offer to upload an image."""

    def choose_from(self, catalogue: Catalogue) -> Sequence[str]:
        """The current choices of a COMBO."""
        choices = self.choices
        return () if choices is None else choices(catalogue) if callable(choices) else choices

    @property
    def is_widget(self) -> bool:
        """Whether the graph can hold a value instead of a link."""
        return self.type in WIDGETS


@dataclass(frozen=True)
class Output:
    """One output of a node, in the order `run` returns them."""

    type: str
    name: str = ""
    """The name that editors show; the type by default."""
    help: str = ""
    is_sheet: bool = False
    """A contact sheet of many images, which may be as large as all of them."""


@dataclass(frozen=True)
class Step:
    """The progress of a running node. `preview` is a complete JPEG or PNG file."""

    value: int
    maximum: int
    preview: bytes | None = None


@dataclass(frozen=True)
class Result:
    """Outputs of a node with results for the user interface, such as {"images": [SavedPicture, ...]}."""

    outputs: tuple[Any, ...] = ()
    ui: Mapping[str, Sequence[Any]] = field(default_factory=dict)


Returned = tuple[Any, ...] | Result
Run = Callable[..., Returned | Generator[Step, None, Returned]]
"""Called as `run(context, **inputs)`; lazy inputs that the node needs are evaluated before."""


@dataclass(frozen=True)
class NodeDef:
    """A node type. An error in the declaration raises ValueError on construction."""

    name: str
    """The `class_type` in graphs."""
    run: Run
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    title: str = ""
    """The title that editors show; the name by default."""
    category: str = "calotype"
    """A path with slashes, for the editor's menu."""
    help: str = ""
    is_output: bool = False
    """A graph runs to execute these nodes."""
    needs: Callable[[InputValues], Collection[str]] | None = None
    """Names the lazy inputs needed, given the values so far; called until it names no new one."""
    changes: Callable[[Context, InputValues], Hashable] | None = None
    """What else the outputs depend on, such as a file's digest; gets the values in the graph."""
    check: Callable[[Catalogue, InputValues], str | None] | None = None
    """Validates the values in the graph before anything runs; returns a problem or None."""
    makes: Callable[[InputValues], Sequence[OutputSize | None]] | None = None
    """The expected size of each output, computed before the node runs; gets sizes for images, masks, latents.

    For nodes that may create more or larger outputs than their inputs: a server then rejects excessive sizes
    before memory is allocated, not only afterwards.
    """
    module: str = "calotype"
    """The package of the node; the registry sets it."""

    def __post_init__(self) -> None:
        _check_types(self)
        if not callable(self.run):
            raise ValueError(f"{self.name}: run is {self.run!r}, it must be callable")
        for declared in self.inputs:
            _check_input(self, declared)
        names = [declared.name for declared in self.inputs]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"{self.name}: inputs declared twice: {', '.join(twice)}")
        if self.needs is None and any(declared.lazy for declared in self.inputs):
            raise ValueError(f"{self.name}: has lazy inputs but no `needs` function")
        if not self.outputs and not self.is_output:
            raise ValueError(f"{self.name}: has no outputs and is not an output node, so it would never run")

    def input(self, name: str) -> Input | None:
        """The input of this name, or None."""
        return next((declared for declared in self.inputs if declared.name == name), None)


def _check_types(node: NodeDef) -> None:
    """Check types at run time: packages are often untyped, and declarations end up in JSON."""
    if not isinstance(node.name, str) or not node.name:
        raise ValueError(f"a node needs a name, not {node.name!r}")
    for kind, parts in ((Input, node.inputs), (Output, node.outputs)):
        if not isinstance(parts, tuple) or not all(isinstance(part, kind) for part in parts):
            raise ValueError(
                f"{node.name}: {kind.__name__.lower()}s are a tuple of {kind.__name__}, not {parts!r}"
            )
    words = [
        node.title,
        node.category,
        node.help,
        *(word for one in node.outputs for word in (one.type, one.name)),
    ]
    wrong = [word for word in words if not isinstance(word, str)]
    if wrong:
        raise ValueError(f"{node.name}: {wrong[0]!r} is not text")


def _check_input(node: NodeDef, declared: Input) -> None:
    where = f"{node.name}.{declared.name}"
    words = (declared.name, declared.type, declared.help)
    if not all(isinstance(word, str) for word in words) or not declared.name or not declared.type:
        raise ValueError(f"{node.name}: an input needs a name and a type, not {declared!r}")
    numbers = [declared.minimum, declared.maximum, declared.step]
    if not all(number is None or _is_finite(number) for number in numbers):
        raise ValueError(f"{where}: limits and steps are finite numbers, not {numbers}")
    default = declared.default
    if not (default is None or isinstance(default, str | bool) or _is_finite(default)):
        raise ValueError(f"{where}: default {default!r} cannot be written into a graph")
    if (declared.type == COMBO) != (declared.choices is not None):
        raise ValueError(f"{where}: COMBO and choices go together, type is {declared.type}")
    if declared.type not in (INT, FLOAT) and (declared.minimum, declared.maximum) != (None, None):
        raise ValueError(f"{where}: only INT and FLOAT have limits, type is {declared.type}")
    if isinstance(declared.default, int | float) and not (
        (declared.minimum is None or declared.default >= declared.minimum)
        and (declared.maximum is None or declared.default <= declared.maximum)
    ):
        limits = f"{declared.minimum} to {declared.maximum}"
        raise ValueError(f"{where}: default {declared.default} is outside {limits}")


def _is_finite(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
