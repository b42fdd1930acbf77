"""What a request may name from the model folder: LoRAs, learned words, separate VAEs. Opened once, kept while used.

Names are resolved only inside the folder. Knows nothing of sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from calotype.core.paths import resolve_inside
from calotype.models.embeddings import read_embedding
from calotype.models.lora import Adapter, AdapterStack, read_adapter
from calotype.models.model import Model
from calotype.models.separate_vae import read_vae
from calotype.spec.request import LoraUse

REMEMBERED = 16


class Resources:
    """The model folder as one model sees it."""

    def __init__(self, model: Model, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._opened: dict[tuple[str, Path, int], Any] = {}
        self._stack = AdapterStack(model.parts())
        self._active: tuple[LoraUse, ...] = ()
        self._own_vae: nn.Module = model.vae

    def use_loras(self, loras: Sequence[LoraUse]) -> bool:
        """Make exactly these LoRAs active; True if that changed the model."""
        wanted = tuple(loras)
        if wanted == self._active:
            return False
        uses = []
        for use in wanted:
            adapter = self._adapter(use.name)
            text_strength = use.strength if use.text_strength is None else use.text_strength
            uses.append((adapter, use.strength, text_strength))
        self._stack.use(uses)
        self._active = wanted
        return True

    def use_vae(self, name: str | None) -> None:
        """Put a separate VAE in, or the model's own back."""
        self._model.vae = self._own_vae if name is None else self._vae(name)

    def embedding(self, name: str) -> list[Tensor]:
        """The vectors of a learned word."""
        path = resolve_inside(self._folder / "embeddings", name, field="prompt")
        return read_embedding(path, self._model.architecture)

    def _adapter(self, name: str) -> Adapter:
        path = resolve_inside(self._folder / "loras", name, field="loras")
        return self._remember("lora", path, partial(read_adapter, path, self._model.architecture))

    def _vae(self, name: str) -> nn.Module:
        path = resolve_inside(self._folder / "vae", name, field="vae")
        model = self._model
        return self._remember("vae", path, partial(read_vae, path, model.architecture, model.dtype, model.device))

    def _remember(self, kind: str, path: Path, read: Any) -> Any:
        key = (kind, path, path.stat().st_mtime_ns)
        if key not in self._opened:
            while len(self._opened) >= REMEMBERED:
                self._opened.pop(next(iter(self._opened)))
            self._opened[key] = read()
        return self._opened[key]
