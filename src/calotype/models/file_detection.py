"""Identifies a weight file by the names and shapes of its tensors, never by its file name.

It matches them against the rows in `known_files` and `known_loras`.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from calotype.models import known_files as known
from calotype.models.known_loras import LORAS

Shapes = Mapping[str, tuple[int, ...]]

BASE_BY_CONTEXT = {768: "sd1", 1024: "sd2", 1280: "sdxl-refiner", 2048: "sdxl"}
"""Width of the text embedding that a UNet's cross-attention reads → base."""
BASE_BY_TEXT_WIDTH = {768: "sd1", 1024: "sd2", 1280: "sdxl"}
"""Width of a text encoder → base."""
BASE_TITLES = {
    "sd1": "Stable Diffusion 1",
    "sd2": "Stable Diffusion 2",
    "sdxl": "Stable Diffusion XL",
    "sdxl-refiner": "Stable Diffusion XL refiner",
}

NETWORK = "model.diffusion_model."
CHECKPOINT_MARK = f"{NETWORK}input_blocks.0.0.weight"
NETWORK_PREFIXES = (NETWORK, "diffusion_model.", "model.", "net.", "transformer.", "")
"""Prefixes of a network's tensor names, in whole checkpoints and in files with the network alone."""
BESIDE_A_NETWORK = (
    *("first_stage_model.", "vae.", "text_encoders.", "cond_stage_model.", "conditioner."),
    "text_encoder.",
)
"""Prefixes of text encoders and VAEs in one file with a network."""

CONTROL_NET_STARTS = ("control", "input_hint_block.", "lora_controlnet", "after_proj_list.")
"""Every ControlNet has a tensor whose name starts with one of these."""

# A weight that reads the text embedding: the model's own, or the down half of a LoRA update of it.
_DOWN = r"(\.lora_down|\.lora_A(\.[^.]+)?|[._]lora\.down|\.lora_linear_layer\.down)"
_READS_CONTEXT = re.compile(rf"attn2[._](processor\.)?to_k({_DOWN})?\.weight$")
_READS_TEXT = re.compile(
    rf"(lora_te_\w*self_attn_|text_encoder\..*|text_encoders\.clip_[lh]\..*)q_proj{_DOWN}\.weight$"
)
_SDXL_LORA = re.compile(
    r"lora_te[12]_|text_encoder_2\.|text_encoders\.clip_g\."
    r"|lora_unet_(input_blocks|middle_block|output_blocks)_"
)
_COMFYUI_LORA = re.compile(rf"(diffusion_model|text_encoders)\..*{_DOWN}\.")
_INPUT_SIDE = re.compile(r"lora_down|lora_A|lora\d?\.down|lora_linear_layer\.down")
_DIMENSION = re.compile(r"(.+)\[(\d)\]=([\d|]+)")


class FileKind(StrEnum):
    """The kinds of weight files."""

    CHECKPOINT = "checkpoint"
    DIFFUSION_MODEL = "diffusion model without text encoders and VAE"
    LORA = "LoRA"
    VAE = "VAE"
    EMBEDDING = "embedding"
    CONTROL_NET = "ControlNet"
    T2I_ADAPTER = "T2I-Adapter"
    IP_ADAPTER = "IP-Adapter"
    MOTION_MODULE = "motion module"
    TEXT_ENCODER = "text encoder"
    IMAGE_ENCODER = "image encoder"
    UPSCALER = "upscaler"
    PART = "part of a diffusers folder"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Identity:
    """The kind of a file, its base model, and its naming scheme (`dialect`)."""

    kind: FileKind
    base: str = "unknown"
    dialect: str = "unknown"
    title: str = field(default="", compare=False)
    """The family's name for people."""


def identify(shapes: Shapes) -> Identity:
    """Identify a file by its tensors' names and shapes."""
    for detect in (_control_net, _checkpoint, _lora, _network, _other_kinds, _embedding):
        identity = detect(shapes)
        if identity is not None:
            return identity
    return Identity(FileKind.UNKNOWN)


