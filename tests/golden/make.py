"""Makes the golden pictures: one small picture per family of samplers, each with another schedule.

    .venv/bin/python -m tests.golden.make

Run it only when a picture is meant to change, and say why in the commit: these files are the promise that a
seed shows tomorrow what it shows today. The weights are random numbers, so the pictures show nothing; each
file holds its own request. Knows nothing of tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.engine.pictures import save_picture
from calotype.spec.request import GenerateRequest

FOLDER = Path(__file__).parent
MODEL = "random:emoji"
SHARED: dict[str, Any] = {
    "prompt": "a red apple",
    "negative_prompt": "dark",
    "width": 64,
    "height": 64,
    "steps": 4,
    "cfg": 5.0,
    "seed": 1845,
}
PICTURES: dict[str, dict[str, Any]] = {
    "euler": {"sampler": "euler", "schedule": "normal", "prompt": "a (red:1.3) apple"},
    "ancestral": {"sampler": "euler_ancestral", "schedule": "sgm_uniform"},
    "two_stage": {"sampler": "heun", "schedule": "exponential"},
    "linear_multistep": {"sampler": "lms", "schedule": "beta"},
    "solver": {"sampler": "dpmpp_2m", "schedule": "karras"},
    "stochastic_solver": {"sampler": "dpmpp_3m_sde", "schedule": "karras"},
    "pseudo_multistep": {"sampler": "pndm", "schedule": "simple"},
    "predictor_corrector": {"sampler": "uni_pc", "schedule": "ddim_uniform", "prompt": "long " * 40},
}


def open_engine() -> Engine:
    """The engine the golden pictures are made with."""
    return load(MODEL, device="cpu", precision="fp32")


def main() -> None:
    """Write every picture."""
    engine = open_engine()
    for name, knobs in PICTURES.items():
        made = engine.generate(GenerateRequest.parse(SHARED | knobs))
        save_picture(made.images[0], FOLDER / f"{name}.png", made.records[0])


if __name__ == "__main__":
    main()
