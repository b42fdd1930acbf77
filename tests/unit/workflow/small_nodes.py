"""Nodes that do next to nothing, in the shape of the usual graph, and a host that writes nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from PIL import Image

from calotype.workflow.cache import Cache
from calotype.workflow.executor import Event, Executor
from calotype.workflow.node_api import (
    ANY,
    BOOLEAN,
    CLIP,
    COMBO,
    CONDITIONING,
    FLOAT,
    INT,
    LATENT,
    MODEL,
    STRING,
    Catalogue,
    Context,
    Input,
    Kind,
    NodeDef,
    Output,
    Result,
    SavedPicture,
    Step,
)
from calotype.workflow.registry import Registry
from calotype.workflow.validation import validate

Prompt = dict[str, Any]
E = TypeVar("E", bound=Event)
PREVIEW = b"\xff\xd8 a picture"


class Names:
    """A catalogue that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.checkpoints: list[str] = ["emoji", "sd15/dream.safetensors", "sdxl_base.safetensors"]

    def files(self, folder: str) -> Sequence[str]:
        self.asked[folder] += 1
        return self.checkpoints if folder == "checkpoints" else []

    def find(self, folder: str, name: str) -> str:
        return f"{folder}/{name}"

    def pictures(self) -> Sequence[str]:
        self.asked["pictures"] += 1
        return ["cat.png", "masks/cat.png"]

    def samplers(self) -> Sequence[str]:
        self.asked["samplers"] += 1
        return ["euler", "heun"]

    def schedulers(self) -> Sequence[str]:
        return ["normal", "karras"]

    def presets(self) -> Sequence[str]:
        return ["baseline"]


class Host:
    """A context whose files are a dictionary."""

    def __init__(self) -> None:
        self.models = None
        self.catalogue: Catalogue = Names()
        self.prompt: Mapping[str, Any] = {}
        self.extra_pnginfo: Mapping[str, Any] = {}
        self.inputs = {"cat.png": b"a cat"}

    def read_input(self, name: str) -> bytes:
        return self.inputs[name]

    def save(self, picture: Image.Image, prefix: str, kind: Kind = "output") -> SavedPicture:
        return {"filename": f"{prefix}_{picture.width}.png", "subfolder": "", "type": kind}


def _sample(
    context: Context,
    *,
    model: str,
    positive: str,
    seed: int,
    steps: int,
    latent: str | None = None,
    **rest: Any,
) -> Generator[Step, None, tuple[str]]:
    for number in range(steps):
        yield Step(number + 1, steps, PREVIEW if number == 0 else None)
    start = f" from {latent}" if latent else ""
    return (f"{seed}:{positive} by {model}{start}",)


def _save(context: Context, *, latent: str, prefix: str) -> Result:
    saved = context.save(Image.new("L", (len(latent), 1)), prefix)
    return Result(ui={"images": [saved], "text": [latent]})


def _switch_needs(inputs: Mapping[str, Any]) -> Collection[str]:
    return ["yes"] if inputs["which"] else ["no"]


def _fail(context: Context, *, latent: str) -> tuple[str]:
    raise RuntimeError(f"cannot do {latent}")


def _exit(context: Context, *, latent: str) -> tuple[str]:
    sys.exit(latent)


LATENTS = (Output(LATENT),)
NODES = (
    NodeDef(
        "Loader",
        lambda _, *, name: (f"{name}", f"clip of {name}"),
        (Input("name", COMBO, choices=lambda names: names.files("checkpoints")),),
        (Output(MODEL), Output(CLIP)),
        category="loaders",
    ),
    NodeDef(
        "Text",
        lambda _, *, text, **__: (text,),
        (Input("text", STRING, multiline=True, help="What to show."), Input("clip", CLIP)),
        (Output(CONDITIONING, "positive"),),
    ),
    NodeDef(
        "Sampler",
        _sample,
        (
            Input("model", MODEL),
            Input("positive", CONDITIONING),
            Input("seed", INT, 0, minimum=0, maximum=2**64 - 1, control_after_generate=True),
            Input("steps", INT, 2, minimum=1, maximum=100),
            Input("cfg", FLOAT, 8.0, minimum=0.0, maximum=100.0, step=0.1),
            Input("sampler", COMBO, "euler", choices=lambda names: names.samplers()),
            Input("latent", LATENT, optional=True),
        ),
        LATENTS,
        title="Small sampler",
        category="sampling",
        help="Draws.",
    ),
    NodeDef(
        "Save",
        _save,
        (Input("latent", LATENT), Input("prefix", STRING, "made")),
        is_output=True,
    ),
    NodeDef(
        "Picture",
        lambda context, *, image: (context.read_input(image).decode(),),
        (Input("image", COMBO, choices=lambda names: names.pictures(), upload=True),),
        LATENTS,
        changes=lambda context, inputs: context.read_input(inputs["image"]),
        check=lambda _, inputs: "is a mask" if inputs["image"].startswith("masks/") else None,
    ),
    NodeDef(
        "Switch",
        lambda _, *, which, yes=None, no=None: (f"{yes or no}, {which}",),
        (
            Input("which", BOOLEAN, True),
            Input("yes", ANY, lazy=True),
            Input("no", ANY, lazy=True, optional=True),
        ),
        LATENTS,
        needs=_switch_needs,
    ),
    NodeDef(
        "Number",
        lambda _, *, value: (value, str(value)),
        (Input("value", INT, 7),),
        (Output(INT), Output(STRING)),
    ),
    NodeDef("Fail", _fail, (Input("latent", LATENT),), LATENTS),
    NodeDef("Exit", _exit, (Input("latent", LATENT),), LATENTS),
)
REGISTRY = Registry(NODES)


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def usual(seed: int = 5) -> Prompt:
    """The graph that everyone starts with."""
    return {
        "4": node("Loader", name="emoji"),
        "6": node("Text", text="a cat", clip=["4", 1]),
        "3": node("Sampler", model=["4", 0], positive=["6", 0], seed=seed, steps=2, cfg=8, sampler="euler"),
        "9": node("Save", latent=["3", 0], prefix="cat"),
    }


def execution(
    prompt: Prompt,
    *,
    cache: Cache | None = None,
    host: Host | None = None,
    registry: Registry = REGISTRY,
    only: Collection[str] | None = None,
) -> Executor:
    """A sound graph about to run."""
    host = host or Host()
    seen = validate(prompt, registry, host.catalogue, only)
    assert seen.sound, seen.lines()
    return Executor(seen.graph, registry, cache if cache is not None else Cache(), host, outputs=seen.outputs)


def run(prompt: Prompt, **how: Any) -> list[Event]:
    return list(execution(prompt, **how))


def of(kind: type[E], events: Iterable[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]