class _Header:
    """The names and shapes of a file under one prefix, to match rows of marks against."""

    def __init__(self, shapes: Shapes, prefix: str = "", names: list[str] | None = None) -> None:
        self._shapes, self._prefix = shapes, prefix
        self._names = sorted(shapes) if names is None else names

    def under(self, prefix: str) -> "_Header":
        """The same file under another prefix."""
        return _Header(self._shapes, prefix, self._names)

    def has_prefix(self, start: str) -> bool:
        """Whether some name starts with `start`."""
        start = self._prefix + start
        index = bisect_left(self._names, start)
        return index < len(self._names) and self._names[index].startswith(start)

    def first(self, rows: Iterable[known.Family]) -> known.Family | None:
        """The first row whose marks all match."""
        return next((row for row in rows if all(self._matches(mark) for mark in row.marks.split())), None)

    def _matches(self, mark: str) -> bool:
        if mark.startswith("!"):
            return not self._matches(mark[1:])
        if mark.endswith("*"):
            return self.has_prefix(mark[:-1])
        sized = _parse_sized_mark(mark)
        if sized is None:
            return self._prefix + mark in self._shapes
        name, dimension, sizes = sized
        shape = self._shapes.get(self._prefix + name, ())
        return dimension < len(shape) and shape[dimension] in sizes


@cache
def _parse_sized_mark(mark: str) -> tuple[str, int, frozenset[int]] | None:
    match = _DIMENSION.fullmatch(mark)
    if match is None:
        return None
    name, dimension, sizes = match.groups()
    return name, int(dimension), frozenset(int(size) for size in sizes.split("|"))


def _any_contains(names: Iterable[str], *marks: str) -> bool:
    return any(mark in name for name in names for mark in marks)


