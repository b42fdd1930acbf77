"""The embedded model as it is shipped: it shows what is asked, and diffusers makes the same pictures of it.

What is compared with figures belongs to the weights: docs/embedded-model.md says what to do when they are
replaced.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch

from calotype.bench.quality.classifier import read_classifier, shipped
from calotype.bench.quality.generate import generate_images
from calotype.bench.quality.score import ExpectedLabels, accuracy, score_images
from calotype.core.progress import CancelToken, Silent
from calotype.datasets.emoji.npm import EMOJIBASE, FLUENT, NOTO, TWEMOJI, Package
from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.resources import assets
from calotype.sampling import NoiseStream
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.quality import Accuracy, QualityRecord
from tests.engines import difference

FOLDER = Path(str(assets.__path__[0])) / "emoji"
ROOT = Path(__file__).parents[2]
MOST_BYTES = 40_000_000

SAMPLE = (
    (
        "an orange heart, noto style, on a light blue background",
        ExpectedLabels("1F9E1", "noto", "light blue"),
    ),
    ("a construction worker, noto style, on a purple background", ExpectedLabels("1F477", "noto", "purple")),
    ("a red circle, noto style, on a black background", ExpectedLabels("1F534", "noto", "black")),
    ("a student, noto style, on a green background", ExpectedLabels("1F9D1-200D-1F393", "noto", "green")),
    ("a cook, flat style, on an orange background", ExpectedLabels("1F9D1-200D-1F373", "fluent", "orange")),
    ("a mage, flat style, on a blue background", ExpectedLabels("1F9D9", "fluent", "blue")),
    ("a superhero, flat style, on a gray background", ExpectedLabels("1F9B8", "fluent", "gray")),
    ("a grinning face, flat style, on a teal background", ExpectedLabels("1F600", "fluent", "teal")),
    ("a detective, twemoji style, on a pink background", ExpectedLabels("1F575", "twemoji", "pink")),
    ("a police officer, twemoji style, on a yellow background", ExpectedLabels("1F46E", "twemoji", "yellow")),
    ("a red apple, twemoji style, on a white background", ExpectedLabels("1F34E", "twemoji", "white")),
    ("a dog face, twemoji style, on a red background", ExpectedLabels("1F436", "twemoji", "red")),
)
"""The usual wording; every background once, every style four times, people, faces, fruit and plain shapes."""
STEPS = 12
LEAST_EMOJI, LEAST_STYLE, LEAST_BACKGROUND = 10 / 12, 10 / 12, 11 / 12
"""What the weights reach (12, 12 and 12 of 12), less two pictures, or one for the backgrounds, because other
machines round otherwise. Random weights reach 0, 4 and 0."""


def sample_of(engine: Engine) -> Accuracy:
    """What the shipped judge says of the sample."""
    requests = [
        GenerateRequest(prompt=prompt, seed=place, steps=STEPS, cfg=4.0)
        for place, (prompt, _) in enumerate(SAMPLE)
    ]
    pixels = generate_images(engine, requests, batch_size=None, progress=Silent(), cancel=CancelToken())
    judge_of = read_classifier(shipped(), torch.device("cpu"))
    return accuracy(score_images(pixels, [asked for _, asked in SAMPLE], judge_of))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("emoji", device="cpu", precision="fp32")


def test_a_sample_shows_what_was_asked(engine: Engine) -> None:
    seen = sample_of(engine)
    assert seen.emoji_top1 >= LEAST_EMOJI, seen
    assert seen.style is not None
    assert seen.style >= LEAST_STYLE, seen
    assert seen.background is not None
    assert seen.background >= LEAST_BACKGROUND, seen


def test_diffusers_makes_the_same_picture_of_the_folder(engine: Engine) -> None:
    """By the folder's own scheduler, whose ten timesteps are those of our schedule `simple`."""
    prompt, negative = SAMPLE[1][0], "blurry"
    pipeline = diffusers.StableDiffusionPipeline.from_pretrained(str(FOLDER), dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    theirs = pipeline(
        prompt,
        negative_prompt=negative,
        num_inference_steps=10,
        guidance_scale=4.0,
        latents=NoiseStream([5], (4, 32, 32)).initial(),
    ).images[0]
    knobs: dict[str, Any] = {"schedule": "simple", "sampler": "dpmpp_2m", "steps": 10, "cfg": 4.0, "seed": 5}
    ours = engine.generate(prompt, negative_prompt=negative, **knobs).images[0]
    assert difference(ours, theirs) <= 1
    assert difference(ours, engine.generate(prompt, **knobs).images[0]) > 1, "the negative prompt counts"


def test_the_card_is_of_these_weights_and_of_the_newest_record(engine: Engine) -> None:
    newest = sorted(ROOT.glob("benchmarks/*-emoji/results.json"))[-1]
    record = QualityRecord.model_validate_json(newest.read_text(encoding="utf-8"))
    assert record.model.sha256 == engine.model.identity.sha256
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert engine.model.identity.sha256 in card
    assert record.command in card
    assert f"benchmarks/{newest.parent.name}" in card
    guide = (ROOT / "docs/embedded-model.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for split, words in (("train", "training captions"), ("heldout", "held-out combinations")):
        of = record.parts[split].all
        shares = [of.emoji_top1, of.emoji_top5, of.style or 0.0, of.background or 0.0]
        told = [_percent(share) for share in shares]
        assert " | ".join([f"| {words}", str(of.pictures), *told]) in card
        assert " | ".join([f"| {words}", *told]) in guide
        assert not {told[0], told[2]} - set(re.findall(r"[\d.]+ %", readme))
        assert f"{_percent(record.parts[split].near_copies)} " in card
    assert f"{_percent(record.real_near_copies)} of the real ones" in card
    assert f"{record.reconstruction_psnr_db.median:.1f} dB PSNR" in card
    aims = record.parts["train"].all, record.parts["heldout"].all
    assert (aims[0].emoji_top1 >= 0.8, aims[1].emoji_top1 >= 0.6) == (True, True)
    assert min(share or 0.0 for aim in aims for share in (aim.style, aim.background)) >= 0.9


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


@pytest.mark.parametrize("package", [NOTO, FLUENT, TWEMOJI, EMOJIBASE], ids=lambda package: package.name)
def test_card_and_notice_name_what_it_learned_from(package: Package) -> None:
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"{package.name} {package.version} | {package.licence} | {package.attribution}" in card
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    address = package.attribution.rpartition("(")[2].rstrip(")")
    assert address in notice
    assert package.licence in notice


def test_the_folder_is_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) <= MOST_BYTES
