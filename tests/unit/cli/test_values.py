"""Bad values of options, for every command: found through the application, so that new commands are in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calotype.cli.value_checks import MAY_BE_EMPTY
from calotype.core.errors import ExitCode
from tests.unit.cli.conftest import Calotype
from tests.unit.cli.every_command import commands, required

CHECKED_LATER = {
    "width", "height", "steps", "cfg", "seed", "count", "eta", "clip_skip", "strength", "trials", "size",
    "priority", "deadline", "max_queued", "pictures_per_minute",
    "max_rows", "drain", "hang_limit", "load_limit", "port", "grpc_port", "replicas", "min_replicas",
    "max_replicas", "jobs_per_replica", "gpus_per_replica", "cpus_per_replica", "nodes", "gpus_per_node",
}  # fmt: skip
"""Numbers without limits on the command line: the request, plan or launch that they become has them."""

SERVED = ("--engine", "nothing")
REPLICAS = ("--engine", "ray")
MADE = ("serve", "deploy")


def options(kinds: tuple[type, ...]) -> Iterator[tuple[str, str, Any]]:
    for name, command in commands():
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.type_descriptor.annotation in kinds:
                yield name, max(parameter.opts, key=len), parameter


def words_of(name: str) -> list[str]:
    return [*name.split(), *required(dict(commands())[name])]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_no_option_takes_a_number_that_is_not_finite(calotype: Calotype, number: str) -> None:
    found = list(options((float,)))
    assert len(found) > 30
    for name, option, _ in found:
        seen = calotype(*words_of(name), option, number)
        assert seen.code == ExitCode.BAD_REQUEST, (name, option)
        assert seen.err.startswith(f"error: {option}: "), (name, option)


def test_no_option_takes_an_empty_text_or_path(calotype: Calotype) -> None:
    found = [one for one in options((str, Path, list)) if one[2].name not in MAY_BE_EMPTY]
    assert len(found) > 200
    for name, option, parameter in found:
        numbers = parameter.type_descriptor.annotation is list and parameter.min is not None
        seen = calotype(*words_of(name), option, "")
        assert seen.code == ExitCode.BAD_REQUEST, (name, option)
        assert numbers or f"{option}: is empty; give a value, or omit it" in seen.err, (name, option)


def test_every_number_has_a_limit_or_is_known_to_be_checked_later() -> None:
    without = {parameter.name for _, _, parameter in options((int, float)) if parameter.min is None}
    assert without - CHECKED_LATER == set()


@pytest.mark.parametrize(
    "words",
    [
        ("generate", "x", "--batch-size", -1),
        ("generate", "x", "--batch-size", 0),
        ("generate", "x", "--count", -1),
        ("generate", "x", "--clip-skip", -1),
        ("generate", "x", "--eta", -1),
        ("generate", "x", "--trials", 0),
        ("compare", "x", "--presets", "fast", "--out", "out", "--count", 0),
        ("bench", "quality", "emoji", "--data", ".", "--out", "out", "--batch-size", -1),
        ("profile", "generate", "emoji", "x", "--batch-size", 0),
        ("profile", "train", "sd15", "--steps", 0),
        ("train", "run", "sd15", "--benchmark", "--benchmark-steps", 0),
        ("train", "run", "sd15", "--launch", "slurm", "--nodes", 0),
        ("engine", "calibrate", "emoji", "--size", -8),
        ("bench", "serve", "--target", -1),
        ("bench", "serve", *SERVED, "--max-rows", 0),
        ("keys", "create", "artist", "--max-queued", -1),
        *((verb, *SERVED, "--drain", -1) for verb in MADE),
        *((verb, *SERVED, "--max-rows", 0) for verb in MADE),
        *((verb, *SERVED, "--port", 65536) for verb in MADE),
        *((verb, *REPLICAS, "--replicas", 0) for verb in MADE),
        *((verb, *REPLICAS, "--cpus-per-replica", -1) for verb in MADE),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_numbers_out_of_range_are_refused(
    calotype: Calotype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]
) -> None:
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    seen = calotype(*words)
    assert seen.code == ExitCode.BAD_REQUEST
    assert str(words[-1]) in seen.err
    assert not list(tmp_path.rglob("plan.json"))
    assert not (tmp_path / "outputs").exists()


ELSEWHERE = {"serve", "deploy", "update", "train run", "bench inference", "bench train"}
"""Their work may run on other machines, so they check the folder once they know that it runs here."""


def test_no_command_takes_a_model_folder_that_does_not_exist(calotype: Calotype) -> None:
    verbs = {name for name, option, _ in options((Path,)) if option == "--models"}
    assert verbs > ELSEWHERE
    for name in sorted(verbs - ELSEWHERE):
        seen = calotype(*words_of(name), "--models", "nosuch-folder")
        assert seen.code == ExitCode.BAD_REQUEST, name
        assert seen.err.startswith("error: --models: nosuch-folder does not exist; "), name


@pytest.mark.parametrize(
    "words",
    [("train", "run", "emoji"), ("bench", "inference", "--out", "o"), ("bench", "train", "--out", "o")],
)
def test_work_that_runs_here_needs_its_model_folder_here(calotype: Calotype, words: tuple[str, ...]) -> None:
    seen = calotype(*words, "--models", "nosuch-folder")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "--models: nosuch-folder does not exist" in seen.err
    assert not Path("o").exists()