def _any_starts(names: Iterable[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in names)


def _control_net(shapes: Shapes) -> Identity | None:
    header = _Header(shapes)
    if not any(header.has_prefix(start) for start in CONTROL_NET_STARTS):
        return None
    for prefix in ("control_model.", ""):
        row = header.under(prefix).first(known.CONTROL_NETS)
        if row is not None:
            return Identity(FileKind.CONTROL_NET, row.base, row.dialect, row.title)
    return None


def _checkpoint(shapes: Shapes) -> Identity | None:
    """A whole model of the Latent Diffusion family; its network alone counts as one too."""
    if CHECKPOINT_MARK not in shapes:
        return None
    header = _Header(shapes)
    network = header.under(NETWORK)
    row = header.first(known.WHOLE_FILE) or network.first(known.LATENT_DIFFUSION)
    row = row or header.first(known.TEXT_MARKS)
    if row is not None:
        return Identity(FileKind.CHECKPOINT, row.base, "original", row.title)
    base = _base_by_context(shapes)
    return Identity(FileKind.CHECKPOINT, base, "original", BASE_TITLES.get(base, ""))


def _network(shapes: Shapes) -> Identity | None:
    """A network of another family, alone or with its text encoders and VAE; or one of a diffusers folder."""
    header = _Header(shapes)
    for prefix in NETWORK_PREFIXES:
        if not header.has_prefix(prefix):
            continue
        under = header.under(prefix)
        row = under.first(known.OTHER_NETWORKS)
        if row is not None:
            whole = any(header.has_prefix(start) for start in BESIDE_A_NETWORK)
            kind = FileKind.CHECKPOINT if whole else FileKind.DIFFUSION_MODEL
            return Identity(kind, row.base, row.dialect, row.title)
        if prefix != NETWORK and under.has_prefix("input_blocks.0.0."):
            row = under.first(known.LATENT_DIFFUSION)
            if row is not None:
                return Identity(FileKind.DIFFUSION_MODEL, row.base, row.dialect, row.title)
    row = header.first(known.DIFFUSERS_NETWORKS)
    return None if row is None else Identity(FileKind.PART, row.base, row.dialect, row.title)


_OTHER_KINDS = (
    (FileKind.MOTION_MODULE, known.MOTION_MODULES, ("", "module.")),
    (FileKind.IP_ADAPTER, known.IP_ADAPTERS, ("",)),
    (FileKind.T2I_ADAPTER, known.T2I_ADAPTERS, ("", "adapter.")),
    (FileKind.VAE, known.VAES, ("first_stage_model.", "vae.", "")),
    (FileKind.TEXT_ENCODER, known.TEXT_ENCODERS, ("", "transformer.", "text_encoder.")),
    (FileKind.IMAGE_ENCODER, known.IMAGE_ENCODERS, ("",)),
    (FileKind.UPSCALER, known.UPSCALERS, ("", "params_ema.", "params.", "module.")),
)


def _other_kinds(shapes: Shapes) -> Identity | None:
    header = _Header(shapes)
    for kind, rows, prefixes in _OTHER_KINDS:
        for prefix in prefixes:
            row = header.under(prefix).first(rows)
            if row is not None:
                return Identity(kind, row.base, row.dialect, row.title)
    return None


def _base_by_context(shapes: Shapes) -> str:
    for name, shape in shapes.items():
        if _READS_CONTEXT.search(name) and len(shape) > 1:
            return BASE_BY_CONTEXT.get(shape[1], "unknown")
    return "unknown"


def _lora(shapes: Shapes) -> Identity | None:
    if any(_COMFYUI_LORA.match(name) for name in shapes):
        dialect = "comfyui"
    elif _any_contains(shapes, ".lora_down.", ".hada_w1", ".lokr_w1", ".dora_scale"):
        dialect = "kohya"
    elif _any_starts(shapes, "base_model.model."):
        dialect = "peft"
    elif _any_contains(shapes, ".lora_A.", ".lora.down.", "_lora.down.", ".lora_linear_layer.down."):
        dialect = "diffusers"
    elif _any_contains(shapes, "_lora1.down.", "_lora2.down."):
        dialect = "xlabs"
    else:
        return None
    base, title = _lora_base(shapes)
    return Identity(FileKind.LORA, base, dialect, title)


def _lora_base(shapes: Shapes) -> tuple[str, str]:
    for row in LORAS:
        pattern = re.compile(row.pattern)
        if any(pattern.search(name) and _fits(name, shapes[name], row.widths) for name in shapes):
            return row.base, row.title
    base = "sdxl" if any(_SDXL_LORA.match(name) for name in shapes) else _base_by_context(shapes)
    if base == "unknown":
        widths = (shape[1] for name, shape in shapes.items() if _READS_TEXT.search(name) and len(shape) > 1)
        base = BASE_BY_TEXT_WIDTH.get(next(widths, 0), "unknown")
    return base, f"LoRA for {BASE_TITLES.get(base, 'an unknown model')}"


def _fits(name: str, shape: tuple[int, ...], widths: tuple[int, ...]) -> bool:
    if not widths:
        return True
    return len(shape) > 1 and shape[1] in widths and _INPUT_SIDE.search(name) is not None


def _embedding(shapes: Shapes) -> Identity | None:
    if "clip_g" in shapes and "clip_l" in shapes:
        return _embedding_of("sdxl", "kohya")
    if "emb_params" in shapes:
        return _embedding_of(_embedding_base(shapes["emb_params"]), "kohya")
    learned = [shape for name, shape in shapes.items() if name.startswith("string_to_param.")]
    if learned:
        return _embedding_of(_embedding_base(learned[0]), "automatic1111")
    if len(shapes) == 1:
        (shape,) = shapes.values()
        if len(shape) in (1, 2) and shape[-1] in BASE_BY_TEXT_WIDTH:
            return _embedding_of(_embedding_base(shape), "diffusers")
    return None


def _embedding_of(base: str, dialect: str) -> Identity:
    return Identity(
        FileKind.EMBEDDING,
        base,
        dialect,
        f"textual inversion for {BASE_TITLES.get(base, 'an unknown model')}",
    )


def _embedding_base(shape: tuple[int, ...]) -> str:
    return BASE_BY_TEXT_WIDTH.get(shape[-1], "unknown") if shape else "unknown"
