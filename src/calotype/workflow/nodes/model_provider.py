"""What nodes run: engines, separate autoencoders and ControlNets, loaded when wanted and kept a while.

A host makes one `NodeModels` and offers it as `Context.models`. A server that keeps engines itself passes its
own way to get one; `KeptEngines` is the plain way. A value names what it stands for, so a part that was
released is loaded again. Only this file and impl/ import torch; no module that declares nodes imports it.
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
"""The engine of a model by its reference and preset, or the host's own preset. Asked again at every step."""

Loading = Callable[[], AbstractContextManager[object]]
"""What a host has entered while something loads."""

MAX_ENGINES = 4
MAX_PARTS = 8


class KeptEngines:
    """Engines by reference and preset; the least recently used goes when they are too many or too large."""

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
        self._how: Any = {"device": device, "precision": precision, "models_folder": models_folder}
        self._preset, self._most, self._loading = preset, most, loading
        self._kept: OrderedDict[Hashable, Engine] = OrderedDict()

    def __call__(self, reference: str, preset: str | None = None) -> Engine:
        chosen = preset or self._preset
        # A file that was written anew is another one.
        key = (reference, stamp(reference), chosen or DEFAULT_PRESET)
        while True:
            try:
                return kept(self._kept, key, self._most, lambda: self._load(reference, chosen))
            except RuntimeError as error:
                if not self._kept or not is_out_of_memory(error):
                    raise
                # The error remembers where it happened, and with that all that was in memory there.
                traceback.clear_frames(error.__traceback__)
                self._kept.popitem(last=False)
                gc.collect()
                torch.cuda.empty_cache()

    def _load(self, reference: str, preset: str | None) -> Engine:
        with self._loading():
            return load(reference, preset=preset, **self._how)


class NodeModels:
    """What a host offers to nodes as `Context.models`. For one thread at a time, as engines are."""

    def __init__(
        self, engines: GetEngine, *, device: str | None = None, loading: Loading = nullcontext
    ) -> None:
        """`device` is where what belongs to no engine goes."""
        self._engines, self._device, self._loading = engines, device, loading
        self._in_use: WeakKeyDictionary[Engine, tuple[LoraStack, LoraStack]] = WeakKeyDictionary()
        self._parts: OrderedDict[Hashable, Any] = OrderedDict()

    def for_unet(self, model: ModelValue) -> Engine:
        """The model's engine with its LoRAs in the UNet."""
        engine = self._engines(model.reference, model.preset)
        self._use(engine, unet=model.loras)
        return engine

    def for_text(self, clip: ClipValue) -> Engine:
        """The engine of the model the text encoders belong to, with their LoRAs in them."""
        engine = self._engines(clip.reference, None)
        self._use(engine, text=clip.loras)
        return engine

    def autoencoder(self, vae: VaeValue) -> tuple[RawVae, Any]:
        """The autoencoder, and the device that it is on."""
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
        """What `read` makes of a file, kept as long as the file stays what it is."""

        def loaded() -> Kept:
            with self._loading():
                return read()

        return kept(self._parts, (path, stamp(path), of), MAX_PARTS, loaded)

    def _use(self, engine: Engine, *, unet: LoraStack | None = None, text: LoraStack | None = None) -> None:
        """Change one half and leave the other as it is: merging a large UNet takes a while."""
        # What fails to be put in now must not be tried again with the next that comes.
        now = self._in_use.pop(engine, ((), ()))
        wanted = (now[0] if unet is None else unet, now[1] if text is None else text)
        engine.use_loras(
            [
                *(LoraUse(name=name, strength=strength, text_strength=0.0) for name, strength in wanted[0]),
                *(LoraUse(name=name, strength=0.0, text_strength=strength) for name, strength in wanted[1]),
            ]
        )
        self._in_use[engine] = wanted


def kept(place: OrderedDict[Hashable, Kept], key: Hashable, most: int, make: Callable[[], Kept]) -> Kept:
    """What is in `place`, or is made and put there; the least recently used goes first."""
    if key not in place:
        while len(place) >= most:
            place.popitem(last=False)
        place[key] = make()
    place.move_to_end(key)
    return place[key]


def _read_vae(path: Path, device: str | None) -> nn.Module:
    """A VAE whose architecture is one of the catalogue's, or in its folder."""
    problem: ModelFileError | None = None
    for name in catalogue.names():
        try:
            # In full precision: SDXL's overflows in half, and nothing says whose it is.
            return read_vae(path, catalogue.architecture(name), torch.float32, choose_device(device))
        except ModelFileError as error:
            problem = problem or error
    assert problem is not None
    raise problem
