"""Loads and caches engines, separate VAEs and ControlNets for nodes.

A host creates one `NodeModels` and provides it as `Context.models`. A server that caches engines itself
passes its own function to get one; `KeptEngines` is the default. Values on links name their model, so a
released part is loaded again. Only this file and impl/ import torch; modules that declare nodes do not.
"""

from __future__ import annotations

import gc
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from calotype.core.errors import ModelFileError
from calotype.engine.device import choose_device, is_out_of_memory
from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.engine.vae import RawVae
from calotype.models import catalogue
from calotype.models.controlnet import read_control_net
from calotype.models.vae_override import read_vae
from calotype.spec.constants import DEFAULT_PRESET
from calotype.spec.generate_request import LoraUse
from calotype.workflow.nodes.inputs import stamp
from calotype.workflow.nodes.value_types import ClipValue, ControlNetValue, LoraStack, ModelValue, VaeValue

Kept = TypeVar("Kept")

GetEngine = Callable[[str, str | None], Engine]
"""Returns the engine of a model by reference and preset (or the host's preset). Called at every step."""

Loading = Callable[[], AbstractContextManager[object]]
"""A context manager that the host enters while something loads."""

MAX_ENGINES = 4
MAX_PARTS = 8


class KeptEngines:
    """Engines by reference and preset; evicts the least recently used if they are too many or too large."""

    def __init__(
        self,
        *,
        device: str | None = None,
        precision: str | None = None,
        preset: str | None = None,
        models_folder: Path | None = None,
        most: int = MAX_ENGINES,
        loading: Loading = nullcontext,
    ) -> None:
        self._load_options: Any = {"device": device, "precision": precision, "models_folder": models_folder}
        self._preset, self._most, self._loading = preset, most, loading
        self._kept: OrderedDict[Hashable, Engine] = OrderedDict()

    def __call__(self, reference: str, preset: str | None = None) -> Engine:
        chosen = preset or self._preset
        # The stamp makes a rewritten file a different key.
        key = (reference, stamp(reference), chosen or DEFAULT_PRESET)
        while True:
            try:
                return kept(self._kept, key, self._most, lambda: self._load(reference, chosen))
            except RuntimeError as error:
                if not self._kept or not is_out_of_memory(error):
                    raise
                # The error's traceback references frames, and with them tensors on the device.
                traceback.clear_frames(error.__traceback__)
                self._kept.popitem(last=False)
                gc.collect()
                torch.cuda.empty_cache()

    def _load(self, reference: str, preset: str | None) -> Engine:
        with self._loading():
            return load(reference, preset=preset, **self._load_options)


class NodeModels:
    """The `Context.models` of nodes. Use it from one thread at a time, as engines."""

    def __init__(
        self, engines: GetEngine, *, device: str | None = None, loading: Loading = nullcontext
    ) -> None:
        """`device` is the device of parts that belong to no engine."""
        self._engines, self._device, self._loading = engines, device, loading
        self._in_use: WeakKeyDictionary[Engine, tuple[LoraStack, LoraStack]] = WeakKeyDictionary()
        self._parts: OrderedDict[Hashable, Any] = OrderedDict()

    def for_unet(self, model: ModelValue) -> Engine:
        """The model's engine with its LoRAs merged into the UNet."""
        engine = self._engines(model.reference, model.preset)
        self._use(engine, unet=model.loras)
        return engine

    def for_text(self, clip: ClipValue) -> Engine:
        """The engine of the text encoders' model, with their LoRAs merged."""
        engine = self._engines(clip.reference, None)
        self._use(engine, text=clip.loras)
        return engine

    def autoencoder(self, vae: VaeValue) -> tuple[RawVae, Any]:
        """The VAE and its device."""
        if not vae.alone:
            engine = self._engines(vae.reference, None)
            return engine.vae(), engine.model.device
        module = self.part(vae.reference, partial(_read_vae, Path(vae.reference), self._device))
        return RawVae(module), next(module.parameters()).device

    def control_net(self, value: ControlNetValue, engine: Engine) -> nn.Module:
        """The ControlNet for an engine's model."""
        model = engine.model
        read = partial(read_control_net, Path(value.path), model.unet, model.dtype, model.device)
        return self.part(value.path, read, of=(model.architecture.name, model.dtype, model.device))

    def part(self, path: str, read: Callable[[], Kept], of: Hashable = None) -> Kept:
        """The result of `read` for a file, cached until the file changes."""

        def loaded() -> Kept:
            with self._loading():
                return read()

        return kept(self._parts, (path, stamp(path), of), MAX_PARTS, loaded)

    def _use(self, engine: Engine, *, unet: LoraStack | None = None, text: LoraStack | None = None) -> None:
        """Set the LoRAs of one half, keep the other's: merging into a large UNet takes a while."""
        # Removed first, so that LoRAs that fail to merge are not tried again with the next call.
        current = self._in_use.pop(engine, ((), ()))
        wanted = (current[0] if unet is None else unet, current[1] if text is None else text)
        engine.use_loras(
            [
                *(LoraUse(name=name, strength=strength, text_strength=0.0) for name, strength in wanted[0]),
                *(LoraUse(name=name, strength=0.0, text_strength=strength) for name, strength in wanted[1]),
            ]
        )
        self._in_use[engine] = wanted


def kept(place: OrderedDict[Hashable, Kept], key: Hashable, most: int, make: Callable[[], Kept]) -> Kept:
    """The entry in the cache `place`, created if missing; evicts the least recently used beyond `most`."""
    if key not in place:
        while len(place) >= most:
            place.popitem(last=False)
        place[key] = make()
    place.move_to_end(key)
    return place[key]


def _read_vae(path: Path, device: str | None) -> nn.Module:
    """Read a VAE whose architecture is in the catalogue or in its folder."""
    problem: ModelFileError | None = None
    for name in catalogue.names():
        try:
            # In fp32: SDXL's overflows in fp16, and the file does not state its family.
            return read_vae(path, catalogue.architecture(name), torch.float32, choose_device(device))
        except ModelFileError as error:
            problem = problem or error
    assert problem is not None
    raise problem
