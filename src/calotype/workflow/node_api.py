"""What a node declares and what a host offers to it: all that a package of nodes needs to know.

A node is a value (`NodeDef`) with a plain function to run. The host owns the loop: a node with long work
is a generator that yields a `Step` between two bits of it. Closing it cancels, and a server does other
work in between, just as with samplers. Knows nothing of graphs, files or torch.

Values on links have no type here. By convention they are laid out as in ComfyUI, so that arithmetic written
for it carries over: IMAGE is a float tensor (batch, height, width, 3) from 0 to 1, MASK (batch, height,
width), LATENT a dict with "samples" (batch, channels, height / 8, width / 8).
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
"""Links to everything: for nodes that only pass a value on."""

WIDGETS = (STRING, INT, FLOAT, BOOLEAN, COMBO)
"""Types whose value may be written into the graph. All others come by a link."""

MAX_SEED = 2**64 - 1

Kind = Literal["output", "temp"]
"""Pictures to keep, and previews."""

InputValues = Mapping[str, Any]


class Catalogue(Protocol):
    """Names to choose from. A server has one without torch, so it lists and finds but never opens."""

    def files(self, folder: str) -> Sequence[str]:
        """Names of the models in `checkpoints`, `loras`, `vae`, `controlnet`, `embeddings`, `upscale_models`.

        An unknown folder is an empty one.
        """

    def find(self, folder: str, name: str) -> str | Path:
        """What `files` lists as `name`: a path, or a reference that `models.reference` understands."""

    def pictures(self) -> Sequence[str]:
        """Names that `Context.read_input` reads."""

    def samplers(self) -> Sequence[str]:
        """Names of samplers, as the contract writes them."""

    def schedulers(self) -> Sequence[str]:
        """Names of noise schedules."""

    def presets(self) -> Sequence[str]:
        """Names of the engine's presets."""


class SavedPicture(TypedDict):
    """Where a picture went, in the words that clients ask for it with."""

    filename: str
    subfolder: str
    type: str


class Context(Protocol):
    """What a host offers to a running node."""

    @property
    def models(self) -> Any:
        """Loads engines and keeps them (`workflow.nodes.models`); opaque to everything but nodes."""

    @property
    def catalogue(self) -> Catalogue:
        """Names to choose from."""

    @property
    def prompt(self) -> Mapping[str, Any]:
        """The graph that is running, in API format."""

    @property
    def extra_pnginfo(self) -> Mapping[str, Any]:
        """What else belongs into a saved picture, the editor's `workflow` above all."""

    def read_input(self, name: str) -> bytes:
        """The bytes of an input file; NotFoundError names the nearest."""

    def save(self, picture: Image, prefix: str, kind: Kind = "output") -> SavedPicture:
        """Write one picture as PNG; name, place, `prompt` and `workflow` inside it are the host's."""


@dataclass(frozen=True)
class OutputSize:
    """How much an IMAGE, MASK or LATENT holds: so many pictures of one size, in pixels."""

    count: int = 1
    width: int = 0
    height: int = 0
    """0 if nobody knows."""


Choices = Sequence[str] | Callable[[Catalogue], Sequence[str]]


@dataclass(frozen=True)
class Input:
    """One named input of a node."""

    name: str
    type: str
    default: Any = None
    """None means that a value or a link has to be given, unless the input is optional."""
    choices: Choices | None = None
    """For COMBO: the names, or what lists them when it is asked."""
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    """A hint for editors; like ComfyUI, values between steps are accepted."""
    multiline: bool = False
    optional: bool = False
    """The node runs without it; `run` is then not given this name."""
    lazy: bool = False
    """Only made when the node's `needs` names it. `run` gets None for what was not made."""
    help: str = ""
    control_after_generate: bool = False
    """Editors draw a new number after each run; their files hold one more value for it."""
    upload: bool = False
    """Editors offer to send a picture."""

    def choose_from(self, catalogue: Catalogue) -> Sequence[str]:
        """The names a COMBO allows now."""
        choices = self.choices
        return () if choices is None else choices(catalogue) if callable(choices) else choices

    @property
    def is_widget(self) -> bool:
        """Whether a value can be written into the graph, not only linked."""
        return self.type in WIDGETS


@dataclass(frozen=True)
class Output:
    """One output of a node, in the order `run` returns them."""

    type: str
    name: str = ""
    """As editors show it; the type if nothing is said."""
    help: str = ""
    is_sheet: bool = False
    """Many pictures on one, which may be as large as all of them."""


@dataclass(frozen=True)
class Step:
    """Where a running node is. `preview` is a whole JPEG or PNG file."""

    value: int
    maximum: int
    preview: bytes | None = None


@dataclass(frozen=True)
class Result:
    """Outputs of a node that also has something to show, such as {"images": [SavedPicture, ...]}."""

    outputs: tuple[Any, ...] = ()
    ui: Mapping[str, Sequence[Any]] = field(default_factory=dict)


Returned = tuple[Any, ...] | Result
Run = Callable[..., Returned | Generator[Step, None, Returned]]
"""Called as `run(context, **inputs)`, and for a node with lazy inputs only when they have been made."""


@dataclass(frozen=True)
class NodeDef:
    """A kind of node. A mistake in the declaration is a ValueError where it is made."""

    name: str
    """What graphs call it: `class_type`."""
    run: Run
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    title: str = ""
    """As editors show it; the name if nothing is said."""
    category: str = "calotype"
    """A path with slashes, for the editor's menu."""
    help: str = ""
    is_output: bool = False
    """A graph runs for the sake of these nodes."""
    needs: Callable[[InputValues], Collection[str]] | None = None
    """Which lazy inputs are needed, from the values so far; asked again until it names nothing new."""
    changes: Callable[[Context, InputValues], Hashable] | None = None
    """What else the outputs depend on, such as a file's digest; gets the values written in the graph."""
    check: Callable[[Catalogue, InputValues], str | None] | None = None
    """A problem with the values written in the graph, found before anything runs."""
    makes: Callable[[InputValues], Sequence[OutputSize | None]] | None = None
    """How much each output will hold, asked before it runs; gets extents for pictures, masks and latents.

    For nodes that may make more or larger ones than they are given: a server then refuses what is too much
    before memory is taken, and not only afterwards.
    """
    module: str = "calotype"
    """The package that it comes from; the registry fills it in."""

    def __post_init__(self) -> None:
        _check_words(self)
        if not callable(self.run):
            raise ValueError(f"{self.name}: run is {self.run!r}, it must be callable")
        for declared in self.inputs:
            _check_input(self, declared)
        names = [declared.name for declared in self.inputs]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"{self.name}: inputs declared twice: {', '.join(twice)}")
        if self.needs is None and any(declared.lazy for declared in self.inputs):
            raise ValueError(f"{self.name}: has lazy inputs but no `needs` to say when they are wanted")
        if not self.outputs and not self.is_output:
            raise ValueError(f"{self.name}: has no outputs and is no output, so it would never run")

    def input(self, name: str) -> Input | None:
        """The input of that name, if there is one."""
        return next((declared for declared in self.inputs if declared.name == name), None)


def _check_words(node: NodeDef) -> None:
    """Packages are often written without types, and what they declare ends in JSON."""
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
        raise ValueError(f"{node.name}: {wrong[0]!r} stands where text belongs")


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
