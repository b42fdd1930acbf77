"""The process of a training point: a recipe's steps, and the loop people write beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from calotype.bench.sweep.points import parse_sweep, points_of
from calotype.bench.sweep.worker_process import main
from calotype.bench.training.diffusers_baseline import DiffusersLoop
from calotype.spec.bench_job import Ticket
from calotype.spec.recipe import Recipe
from calotype.spec.records.measurement import Measurement
from calotype.train.builders import load_training_model

Narrow = Callable[[str], str]


def recipe_file(folder: Path, model: str, **data: object) -> Path:
    values = {
        "model": {
            "base": model,
            "weights": "pretrained",
            "micro_batch_size": 1,
            "global_batch_size": 2,
            "precision": "fp32",
        },
        "data": {"kind": "synthetic", "num_workers": 0, **data},
    }
    file = folder / "recipe.yaml"
    file.write_text(Recipe.parse(values).model_dump_json())
    return file


def measured(tmp_path: Path, recipe: Path, system: str, **settings: object) -> Measurement:
    asked = {"kind": "train", "settings": {"recipe": str(recipe), **settings}, "systems": [system]}
    [point] = points_of(parse_sweep({**asked, "units": 2, "warmup": 1}), device="cpu")
    given, out = tmp_path / "ticket.json", tmp_path / "measurement.json"
    given.write_text(Ticket(point=point, round=2).model_dump_json())
    main(given, out)
    return Measurement.model_validate_json(out.read_bytes())


@pytest.mark.parametrize("system", ["calotype", "diffusers-eager"])
def test_steps_are_measured_with_losses(system: str, tmp_path: Path, narrow: Narrow) -> None:
    made = measured(tmp_path, recipe_file(tmp_path, narrow("emoji")), system)
    assert (made.status, made.message, made.kind, made.round) == ("ok", None, "train", 2)
    assert made.system == system
    assert made.samples_per_unit == 2
    assert [len(made.series[name].values) for name in ("wall", "loss")] == [2, 2]
    assert len(made.preparation.warmup_s) == 1
    assert made.samples_per_s
    assert made.samples_per_s == pytest.approx(4 / sum(made.series["wall"].values), rel=0.2)
    assert made.recipe
    assert made.recipe["model"]["micro_batch_size"] == 1
    assert made.fingerprint["torch"]["version"] == str(torch.__version__)


def test_a_recipe_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    made = measured(tmp_path, recipe_file(tmp_path, "nothing-of-that-name"), "calotype")
    assert made.status == "error"
    assert "nothing-of-that-name" in str(made.message)


@pytest.mark.parametrize(("name", "kind"), [("sdxl", "synthetic"), ("emoji", "synthetic_latents")])
def test_the_plain_loop_trains_every_weight(name: str, kind: str, tmp_path: Path, narrow: Narrow) -> None:
    recipe = Recipe.parse(
        {
            "model": {"base": narrow(name), "weights": "pretrained", "precision": "bf16"}
            | {"micro_batch_size": 2, "global_batch_size": 2, "gradient_checkpointing": True},
            "data": {"kind": kind},
        }
    )
    model = load_training_model(recipe, torch.device("cpu"))
    before = {name: tensor.clone() for name, tensor in model.unet.named_parameters()}
    loss = DiffusersLoop(model, recipe, compiled=False).step()
    assert bool(torch.isfinite(loss))
    assert all(not torch.equal(before[name], tensor) for name, tensor in model.unet.named_parameters())
