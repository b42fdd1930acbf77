"""Fine-tuning starts from weights that a setting names; a run on random numbers says so."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from safetensors import safe_open

from calotype.core.errors import ExitCode
from calotype.train.recipes import load_recipe, recipe_names
from calotype.train.start_weights import check_weights_are_chosen
from tests.unit.train.commands.conftest import Calotype

DOCUMENT = Path(__file__).parents[4] / "docs" / "training.md"
SMALL = (
    "model.base=emoji",
    "model.precision=fp32",
    "model.micro_batch_size=1",
    "model.global_batch_size=1",
    "model.resolution=64",
    "data.num_workers=0",
    "trainer.max_steps=1",
)


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("sd15", ["model.train=lora"]),
        ("sd15", ["model.train=textual_inversion"]),
        ("sd15", ["model.train=unet_and_text"]),
        ("sd15", ["data.kind=folder", "data.path=./pictures"]),
        ("sd15", ["model.train=vae", "data.kind=folder", "data.path=./pictures"]),
        # The recipe's own random numbers are for the model that it trains from nothing.
        ("emoji", ["model.train=lora"]),
        ("bench-sd1", ["model.train=lora"]),
    ],
)
def test_what_would_start_from_invented_weights_is_refused(
    calotype: Calotype, recipe: str, overrides: list[str]
) -> None:
    seen = calotype("train", recipe, *overrides, "--device", "cpu")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "model.weights: is not set" in seen.err
    assert "set model.weights=pretrained" in seen.err
    assert "model.base=/path/to/model.safetensors" in seen.err
    assert list(Path().iterdir()) == []


def test_launches_exports_and_precomputing_refuse_them_too(calotype: Calotype, pictures: Path) -> None:
    for words in (
        ["train", "sd15", "model.train=lora", "--launch", "slurm"],
        ["train", "export", "sd15", "./made.safetensors", "model.train=lora"],
        ["train", "precompute", "sd15", "./latents", "data.kind=folder", f"data.path={pictures}"],
    ):
        seen = calotype(*words)
        assert seen.code == ExitCode.BAD_REQUEST, words
        assert "model.weights: is not set" in seen.err, words
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_comes_along_starts_as_it_is(name: str) -> None:
    check_weights_are_chosen(load_recipe(name).recipe)


def test_unets_train_from_nothing_on_latents_of_a_real_model() -> None:
    check_weights_are_chosen(load_recipe("sdxl", ["data.kind=precomputed", "data.path=./latents"]).recipe)


def test_benchmarks_may_take_random_weights(calotype: Calotype) -> None:
    steps = ("--benchmark", "--benchmark-steps", 1, "--warmup-steps", 0, "--ceiling-tflops", 1)
    seen = calotype("train", "sd15", "model.train=lora", *SMALL, *steps, "--json", "--device", "cpu")
    assert seen.code == 0, seen.err
    assert json.loads(seen.out)["recipe"]["model"]["weights"] == "random"


def test_random_weights_on_purpose_are_said_at_the_start_and_in_the_file(
    calotype: Calotype, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = ("sd15", "model.train=lora", "model.weights=random", *SMALL)
    seen = calotype("train", *chosen, "--device", "cpu")
    assert seen.code == 0, seen.err
    notes = [one.getMessage() for one in caplog.records if "model.weights=random" in one.getMessage()]
    assert notes == [
        "model.weights=random: emoji starts from random numbers (trainer.seed=0), the model beside the LoRA "
        "too, so that it fits no other model; set model.weights=pretrained to start from its weights"
    ]
    assert "the model started from random weights" in seen.out
    assert calotype("train", "export", chosen[0], "made.safetensors", *chosen[1:]).code == 0
    with safe_open("made.safetensors", "pt") as file:
        assert file.metadata()["calotype.base_weights"] == "random"


def commands_of_the_document() -> list[list[str]]:
    """The commands under the heading `A LoRA`."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## A LoRA\n")[2].partition("\n## ")[0]
    lines = section.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("calotype ")]


def test_the_documented_commands_for_a_lora_run(calotype: Calotype, pictures: Path) -> None:
    """On the embedded model's real weights; only the number of steps and the size are smaller."""
    assert {"emoji-lora", "sd15-lora"} <= set(calotype("train", "list").out.split())
    Path("pictures").symlink_to(pictures)
    train, export, generate, other = commands_of_the_document()
    assert other[:2] == ["train", "sd15-lora"]
    load_recipe(other[1], other[2:])
    smaller = ("trainer.max_steps=2", "model.resolution=64", "model.micro_batch_size=1")
    seen = calotype(*train, *smaller, "model.global_batch_size=1", "--device", "cpu")
    assert seen.code == 0, seen.err
    assert "random" not in seen.out
    assert calotype(*export, *smaller, "model.global_batch_size=1").code == 0
    with safe_open("models/loras/mine.safetensors", "pt") as file:
        assert file.metadata()["calotype.base_weights"] == "pretrained"
    seen = calotype(*generate, "--steps", 1, "--width", 64, "--height", 64, "--device", "cpu")
    assert seen.code == 0, seen.err
    assert list(Path("made").glob("*.png"))
