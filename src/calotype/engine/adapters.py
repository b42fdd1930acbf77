"""What a request may name from the model folder: LoRAs, learned words, separate VAEs.

Files are opened once and kept a while. Names are resolved only inside the folder. Knows nothing of sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from calotype.core.paths import resolve_inside
from calotype.engine.prompt_parser import parse_prompt
from calotype.models.lora import Adapter, LoraMerger, adapter_sha256, read_adapter
from calotype.models.model import Model
from calotype.models.resolve import file_sha256
from calotype.models.textual_inversion import read_embedding
from calotype.models.vae_override import read_vae, vae_sha256
from calotype.spec.generate_request import GenerateRequest, LoraUse

REMEMBERED = 16

Written = tuple[str, Path, tuple[int, ...]]
"""A file or folder of some kind as it was written at some time: one that was written anew is another."""


class AdapterResolver:
    """The model folder as one model sees it."""

    def __init__(self, model: Model, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._opened: dict[Written, Any] = {}
        self._stack = LoraMerger(model.parts())
        self._active: tuple[LoraUse, ...] | None = ()
        self._active_files: list[Written] = []
        self._words: dict[str, Written] = {}
        self._own_vae: nn.Module = model.vae
        self.rewritten = 0
        """How often files in use were found to have been written anew."""

    def use_loras(self, loras: Sequence[LoraUse]) -> bool:
        """Make exactly these LoRAs active; True if that changed the model."""
        wanted = tuple(loras)
        if wanted == self._active:
            return False
        uses = []
        files = [_written("loras", self._path("loras", use.name, "loras")) for use in wanted]
        for use, file in zip(wanted, files, strict=True):
            text_strength = use.strength if use.text_strength is None else use.text_strength
            uses.append((self._adapter(file), use.strength, text_strength))
        # Nothing counts as active until it has worked: a failure half-way must not pass for success later.
        self._active = None
        self._stack.use(uses)
        self._active, self._active_files = wanted, files
        return True

    def refresh(self) -> list[str]:
        """Notice files that were written anew since they were read: LoRAs, which are then put in anew, and
        learned words, which are returned."""
        rewritten = any(map(_changed, self._active_files))
        if rewritten:
            self._active = None
        words = [word for word, file in self._words.items() if _changed(file)]
        for word in words:
            del self._words[word]
        self.rewritten += rewritten or bool(words)
        return words

    def use_vae(self, name: str | None) -> None:
        """Put a separate VAE in, or the model's own back."""
        self._model.vae = self._own_vae if name is None else self._vae(name)

    def embedding(self, name: str) -> list[Tensor]:
        """The vectors of a learned word."""
        path = self._path("embeddings", name, "prompt")
        self._words[name] = _written("embeddings", path)
        return read_embedding(path, self._model.architecture)

    def digests(self, request: GenerateRequest) -> dict[str, str]:
        """sha256 of every file of the folder that a request uses, by its name there.

        Where that is a folder, it is one over its weights and its settings.
        """
        prompts = (request.prompt, request.negative_prompt or "")
        words = [piece.text for prompt in prompts for piece in parse_prompt(prompt) if piece.is_embedding]
        named = [("loras", use.name) for use in request.loras] + [("embeddings", word) for word in words]
        if request.vae is not None:
            named.append(("vae", request.vae))
        return {f"{kind}/{name}": _SHA256[kind](self._path(kind, name, kind)) for kind, name in named}

    def _path(self, kind: str, name: str, field: str) -> Path:
        return resolve_inside(self._folder / kind, name, field=field)

    def _adapter(self, file: Written) -> Adapter:
        return self._remember(file, partial(read_adapter, file[1], self._model.architecture))

    def _vae(self, name: str) -> nn.Module:
        path, model = self._path("vae", name, "vae"), self._model
        read = partial(read_vae, path, model.architecture, model.dtype, model.device, outlined=model.outlined)
        return self._remember(_written("vae", path), read)

    def _remember(self, file: Written, read: Callable[[], Any]) -> Any:
        if file not in self._opened:
            while len(self._opened) >= REMEMBERED:
                self._opened.pop(next(iter(self._opened)))
            self._opened[file] = read()
        return self._opened[file]


def _written(kind: str, path: Path) -> Written:
    # A folder's own time does not tell of files in it that were written over.
    inside = (place for place in sorted(path.rglob("*")) if place.exists())
    times = (place.stat().st_mtime_ns for place in (path, *inside))
    return kind, path, tuple(times)


def _changed(file: Written) -> bool:
    kind, path, _ = file
    try:
        return _written(kind, path) != file
    except OSError:
        return True


_SHA256 = {"loras": adapter_sha256, "embeddings": file_sha256, "vae": vae_sha256}
