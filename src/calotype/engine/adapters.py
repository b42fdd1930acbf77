"""Resolves what a request names from the model folder: LoRAs, textual-inversion embeddings, separate VAEs.

Opened files are cached. Names are resolved only inside the folder.
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

CACHE_SIZE = 16

FileVersion = tuple[str, Path, tuple[int, ...]]
"""Kind, path and modification times of a file or folder: a rewritten file is a different one."""


class AdapterResolver:
    """Resolves names in the model folder for one model."""

    def __init__(self, model: Model, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._cache: dict[FileVersion, Any] = {}
        self._merger = LoraMerger(model.parts())
        self._active: tuple[LoraUse, ...] | None = ()
        self._active_files: list[FileVersion] = []
        self._words: dict[str, FileVersion] = {}
        self._model_vae: nn.Module = model.vae
        self.rewritten = 0
        """Number of times that files in use were found changed."""

    def use_loras(self, loras: Sequence[LoraUse]) -> bool:
        """Make exactly these LoRAs active; True if that changed the model."""
        requested = tuple(loras)
        if requested == self._active:
            return False
        uses = []
        files = [_file_version("loras", self._path("loras", use.name, "loras")) for use in requested]
        for use, file in zip(requested, files, strict=True):
            text_strength = use.strength if use.text_strength is None else use.text_strength
            uses.append((self._adapter(file), use.strength, text_strength))
        # Nothing counts as active until it succeeded: a partial failure must not look like success later.
        self._active = None
        self._merger.use(uses)
        self._active, self._active_files = requested, files
        return True

    def refresh(self) -> list[str]:
        """Detect files that changed since they were read: LoRAs, to be applied again, and embeddings,
        whose words are returned."""
        loras_changed = any(map(_changed, self._active_files))
        if loras_changed:
            self._active = None
        words = [word for word, file in self._words.items() if _changed(file)]
        for word in words:
            del self._words[word]
        self.rewritten += loras_changed or bool(words)
        return words

    def use_vae(self, name: str | None) -> None:
        """Install a separate VAE, or restore the model's own."""
        self._model.vae = self._model_vae if name is None else self._vae(name)

    def embedding(self, name: str) -> list[Tensor]:
        """The vectors of an embedding."""
        path = self._path("embeddings", name, "prompt")
        self._words[name] = _file_version("embeddings", path)
        return read_embedding(path, self._model.architecture)

    def digests(self, request: GenerateRequest) -> dict[str, str]:
        """sha256 of every file of the folder that a request uses, by its name there.

        A folder's hash covers its weights and its settings.
        """
        prompts = (request.prompt, request.negative_prompt or "")
        words = [piece.text for prompt in prompts for piece in parse_prompt(prompt) if piece.is_embedding]
        named = [("loras", use.name) for use in request.loras] + [("embeddings", word) for word in words]
        if request.vae is not None:
            named.append(("vae", request.vae))
        return {f"{kind}/{name}": _SHA256[kind](self._path(kind, name, kind)) for kind, name in named}

    def _path(self, kind: str, name: str, field: str) -> Path:
        return resolve_inside(self._folder / kind, name, field=field)

    def _adapter(self, file: FileVersion) -> Adapter:
        return self._load_cached(file, partial(read_adapter, file[1], self._model.architecture))

    def _vae(self, name: str) -> nn.Module:
        path, model = self._path("vae", name, "vae"), self._model
        read = partial(read_vae, path, model.architecture, model.dtype, model.device, outlined=model.outlined)
        return self._load_cached(_file_version("vae", path), read)

    def _load_cached(self, file: FileVersion, read: Callable[[], Any]) -> Any:
        if file not in self._cache:
            while len(self._cache) >= CACHE_SIZE:
                self._cache.pop(next(iter(self._cache)))
            self._cache[file] = read()
        return self._cache[file]


def _file_version(kind: str, path: Path) -> FileVersion:
    # A folder's own modification time does not cover files in it that were overwritten.
    inside = (each for each in sorted(path.rglob("*")) if each.exists())
    times = (each.stat().st_mtime_ns for each in (path, *inside))
    return kind, path, tuple(times)


def _changed(file: FileVersion) -> bool:
    kind, path, _ = file
    try:
        return _file_version(kind, path) != file
    except OSError:
        return True


_SHA256 = {"loras": adapter_sha256, "embeddings": file_sha256, "vae": vae_sha256}
