"""A host for workflows in tests: models of a folder, pictures in memory. Knows nothing of any test."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from calotype.core.errors import NotFoundError
from calotype.engine.presets import PRESETS
from calotype.workflow.cache import Cache
from calotype.workflow.executor import Event, Executor, Failed, Finished
from calotype.workflow.file_catalogue import FolderCatalogue
from calotype.workflow.node_api import Kind, Result, SavedPicture
from calotype.workflow.nodes.model_provider import KeptEngines, NodeModels
from calotype.workflow.registry import load_registry
from calotype.workflow.validation import validate

NOWHERE = Path("/nonexistent")


class _Catalogue(FolderCatalogue):
    """With pictures that are in memory."""

    def __init__(self, models: Path, pictures: Mapping[str, bytes]) -> None:
        super().__init__(models, known=("emoji",), presets=tuple(PRESETS))
        self._in_memory = pictures

    def pictures(self) -> list[str]:
        return sorted(self._in_memory)


@dataclass
class Host:
    """`Context` of everything a test runs; engines and results are kept between runs."""

    folder: Path = NOWHERE
    inputs: dict[str, bytes] = field(default_factory=dict)
    preset: str | None = None
    prompt: Mapping[str, Any] = field(default_factory=dict)
    extra_pnginfo: Mapping[str, Any] = field(default_factory=dict)
    cache: Cache = field(default_factory=Cache)
    saved: list[Image.Image] = field(default_factory=list)

    def __post_init__(self) -> None:
        engines = KeptEngines(device="cpu", precision="fp32", preset=self.preset, models_folder=self.folder)
        self.models = NodeModels(engines, device="cpu")
        self.catalogue = _Catalogue(self.folder, self.inputs)
        self.registry = load_registry()

    def read_input(self, name: str) -> bytes:
        if name not in self.inputs:
            raise NotFoundError(f"no picture {name!r}")
        return self.inputs[name]

    def save(self, picture: Image.Image, prefix: str, kind: Kind = "output") -> SavedPicture:
        self.saved.append(picture)
        return {"filename": f"{prefix}_{len(self.saved):05}_.png", "subfolder": "", "type": kind}

    def node(self, name: str, **inputs: Any) -> Any:
        """What a node makes, run by itself with its defaults."""
        declared = self.registry[name].inputs
        defaults = {each.name: each.default for each in declared if each.default is not None}
        made = self.registry[name].run(self, **{**defaults, **inputs})
        if isinstance(made, Generator):
            made = ended(made)
        outputs = made.outputs if isinstance(made, Result) else made
        return outputs[0] if len(outputs) == 1 else outputs

    def events(self, prompt: Mapping[str, Any]) -> list[Event]:
        """All that happens when a graph is run."""
        checked = validate(dict(prompt), self.registry, self.catalogue)
        assert checked.sound, checked.lines()
        return list(Executor(checked.graph, self.registry, self.cache, self, outputs=checked.outputs))

    def run(self, prompt: Mapping[str, Any]) -> tuple[str, ...]:
        """Run a graph to its end; which nodes that took."""
        last = self.events(prompt)[-1]
        if isinstance(last, Failed):
            raise last.error
        assert isinstance(last, Finished)
        return last.executed


def ended(work: Generator[Any, None, Any]) -> Any:
    """What a generator returns."""
    while True:
        try:
            next(work)
        except StopIteration as finished:
            return finished.value


def as_png(image: Image.Image) -> bytes:
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
