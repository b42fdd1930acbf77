"""Inputs that several nodes share. Limits and defaults are ComfyUI's, so that saved workflows are valid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from calotype.workflow.node_api import COMBO, FLOAT, INT, MAX_SEED, Catalogue, Context, Input, InputValues


def stamp(reference: str) -> Hashable:
    """A value that changes with the file or folder at a path; changes inside subfolders are not detected."""
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
    """A function whose value changes with the file that the input `name` selects."""

    def changes(context: Context, inputs: InputValues) -> Hashable:
        path = str(context.catalogue.find(folder, inputs[name]))
        return (path, stamp(path))

    return changes


def seed(name: str = "seed") -> Input:
    return Input(
        name,
        INT,
        default=0,
        minimum=0,
        maximum=MAX_SEED,
        control_after_generate=True,
        help="The seed of the noise.",
    )


STEPS = Input(
    "steps", INT, default=20, minimum=1, maximum=10_000, help="The number of steps of the schedule."
)
CFG = Input(
    "cfg",
    FLOAT,
    default=8.0,
    minimum=0.0,
    maximum=100.0,
    step=0.1,
    help="The guidance from the negative towards the positive prompt; 1 ignores the negative prompt.",
)
SAMPLER_VARIANTS: dict[str, tuple[str, dict[str, str | int]]] = {
    "dpmpp_sde_gpu": ("dpmpp_sde", {}),
    "dpmpp_2m_sde_gpu": ("dpmpp_2m_sde", {}),
    "dpmpp_3m_sde_gpu": ("dpmpp_3m_sde", {}),
    "uni_pc": ("uni_pc", {"solver": "bh1", "order": 3}),
    "uni_pc_bh2": ("uni_pc", {"solver": "bh2", "order": 3}),
}
"""Sampler name → sampler and options; `gpu` in a name only states where ComfyUI draws noise."""
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
    help="How much to change the initial latent; at 1 only its size is kept.",
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
    "crop",
    COMBO,
    default="disabled",
    choices=("disabled", "center"),
    help="Crop to the aspect ratio (center) or stretch (disabled).",
)
