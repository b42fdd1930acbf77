"""Inputs that several nodes declare. Limits and defaults are ComfyUI's, so that saved workflows fit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from calotype.workflow.node_api import COMBO, FLOAT, INT, MAX_SEED, Catalogue, Context, Input, InputValues


def stamp(reference: str) -> Hashable:
    """Changes when the file or folder does that a reference is the path of; no folder inside it is seen."""
    try:
        status = Path(reference).stat()
    except (OSError, ValueError):
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


MAX_SIDE = 16384
LATENT_METHODS = ("nearest-exact", "bilinear", "area", "bicubic", "bislerp")
IMAGE_METHODS = ("nearest-exact", "bilinear", "area", "bicubic", "lanczos")


def files(folder: str) -> Callable[[Catalogue], Sequence[str]]:
    """The names in a folder of the catalogue."""
    return lambda catalogue: catalogue.files(folder)


def file_stamp(folder: str, name: str) -> Callable[[Context, InputValues], Hashable]:
    """Changes when the file does that the input `name` says."""

    def changes(context: Context, inputs: InputValues) -> Hashable:
        found = str(context.catalogue.find(folder, inputs[name]))
        return (found, stamp(found))

    return changes


def seed(name: str = "seed") -> Input:
    return Input(
        name,
        INT,
        default=0,
        minimum=0,
        maximum=MAX_SEED,
        control_after_generate=True,
        help="Where the noise comes from.",
    )


STEPS = Input("steps", INT, default=20, minimum=1, maximum=10_000, help="How many steps the schedule has.")
CFG = Input(
    "cfg",
    FLOAT,
    default=8.0,
    minimum=0.0,
    maximum=100.0,
    step=0.1,
    help="How far to go from the negative towards the positive; 1 leaves the negative out.",
)
SAMPLER_VARIANTS: dict[str, tuple[str, dict[str, str | int]]] = {
    "dpmpp_sde_gpu": ("dpmpp_sde", {}),
    "dpmpp_2m_sde_gpu": ("dpmpp_2m_sde", {}),
    "dpmpp_3m_sde_gpu": ("dpmpp_3m_sde", {}),
    "uni_pc": ("uni_pc", {"solver": "bh1", "order": 3}),
    "uni_pc_bh2": ("uni_pc", {"solver": "bh2", "order": 3}),
}
"""Names that mean a sampler with options, or another's name: `gpu` only says where noise is drawn."""
SAMPLER = Input(
    "sampler_name",
    COMBO,
    choices=lambda catalogue: tuple(dict.fromkeys((*catalogue.samplers(), *SAMPLER_VARIANTS))),
)
SCHEDULER = Input("scheduler", COMBO, choices=lambda catalogue: catalogue.schedulers())
DENOISE = Input(
    "denoise",
    FLOAT,
    default=1.0,
    minimum=0.0,
    maximum=1.0,
    step=0.01,
    help="How far to leave the latent it begins with; at 1 nothing of it is left but its size.",
)


def pixels(
    name: str,
    default: int,
    minimum: int = 0,
    maximum: int = MAX_SIDE,
    step: int = 8,
    help: str = "",  # noqa: A002
) -> Input:
    return Input(name, INT, default=default, minimum=minimum, maximum=maximum, step=step, help=help)


def share(
    name: str,
    default: float,
    minimum: float = 0.0,
    maximum: float = 1.0,
    step: float = 0.01,
    help: str = "",  # noqa: A002
) -> Input:
    return Input(name, FLOAT, default=default, minimum=minimum, maximum=maximum, step=step, help=help)


CROP = Input(
    "crop", COMBO, default="disabled", choices=("disabled", "center"), help="Cut to shape, or be stretched."
)
