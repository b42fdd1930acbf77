"""The same command on every back end: what is launched, refused and asked for is alike. Asks no cluster."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from calotype.cli.main import run
from calotype.core.errors import ExitCode
from calotype.launch import registry
from calotype.launch.backend import JobRecord
from calotype.launch.job_store import find

# What each of them cannot do without.
WANTS = {
    "local": [],
    "slurm": [],
    "ray": [],
    "kubernetes": ["image=registry/calotype:1", "mounts=[pvc:claim:/]", "python=python3"],
}


@pytest.fixture(params=sorted(WANTS))
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A back end that renders as it does, and whose cluster takes everything."""
    name = str(request.param)
    kind = type(registry.open_backend(name))
    monkeypatch.setattr(kind, "check", lambda _self, _spec: [])
    monkeypatch.setattr(kind, "gpus_of_a_node", lambda _self, _spec: 2)
    monkeypatch.setattr(kind, "submit", lambda _self, _spec, _folder, _rendered: "1")
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return name


def test_every_back_end_is_tried_here() -> None:
    assert registry.backend_names() == sorted(WANTS)


def handed_in(backend: str, capsys: pytest.CaptureFixture[str], *words: str) -> JobRecord:
    more = [f"--launch-set={each}" for each in WANTS[backend]]
    code = run([*words, f"--launch={backend}", *more, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return find(json.loads(out)["id"])


def rendered(record: JobRecord) -> str:
    return Path(record.folder, record.files[0]).read_text(encoding="utf-8")


def test_a_training_is_the_same_job_everywhere(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = handed_in(backend, capsys, "train", "emoji", "model.global_batch_size=512", "--benchmark")
    assert record.id == "emoji-1"
    assert record.spec.command == (
        *("train", "emoji", "model.global_batch_size=512", "trainer.devices=2", "trainer.nodes=1"),
        *("--benchmark", "--record={folder}/record.json"),
    )
    assert (record.spec.gpus_per_node, record.spec.num_processes) == (2, 2)
    text = rendered(record)
    assert "torch.distributed.run" in text or "torchrun" in text
    assert "--nproc-per-node=2" in text
    assert f"--record={record.folder}/record.json" in text


def test_a_sweep_is_the_same_array_everywhere(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "train", "--recipe=emoji", "--sweep=batch=1,2,4", "--out=sweep"]
    record = handed_in(backend, capsys, *words)
    assert (record.id, record.spec.array, record.spec.launcher) == ("bench-train-1", 3, "plain")
    assert record.spec.command[-2:] == (f"--out={Path('sweep').absolute()}", "--part={task}/{tasks}")
    assert "/3" in rendered(record)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes=0"], "nodes: 0 is out of range; it must be at least 1"),
        (["--gpus-per-node=17"], "gpus_per_node: 17 is out of range"),
        (["--launch-set=time_limit=soon"], "time_limit: 'soon' is no time"),
        (
            ["--launch-set=time_limit=1h", "--launch-set=grace_s=3600"],
            "grace_s: 3600 s of warning leave nothing",
        ),
        (["--launch-set=slurm.partition=a b"], "slurm.partition: 'a b' is no name here"),
        (["--launch-set=nodse=2"], "nodse"),
    ],
)
def test_a_wrong_spec_is_refused_before_anybody_is_asked(
    backend: str, words: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    more = [f"--launch-set={each}" for each in WANTS[backend]]
    code = run(["train", "emoji", "--device=cpu", f"--launch={backend}", *more, *words])
    assert code == ExitCode.BAD_REQUEST
    assert says in capsys.readouterr().err
    assert not (tmp_path / "launches").exists()


@pytest.mark.parametrize(
    "prompt", ["👩\u200d💻 at work", "赤い\u3000狐", "un renard\u00a0!", 'it\'s "$(HOME)"']
)
def test_a_prompt_of_any_language_arrives_as_it_was_written(
    backend: str, prompt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [f"--set={each}" for each in (*WANTS[backend], "launcher=plain")]
    assert run(["launch", "render", f"--on={backend}", *more, "generate", prompt]) == 0
    text = capsys.readouterr().out
    (heading,) = [line for line in text.splitlines() if line.startswith("# calotype generate")]
    assert shlex.split(heading)[-1] == prompt
    if backend == "kubernetes":
        (job,) = yaml.safe_load_all(text)
        # Which Kubernetes would fill in otherwise.
        assert job["spec"]["trainer"]["command"][-1] == prompt.replace("$(", "$$(")


@pytest.mark.parametrize("prompt", ["a\x85b", "a\u2029b", "\ufeffa", "a\x1b[1m"])
def test_what_would_break_a_line_is_refused_everywhere(
    backend: str, prompt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [f"--set={each}" for each in WANTS[backend]]
    assert run(["launch", "render", f"--on={backend}", *more, "generate", prompt]) == ExitCode.BAD_REQUEST
    assert "holds a line break or control character" in capsys.readouterr().err
