"""Makes the golden pictures: one small picture per family of samplers, each with another schedule.

    .venv/bin/python -m tests.golden.make

Run it only when a picture is meant to change, which is when the embedded model's weights are replaced or a
mistake is mended, and say why in the commit: these files are the promise that a seed shows tomorrow what it
shows today. Each file holds its own request. Few steps make them soft. Knows nothing of tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.imaging.image_io import save_image
from calotype.spec.generate_request import GenerateRequest

FOLDER = Path(__file__).parent
MODEL = "emoji"
HEART = "an (orange:1.3) heart, noto style, on a light blue background"
DETECTIVE = "a detective, twemoji style, on a pink background"
COOK = "a cook, flat style, on an orange background"
LONG = "a red circle, noto style, on a black background, " * 4
"""More words than the text encoder has places for."""
SHARED: dict[str, Any] = {
    "prompt": "a construction worker, noto style, on a purple background",
    "negative_prompt": "dark",
    "steps": 8,
    "cfg": 4.0,
    "seed": 1845,
}
PICTURES: dict[str, dict[str, Any]] = {
    "euler": {"sampler": "euler", "schedule": "normal", "prompt": HEART},
    "ancestral": {"sampler": "euler_ancestral", "schedule": "sgm_uniform", "prompt": DETECTIVE},
    "two_stage": {"sampler": "heun", "schedule": "exponential", "steps": 10},
    "linear_multistep": {"sampler": "lms", "schedule": "beta", "prompt": COOK},
    "solver": {"sampler": "dpmpp_2m", "schedule": "karras"},
    "stochastic_solver": {"sampler": "dpmpp_3m_sde", "schedule": "karras", "prompt": DETECTIVE, "steps": 16},
    "pseudo_multistep": {"sampler": "pndm", "schedule": "simple", "prompt": COOK, "steps": 16},
    "predictor_corrector": {"sampler": "uni_pc", "schedule": "ddim_uniform", "prompt": LONG},
}


def open_engine() -> Engine:
    """The engine the golden pictures are made with."""
    return load(MODEL, device="cpu", precision="fp32")


def main() -> None:
    """Write every picture."""
    engine = open_engine()
    for name, knobs in PICTURES.items():
        made = engine.generate(GenerateRequest.parse(SHARED | knobs))
        save_image(made.images[0], FOLDER / f"{name}.png", made.records[0])


if __name__ == "__main__":
    main()
