"""Recipes: names and files, overrides and where each value came from, and what is refused."""

from __future__ import annotations

import json
import shlex
from importlib.resources import files
from pathlib import Path

import pytest

from calotype.cli.main import run
from calotype.core.errors import NotFoundError, RequestError
from calotype.spec.overrides import flatten
from calotype.spec.recipe import Recipe
from calotype.train.recipes import load_recipe, recipe_names
from calotype.train.start_weights import check_weights_are_chosen


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_comes_along_is_whole(name: str) -> None:
    resolved = load_recipe(name)
    assert resolved.recipe.name == name
    assert resolved.sources.keys() == flatten(resolved.recipe.model_dump(mode="json")).keys()
    assert resolved.sources["model.base"] == f"recipe {name}"


def test_each_value_knows_where_it_came_from(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nmodel: {micro_batch_size: 4, global_batch_size: 8}\n", encoding="utf-8")
    overrides = ["model.global_batch_size=16", "optimizer.betas=[0.8,0.9]", "optimizer.learning_rate=1e-5"]
    resolved = load_recipe(str(file), overrides)
    assert resolved.recipe.model.global_batch_size == 16
    assert resolved.recipe.optimizer.betas == (0.8, 0.9)
    assert resolved.recipe.optimizer.learning_rate == 1e-5
    assert resolved.sources["model.micro_batch_size"] == str(file)
    assert resolved.sources["model.global_batch_size"] == "command line"
    assert resolved.sources["optimizer.betas"] == "command line"
    assert resolved.sources["ema.decay"] == "default"


@pytest.mark.parametrize("part", [name for name in Recipe.model_fields if name != "name"])
def test_an_unknown_key_is_refused_with_the_nearest(part: str) -> None:
    known = next(iter(Recipe.model_fields[part].default.__class__.model_fields))
    with pytest.raises(RequestError, match=rf"{part}\.{known}x: is not a known setting.*{known}"):
        load_recipe("emoji", [f"{part}.{known}x=1"])


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        load_recipe("emoji", ["modle.base=x", "trainer.devices=0", "optimizer.betas=[0.9,1.0]"])
    text = str(caught.value)
    assert "modle: is not a known setting" in text
    assert "model" in text.partition("modle")[2]
    assert "trainer.devices: 0 is out of range; it must be at least 1" in text
    assert "optimizer.betas.1: 1.0 is out of range; it must be less than 1" in text


def test_a_batch_that_does_not_divide_is_refused_with_those_that_do() -> None:
    overrides = ["model.micro_batch_size=8", "model.global_batch_size=20", "trainer.devices=2"]
    with pytest.raises(RequestError, match=r"20 is not a multiple .* 8 × 2 × 1 = 16; use 16 or 32"):
        load_recipe("emoji", overrides)
    with pytest.raises(RequestError, match="use 16 or 32"):
        load_recipe("emoji", [*overrides, "model.global_batch_size=4"])


def test_a_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(RequestError, match="start_step 20 is after end_step 12"):
        load_recipe("emoji", ["profile.start_step=20"])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["logging.sample_every_steps=5"], r"logging\.sample_prompts: is empty"),
        (["profile.enabled=true", "trainer.max_steps=9"], r"profile\.start_step: 10 is after .*max_steps=9"),
        (["profile.enabled=true", "profile.ranks=[1]"], r"profile\.ranks: \[1\] are none .* from 0 to 0"),
    ],
)
def test_what_could_never_be_seen_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_recipe("sd15", overrides)


@pytest.mark.parametrize(
    ("typed", "meant"), [("off", "off"), ("false", "off"), ("true", "offline"), ("online", "online")]
)
def test_yaml_turns_a_bare_off_into_false_and_wandb_is_off_all_the_same(typed: str, meant: str) -> None:
    assert load_recipe("emoji", [f"logging.wandb={typed}"]).recipe.logging.wandb == meant


@pytest.mark.parametrize("text", ["model: [1, 2", "a: b: c", "\tname: x", "name: ${nothing.there}"])
def test_text_that_is_not_yaml_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RequestError, match=r"bad\.yaml: is not valid YAML"):
        load_recipe(str(file))


def test_yaml_without_keys_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text("[1, 2]", encoding="utf-8")
    with pytest.raises(RequestError, match="should hold keys and values, holds a list"):
        load_recipe(str(file))


def test_words_a_shell_made_of_braces_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    shards = [f"data.path=part-{number}.tar" for number in range(3)]
    load_recipe("sd15", ["trainer.seed=1", "trainer.seed=1", *shards])
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("data.path is given 3 times, and only data.path=part-2.tar counts; quote braces")


@pytest.mark.parametrize("override", ["trainer.devices", "=3", "trainer.devices=[1", "name=${nothing}"])
def test_an_override_that_says_nothing_is_refused(override: str) -> None:
    with pytest.raises(RequestError, match="override"):
        load_recipe("emoji", [override])


def test_an_unknown_recipe_is_refused_with_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="sd2-base"):
        load_recipe("sd2-bsae")


def test_the_command_shows_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "sd2-base", "trainer.seed=5", "--print-config"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["trainer.seed", "5", "(command", "line)"] in shown
    assert ["model.base", "sd2-base", "(recipe", "sd2-base)"] in shown
    assert ["trainer.nodes", "1", "(default)"] in shown
    assert ["model.vae", "null", "(default)"] in shown
    assert ["model.compile", "false", "(default)"] in shown
    assert run(["train", "sd2-base", "trainer.seed=5", "--print-config", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["trainer.seed"] == {"value": 5, "source": "command line"}
    assert values["trainer.nodes"] == {"value": 1, "source": "default"}


def test_the_command_refuses_with_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "emoji", "trainer.device=2"]) == 2
    assert "trainer.device: is not a known setting" in capsys.readouterr().err
    assert run(["train", "emojy"]) == 4
    assert "emoji" in capsys.readouterr().err


@pytest.mark.parametrize("page", ["README.md", "docs/training.md"])
def test_the_command_lines_in_the_documents_are_understood(page: str) -> None:
    text = (Path(__file__).parents[3] / page).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.partition("calotype train ")[2] for line in text.splitlines() if "calotype train " in line]
    commands = [words for line in lines if line and (words := shlex.split(line, comments=True))]
    num_understood = 0
    for words in commands:
        name = words[1] if words[0] in ("precompute", "export") else words[0]
        if name in recipe_names():
            overrides = [word for word in words if "=" in word and not word.startswith("-")]
            recipe = load_recipe(name, overrides).recipe
            if "--benchmark" not in words:
                check_weights_are_chosen(recipe)
            num_understood += 1
    assert num_understood >= 5


def test_the_embedded_models_recipe_can_be_tried_out_without_its_data() -> None:
    comment = (
        (files("calotype.resources.recipes") / "emoji.yaml")
        .read_text("utf-8")
        .partition("smoke run on a CPU:")[2]
    )
    overrides = comment.partition("\nname:")[0].replace("#", "").split()
    recipe = load_recipe("emoji", overrides).recipe
    assert (recipe.data.kind, recipe.validation.data, recipe.model.train) == (
        "synthetic",
        None,
        "unet_and_text",
    )


@pytest.mark.parametrize("name", ["emoji", "emoji-vae"])
def test_the_embedded_models_recipes_look_where_its_data_is_built(name: str) -> None:
    recipe = load_recipe(name).recipe
    assert recipe.validation.data is not None
    assert (recipe.data.path, recipe.validation.data.path) == ("./emoji-data/train", "./emoji-data/heldout")
