"""The command line: what is asked for arrives in the spec, and what is asked for wrongly is refused."""

from __future__ import annotations

import errno
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from calotype.cli.launch_options import job_name
from calotype.cli.main import run
from calotype.core.errors import ExitCode
from calotype.launch import registry
from calotype.launch import submit as submit_module
from calotype.launch.backend import JobRecord
from calotype.launch.job_store import all_records, find
from calotype.launch.load_spec import read_spec


class Accepting:
    """A back end that takes everything."""

    name = "slurm"

    def __init__(self) -> None:
        self._real = registry.open_backend("slurm")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def check(self, _spec: object) -> list[object]:
        return []

    def gpus_of_a_node(self, _spec: object) -> int:
        return 8

    def submit(self, *_: object) -> str:
        return "1"


@pytest.fixture
def handed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line, and answers with the record of what was handed in."""
    accepting = Accepting()
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "open_backend", lambda _: accepting)

    def ran(*words: str) -> JobRecord:
        code = run(list(words) if "--json" in words else [*words, "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        return find(json.loads(out)["id"])

    return ran


def test_a_recipe_learns_of_the_launch(handed_in: Any, tmp_path: Path) -> None:
    words = ["train", "sd2-base", "model.global_batch_size=2048", "--device=cuda", "--launch=slurm"]
    record = handed_in(*words, "--nodes=2", "--launch-set=time_limit=12:00:00")
    assert record.id == "sd2-base-1"
    assert record.spec.command == (
        *("train", "sd2-base", "model.global_batch_size=2048", "trainer.devices=8", "trainer.nodes=2"),
        "--device=cuda",
    )
    assert (record.spec.nodes, record.spec.gpus_per_node, record.spec.time_limit_s) == (2, 8, 43200)
    assert record.spec.directory == str(tmp_path)


def test_a_batch_that_cannot_be_shared_grows_with_the_processes(
    handed_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    record = handed_in("train", "sd2-base", "--launch=slurm", "--nodes=2")
    assert record.spec.command == (
        *("train", "sd2-base", "trainer.devices=8", "trainer.nodes=2", "model.global_batch_size=128"),
    )
    assert "model.global_batch_size" not in " ".join(
        handed_in("train", "sd2-base", "--launch=slurm", "--gpus-per-node=1").spec.command
    )


def test_a_benchmark_keeps_its_record_in_the_jobs_folder(handed_in: Any) -> None:
    words = ["--benchmark", "--warmup-steps=3", "--launch=slurm", "--gpus-per-node=1"]
    record = handed_in("train", "emoji", *words)
    assert record.spec.words()[-3:] == [
        "--benchmark",
        "--warmup-steps=3",
        f"--record={record.folder}/record.json",
    ]


def test_an_elastic_launch_makes_an_elastic_recipe(handed_in: Any) -> None:
    more = ["--nodes=4", "--gpus-per-node=1", "--launch-set=min_nodes=2", "model.global_batch_size=1024"]
    assert "trainer.elastic=true" in handed_in("train", "emoji", "--launch=slurm", *more).spec.command


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "emoji", "--nodes=2"], "--nodes: is a launch setting; add --launch"),
        (["train", "emoji", "--launch=slrum"], "--launch: no backend 'slrum'; did you mean 'slurm'"),
        (
            ["train", "sd15", "trainer.devices=1", "--launch=slurm", "--gpus-per-node=8"],
            "the recipe needs 1 devices × 1 nodes, the launch starts 8 processes × 1 nodes",
        ),
        (
            ["train", "emoji", "model.global_batch_size=3", "--launch=slurm", "--nodes=2", "--device=cpu"],
            "model.global_batch_size: 3 is not a multiple of",
        ),
        (
            ["train", "emoji", "name=a\nrm -rf /", "--launch=slurm", "--gpus-per-node=0"],
            "command.2: 'name=a\\nrm -rf /' holds a line break",
        ),
        (["train", "emoji", "--launch=slurm", "--nodes=0", "--device=cpu"], "nodes: 0 is out of range"),
        (["launch", "submit", "--on=slurm"], "command: is required"),
        (["launch", "render", "--on=slurm", "--launch-file=gone.yaml", "x"], "no file 'gone.yaml'"),
        (["launch", "render", "--on=slurm", "--set=nodes", "x"], "'nodes' should be KEY=VALUE"),
        (
            ["launch", "render", "--on=slurm", "--gpus-per-node=8", "train", "sd15", "trainer.devices=3"],
            "the recipe needs 3 devices × 1 nodes, the launch starts 8 processes × 1 nodes",
        ),
        (
            ["launch", "submit", "--on=local", "train", "emoji", "--device=cpu", "trainer.nodes=2"],
            "nodes: 2 nodes are more than this one machine",
        ),
        (
            ["launch", "submit", "--on=local", "train", "emoji", "trainer.devices=0"],
            "trainer.devices: 0 is out",
        ),
        (
            ["launch", "submit", "--on=local", "trian", "emoji"],
            "command: calotype has no command 'trian'; did you mean 'train'",
        ),
        (["launch", "render", "--on=local", "bench", "trian"], "calotype bench has no command 'trian'"),
        (["launch", "render", "--on=local", "train"], "calotype train needs a command"),
        (["launch", "submit", "--on=local", "train", "sd2-bas"], "no recipe 'sd2-bas'"),
        (["launch", "submit", "--on=local", "train", "export", "sd2-bas", "out"], "no recipe 'sd2-bas'"),
        (["launch", "submit", "--on=local", "train", "table", "sd1", "--out=out"], "no table 'sd1'"),
        (
            ["launch", "submit", "--on=local", "train", "sd2-base", "model.micro_batch=3"],
            "model.micro_batch: is not a known setting; did you mean 'micro_batch_size'",
        ),
        (["launch", "submit", "--on=local", "train", "sd2-base", "--devise=cpu"], "devise"),
        (
            ["launch", "submit", "--on=local", "train", "--device=cpu", "emoji"],
            "write train RECIPE --device=cpu",
        ),
        (
            ["launch", "submit", "--on=slurm", "train", "sd2-base", "--nodes=2"],
            "--nodes: is a launch option; write it before 'train sd2-base'",
        ),
    ],
)
def test_what_is_asked_for_wrongly_is_refused(
    words: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    assert run(words) in (ExitCode.BAD_REQUEST, ExitCode.NOT_FOUND)
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_rendered_with_values_on_top(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("launch.yaml").write_text("nodes: 4\nimage: /apps/a.sqsh\nslurm: {partition: p5, qos: high}\n")
    words = [
        "launch",
        "render",
        "--on=slurm",
        "--launch-file=launch.yaml",
        "--nodes=2",
        "-s",
        "slurm.qos=low",
    ]
    assert run([*words, "train", "sd2-base", "--device=cuda"]) == 0
    out = capsys.readouterr().out
    for line in (
        "--nodes=2",
        "--partition=p5",
        "--qos=low",
        f"--output={tmp_path}/launches/train-sd2-base/batch.log",
    ):
        assert f"#SBATCH {line}\n" in out
    assert "python3 -m torch.distributed.run" in out
    told = "trainer.devices=1 trainer.nodes=2 model.global_batch_size=16"
    assert f"-m calotype train sd2-base --device=cuda {told} &" in out.replace(" \\\n ", "")
    assert run([*words, "--out=files", "train", "sd2-base"]) == 0
    assert Path("files/job.sbatch").read_text().startswith("#!/bin/bash\n")


def test_a_job_whose_record_cannot_be_kept_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = []

    class Told(Accepting):
        def cancel(self, record: JobRecord) -> None:
            ended.append(record.handle)

    def full(_record: JobRecord) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "launch.json")

    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    told = Told()
    monkeypatch.setattr(registry, "open_backend", lambda _: told)
    monkeypatch.setattr(submit_module, "save_record", full)
    assert run(["launch", "submit", "--on=slurm", "doctor"]) == ExitCode.DISK_FULL
    assert "No space left on device" in capsys.readouterr().err
    assert ended == ["1"]
    assert all_records() == []


@pytest.mark.parametrize(
    "words",
    [
        ["launch", "render", "--on=local", "--launch-file=old.yaml", "doctor"],
        ["launch", "render-serving", "--image=a", "--file=old.yaml"],
        ["launch", "render", "--on=local", "train", "old.yaml"],
    ],
)
def test_a_file_in_another_encoding_is_refused_by_name(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_bytes("name: für-zoë\n".encode("latin-1"))
    assert run(words) == ExitCode.BAD_REQUEST
    assert "old.yaml: is not valid YAML: 'utf-8' codec can't decode" in capsys.readouterr().err


_DOCS = Path(__file__).parents[3] / "docs"


def _documented_renderings() -> list[str]:
    lines = [line for file in sorted(_DOCS.glob("*.md")) for line in file.read_text("utf-8").splitlines()]
    return [line.partition(" >")[0] for line in lines if line.startswith("calotype launch render --on")]


@pytest.mark.parametrize("line", _documented_renderings())
def test_what_documents_render_starts_as_many_processes_as_its_recipe_is_told_of(
    line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p5 = (_DOCS / "kubernetes.md").read_text("utf-8").partition("```yaml\n# p5.yaml\n")[2].partition("```")[0]
    Path("p5.yaml").write_text(p5)
    assert run(shlex.split(line)[1:]) == 0
    out, err = capsys.readouterr()
    assert "--nproc-per-node=8" in out
    assert {"trainer.devices=8", "trainer.nodes=2"} <= set(re.findall(r"trainer\.\w+=\w+", out))
    assert "nvidia.com/gpu: '8'" in out or "'GPU': 8" in out or "--gpus-per-node=8" in out
    assert "warning" not in err


@pytest.mark.parametrize(
    ("words", "nodes", "gpus", "processes"),
    [
        (["trainer.nodes=2", "trainer.devices=8"], 2, 8, 8),
        (["trainer.devices=4", "--device=cpu"], 1, 0, 4),
        ([], 1, 8, 8),
    ],
)
def test_what_the_command_says_of_devices_decides_where_the_launch_says_nothing(
    handed_in: Any, words: list[str], nodes: int, gpus: int, processes: int
) -> None:
    spec = handed_in("launch", "submit", "--on=slurm", "--json", "train", "sd2-base", *words).spec
    assert (spec.nodes, spec.gpus_per_node, spec.processes_on_a_node) == (nodes, gpus, processes)
    said = dict(word.split("=") for word in spec.command if "." in word)
    assert (said["trainer.nodes"], said["trainer.devices"]) == (str(nodes), str(processes))
    assert said["model.global_batch_size"] == str(8 * nodes * processes)


def test_a_training_rendered_without_gpus_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["launch", "render", "--on=ray"]
    assert run([*words, "train", "emoji"]) == 0
    assert "warning: the launch requests no GPUs, so ray may assign none" in capsys.readouterr().err
    for wanted in (["train", "emoji", "--device=cpu"], ["--gpus-per-node=0", "train", "emoji"]):
        assert run([*words, *wanted]) == 0
        assert "warning" not in capsys.readouterr().err


def test_a_task_of_an_array_is_checked_as_the_first_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["launch", "render", "--on=slurm", "--set=array=3", "train", "emoji", "--device=cpu"]
    assert run([*words, "data.seed={task}"]) == 0
    assert 'data.seed="$SLURM_ARRAY_TASK_ID"' in capsys.readouterr().out
    assert run([*words, "data.sed={task}"]) == ExitCode.BAD_REQUEST


def test_what_is_said_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text("name: of-the-file\ncommand: [train, emoji]\nnodes: 2\nenvironment: {A: 1, B: 2}\n")
    spec = read_spec(file, {"nodes": 3}, ["environment.B=3", "nodes=4"], usual={"name": "usual"})
    assert (spec.name, spec.nodes, spec.environment) == ("of-the-file", 4, {"A": "1", "B": "3"})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sd2-base", "sd2-base"),
        ("recipes/My Recipe.yaml", "my-recipe"),
        ("2-stage", "job-2-stage"),
        ("", "job"),
        ("a" * 60, "a" * 40),
    ],
)
def test_names_of_jobs_follow_from_what_they_run(text: str, name: str) -> None:
    assert job_name(text) == name


def test_a_python_of_this_machine_is_used_where_there_is_no_image(tmp_path: Path) -> None:
    spec = read_spec(None, {"command": ("x",), "image": "a"})
    assert submit_module.settled(spec).python is None
    assert submit_module.settled(spec.model_copy(update={"image": None})).python is not None


def test_a_folder_with_a_line_break_reaches_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "a\nrm -rf b"
    here.mkdir()
    monkeypatch.chdir(here)
    for backend in ("local", "slurm"):
        assert run(["launch", "render", f"--on={backend}", "train", "{folder}"]) == ExitCode.BAD_REQUEST
        assert "holds a line break" in capsys.readouterr().err
