"""Jobs on a real Slurm: two nodes train together, are preempted, and end where undisturbed ones do.

What does not need a training is tried with a program that stands in for Python, which starts at once.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import calotype
from calotype.cli.main import run
from calotype.core.errors import ExitCode
from calotype.launch.backend import JobRecord, JobState
from calotype.launch.job_store import all_records, find
from calotype.launch.registry import open_backend
from calotype.launch.slurm import SlurmBackend
from calotype.launch.submit import status_of
from calotype.spec.overrides import merge, parse_overrides
from tests.cluster.slurm import GPUS, LONGEST_S, MEMORY_MIB, PARTITION, SHORT, URGENT, Cluster, in_time, until
from tests.small_models import shallow_folder
from tests.unit.train.runs import arguments, assert_same, metrics, settings, state_in
from tests.warm_python import warm_python

_SOURCE, _HELD = Path(calotype.__file__).parents[1], Path(__file__).parent / "held"
STEPS = 5
CHANGES: dict[str, Any] = {
    "trainer__max_steps": STEPS,
    "model__micro_batch_size": 1,
    "model__global_batch_size": 2,
}
# Nodes of one machine meet on its own interface.
ON_TWO_NODES = ["--launch=slurm", "--nodes=2", "--launch-set=network.interface=lo"]


STAND_IN = """#!/bin/bash
echo "start ${SLURM_RESTART_COUNT:-0}"
printf '%s\\n' "$@"
printenv GREETING
case "$BEHAVE" in
  wait*)
    if [ "$BEHAVE" = wait ] || [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then
      trap 'echo told to stop; sleep "${SAVING_S:-0}"; exit "${SAVED:-1}"' TERM
      echo waits
      while :; do sleep 0.05; done
    fi ;;
  second-fails) [ "$SLURM_ARRAY_TASK_ID" != 1 ] || exit 3 ;;
esac
echo ends
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shallow_folder(tmp_path_factory.mktemp("models"), "emoji")


@pytest.fixture(autouse=True)
def _here(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    # Jobs inherit their environment from whoever hands them in.
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", f"{_HELD}{os.pathsep}{_SOURCE}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def hand_in(capsys: pytest.CaptureFixture[str]) -> Callable[..., JobRecord]:
    """Runs a command line that ends with a job, and answers with its record."""

    def handed_in(*words: str) -> JobRecord:
        capsys.readouterr()
        code = run([*words, "--json"] if words[0] != "launch" else [*words[:2], "--json", *words[2:]])
        out, err = capsys.readouterr()
        assert code == 0, err
        return find(json.loads(out)["id"])

    return handed_in


def train_words(base: Path, folder: Path, **more: Any) -> list[str]:
    empty = folder.parent / "small.yaml"
    empty.write_text("{}", encoding="utf-8")
    return ["train", str(empty), *arguments(settings(base, folder, **{**CHANGES, **more})), "--device=cpu"]


def ended(record: JobRecord) -> JobState:
    def over() -> JobState | None:
        state = status_of(open_backend(record.backend), find(record.id)).state
        return state if state.is_over else None

    try:
        return until(over, f"end of {record.id}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{printed(record)}") from None


def printed(record: JobRecord) -> str:
    files = [*Path(record.folder).glob("*.log"), *record.logs.glob("*.log")]
    return "\n".join(f"{file.name}:\n{file.read_text()}" for file in files)


@pytest.fixture
def stand_in(tmp_path: Path, hand_in: Callable[..., JobRecord]) -> Callable[..., JobRecord]:
    """Hands in a job whose Python is the stand-in; settings first, then `--` and its words."""
    program = tmp_path / "stand-in"
    program.write_text(STAND_IN)
    program.chmod(0o755)

    def handed_in(*settings: str, words: tuple[str, ...] = ("doctor",)) -> JobRecord:
        given = [f"python={program}", "launcher=plain", "grace_s=20", *settings]
        return hand_in("launch", "submit", "--on=slurm", *(f"--set={each}" for each in given), *words)

    return handed_in


def test_a_preempted_training_goes_on_and_ends_where_an_undisturbed_one_does(
    cluster: Cluster,
    base: Path,
    tmp_path: Path,
    hand_in: Callable[..., JobRecord],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Two processes of this machine, in its background.
    python = f"--launch-set=python={warm_python()}"
    alone = [
        "--launch=local",
        "--launch-set=processes_per_node=2",
        "--launch-set=network.interface=lo",
        python,
    ]
    straight = hand_in(*train_words(base, tmp_path / "straight"), *alone)
    assert ended(straight) is JobState.COMPLETED, printed(straight)
    assert f"done at step {STEPS}" in shown(capsys, "logs", straight.id, "--rank=0")

    monkeypatch.setenv("TEST_HOLD_AFTER", "2")
    struck = hand_in(*train_words(base, tmp_path / "struck"), *ON_TWO_NODES, python)
    steps = tmp_path / "struck" / "metrics.jsonl"
    until(lambda: steps.exists() and '"step": 2,' in steps.read_text(), "second step")
    # Somebody with more say wants the nodes.
    urgent = cluster.ask(
        *("sbatch", "--parsable", f"--partition={URGENT}", "--nodes=2", "--cpus-per-task=2"),
        *("--output=/dev/null", "--wrap=true"),
    ).strip()
    assert ended(struck) is JobState.COMPLETED, printed(struck)

    assert cluster.job(urgent)["JobState"] == "COMPLETED"
    status = find(struck.id).ended
    assert status is not None
    assert (status.restarts, status.nodes) == (1, ("n[1-2]",))
    assert_same(state_in(tmp_path / "straight"), state_in(tmp_path / "struck"))
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "struck")
    assert [each["step"] for each in metrics(tmp_path / "struck")] == list(range(1, STEPS + 1))
    _logs_tell_ranks_apart(struck, capsys)


def _logs_tell_ranks_apart(record: JobRecord, capsys: pytest.CaptureFixture[str]) -> None:
    assert {file.name for file in record.logs.iterdir()} == {"node-0.log", "node-1.log"}
    first, second = shown(capsys, "logs", record.id, "--rank=0"), shown(capsys, "logs", record.id, "--rank=1")
    assert "stopped at step 2" in first
    assert f"done at step {STEPS}" in first
    assert "at step" not in second
    assert run(["launch", "logs", record.id, "--rank=2"]) == ExitCode.NOT_FOUND
    assert "has 2, from 0" in capsys.readouterr().err


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What `calotype launch` prints."""
    capsys.readouterr()
    assert run(["launch", *words]) == 0
    return capsys.readouterr().out


def waits(record: JobRecord) -> None:
    until(lambda: any("waits" in file.read_text() for file in record.logs.glob("*.log")), "start of the job")


def test_a_job_is_put_back_ahead_of_its_time_limit(
    cluster: Cluster, stand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    record = stand_in("environment.BEHAVE=wait-once", "environment.SAVING_S=3", "time_limit=10m")
    waits(record)
    assert cluster.job(record.handle)["TimeLimit"] == "00:10:00"
    # What Slurm itself sends before the time is over.
    cluster.ask("scancel", "--batch", "--signal=USR1", record.handle)
    assert ended(record) is JobState.COMPLETED, printed(record)
    assert "after being requeued once" in shown(capsys, "status", record.id)
    told = (record.logs / "node-0.log").read_text().splitlines()
    # Which is what Slurm writes where it has to end processes by itself.
    assert not any("DUE TO JOB REQUEUE" in line for line in told)
    assert [line for line in told if line in ("start 0", "told to stop", "start 1", "ends")] == [
        "start 0",
        "told to stop",
        "start 1",
        "ends",
    ]


def test_a_cancelled_job_is_told_first_and_never_comes_back(
    cluster: Cluster, stand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    record = stand_in("environment.BEHAVE=wait", "environment.SAVED=0")
    waits(record)
    assert f"{record.id}: running on n1" in shown(capsys, "status", record.id)
    assert "is being cancelled" in shown(capsys, "cancel", record.id)
    assert ended(record) is JobState.CANCELLED
    assert "told to stop" in (record.logs / "node-0.log").read_text()
    assert "has already ended: cancelled" in shown(capsys, "cancel", record.id)
    gone = until(lambda: cluster.job(record.handle)["JobState"] != "COMPLETING", "end of the processes")
    assert gone
    assert cluster.job(record.handle)["JobState"] == "CANCELLED"
    assert cluster.job(record.handle)["Restarts"] == "0"
    _is_known_when_forgotten(record, JobState.CANCELLED)


def _is_known_when_forgotten(record: JobRecord, state: JobState) -> None:
    """Slurm ends a job's script after it calls the job ended."""
    forgotten = record.model_copy(update={"handle": "999999"})
    until(lambda: SlurmBackend().status(forgotten).state is not JobState.LOST, "last act of the script")
    assert SlurmBackend().status(forgotten).state is state


def test_words_and_variables_arrive_as_they_were_written(stand_in: Callable[..., JobRecord]) -> None:
    words = ("generate", "it's $HOME", "`id`;", '"quoted"\\', "--flag=a b", "*")
    record = stand_in("environment.GREETING=\"$(id) 'and' more\"", words=words)
    assert ended(record) is JobState.COMPLETED, printed(record)
    told = (record.logs / "node-0.log").read_text().splitlines()
    assert told == ["start 0", "-m", "calotype", *words, "$(id) 'and' more", "ends"]
    script = (Path(record.folder) / "job.sbatch").read_text()
    assert shlex.quote("it's $HOME") in script


def test_an_array_numbers_its_tasks_and_tells_which_failed(
    stand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    record = stand_in(
        "array=3", "environment.BEHAVE=second-fails", words=("generate", "{task}/{tasks}", "x{task}")
    )
    assert ended(record) is JobState.FAILED, printed(record)
    status = json.loads(shown(capsys, "status", record.id, "--json"))
    assert [(task["state"], task["exit_code"]) for task in status["tasks"]] == [
        ("completed", 0),
        ("failed", 3),
        ("completed", 0),
    ]
    said = shown(capsys, "logs", record.id, "--task=2").splitlines()
    assert said == ["start 0", "-m", "calotype", "generate", "2/3", "x2", "ends"]
    failed = shown(capsys, "logs", record.id, "--task=1")
    assert "ends" not in failed
    # Which only the script that started it can say.
    assert "Exited with exit code 3" in failed
    assert run(["launch", "logs", record.id, "--task=3"]) == ExitCode.NOT_FOUND


def test_a_warned_task_speaks_for_itself_alone(cluster: Cluster, stand_in: Callable[..., JobRecord]) -> None:
    record = stand_in("array=2", "environment.BEHAVE=wait-once")
    logs = {task: record.logs / f"task-{task}-node-0.log" for task in (0, 1)}
    until(lambda: all(log.exists() and "waits" in log.read_text() for log in logs.values()), "start of both")
    jobs = {task: cluster.job(f"{record.handle}_{task}") for task in (0, 1)}
    # The task that has the array's own number: a signal to that number would reach both.
    (namesake,) = [task for task, job in jobs.items() if job["JobId"] == record.handle]
    cluster.ask("scancel", "--batch", "--signal=USR1", f"{record.handle}_{namesake}")
    until(lambda: cluster.job(f"{record.handle}_{namesake}")["Restarts"] == "1", "requeue")
    other = 1 - namesake
    assert "told to stop" in logs[namesake].read_text()
    assert "told to stop" not in logs[other].read_text()
    assert cluster.job(f"{record.handle}_{other}")["JobState"] == "RUNNING"
    SlurmBackend().cancel(record)
    assert ended(record) is JobState.CANCELLED


def test_logs_are_followed_to_the_end(
    stand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    record = stand_in()
    with in_time():
        followed = shown(capsys, "logs", record.id, "--follow").splitlines()
    assert followed == ["start 0", "-m", "calotype", "doctor", "ends"]
    assert shown(capsys, "logs", record.id, "--lines=2").splitlines() == ["doctor", "ends"]


def test_the_end_of_a_job_is_known_after_slurm_has_forgotten_it(stand_in: Callable[..., JobRecord]) -> None:
    record = stand_in("array=2", "environment.BEHAVE=second-fails")
    assert ended(record) is JobState.FAILED
    forgotten = record.model_copy(update={"handle": "999999"})
    status = SlurmBackend().status(forgotten)
    assert [task.state for task in status.tasks] == [JobState.COMPLETED, JobState.FAILED]
    (Path(record.folder) / "exit-code.1").unlink()
    assert SlurmBackend().status(forgotten).state is JobState.LOST


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["slurm.partition=cpus"], f"slurm.partition: no partition 'cpus'; did you mean '{PARTITION}'"),
        (["gpus_per_node=3"], f"gpus_per_node: 3 GPUs .* partition {PARTITION} has; ask for at most {GPUS}"),
        (["nodes=3"], "nodes: 3 nodes are more .*; ask for at most 2"),
        ([f"slurm.partition={SHORT}", "nodes=2"], "nodes: 2 nodes are more .* per job; ask for at most 1"),
        ([f"slurm.partition={SHORT}", "time_limit=2h"], "time_limit: 2h .*; ask for at most 00:10:00"),
        (["cpus_per_node=64"], "cpus_per_node: 64 CPUs .*; ask for at most 2"),
        (["memory_per_node=1T"], f"memory_per_node: 1048576 MiB .*; ask for at most {MEMORY_MIB}"),
        (["gpus_per_node=1", "slurm.gpu_type=h100"], "slurm.gpu_type: no 'h100'"),
        (["nodes=0"], "nodes: 0 is out of range"),
        (["time_limit=90"], "time_limit: 90 is no time; write 30m, 12h or 2d"),
    ],
)
def test_what_the_cluster_could_never_run_is_refused_before_submission(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], settings: list[str], says: str
) -> None:
    known, queue = all_records(), cluster.ask("squeue", "--noheader")
    words = ["launch", "submit", "--on=slurm", *(f"--set={each}" for each in settings), "train", "emoji"]
    assert run(words) == ExitCode.BAD_REQUEST
    message = capsys.readouterr().err
    assert re.search(says, message), message
    assert all_records() == known
    assert cluster.ask("squeue", "--noheader") == queue


def test_what_sbatch_refuses_is_told_in_its_words_and_leaves_no_job(
    stand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    known = all_records()
    code = run(["launch", "submit", "--on=slurm", "--set=slurm.constraint=h100", "train", "emoji"])
    assert code == ExitCode.BAD_REQUEST
    assert "sbatch refused: " in (message := capsys.readouterr().err)
    assert "Invalid feature specification" in message
    assert all_records() == known
    # The name is free again.
    assert stand_in("name=train-emoji").id == "train-emoji-1"


@pytest.fixture
def sbatch_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has sbatch hand in as ever, and then do something else than answer."""

    def put(last_act: str) -> None:
        folder = tmp_path / "programs"
        folder.mkdir()
        (folder / "sbatch").write_text(f'#!/bin/bash\n{shutil.which("sbatch")} "$@" >/dev/null\n{last_act}\n')
        (folder / "sbatch").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return put


def test_a_job_whose_answer_was_lost_is_found_in_the_queue(
    cluster: Cluster, stand_in: Callable[..., JobRecord], sbatch_then: Callable[[str], None]
) -> None:
    sbatch_then("echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1")
    record = stand_in("environment.BEHAVE=wait", "array=2")
    waits(record)
    assert cluster.job(record.handle)["JobName"] == record.id
    SlurmBackend().cancel(record)
    assert ended(record) is JobState.CANCELLED


def test_an_interrupted_submission_leaves_no_job(
    cluster: Cluster, sbatch_then: Callable[[str], None]
) -> None:
    sbatch_then("kill -INT $PPID; exec sleep 300")
    given = ["--set=name=interrupted", "--set=launcher=plain", "--set=setup=[sleep 300]", "doctor"]
    command = [sys.executable, "-m", "calotype", "launch", "submit", "--on=slurm", *given]
    assert subprocess.run(command, check=False, timeout=LONGEST_S).returncode == ExitCode.CANCELLED
    assert all_records() == []
    assert cluster.ask("squeue", "--noheader", "--name=interrupted-1", "--states=PENDING,RUNNING") == ""


def test_a_benchmark_is_collected_as_its_row(
    base: Path, tmp_path: Path, hand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    words = train_words(base, tmp_path / "run", model__global_batch_size=1)
    steps = ["--benchmark", "--benchmark-steps=2", "--warmup-steps=1"]
    record = hand_in(*words, *steps, "--launch=slurm", f"--launch-set=python={warm_python()}")
    assert run(["launch", "collect", record.id]) == ExitCode.NOT_FOUND
    assert ended(record) is JobState.COMPLETED, printed(record)
    (row,) = json.loads(shown(capsys, "collect", record.id, "--json"))["rows"]
    assert row["outcome"] == "OK"
    assert row["window"]["samples"] == 2
    assert "| samples/gpu/s |" in shown(capsys, "collect", record.id)


def test_a_sweep_is_an_array_whose_points_are_collected(
    base: Path, tmp_path: Path, hand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "small.yaml"
    chosen = settings(base, tmp_path / "run")
    recipe.write_text(json.dumps(nested(chosen)))
    out = tmp_path / "out"
    sweep = ["bench", "train", f"--out={out}", f"--recipe={recipe}", "--sweep=batch=1,2"]
    sweep += ["--units=1", "--warmup=0", "--device=cpu"]
    record = hand_in(*sweep, "--launch=slurm", f"--launch-set=python={warm_python()}")
    assert (record.spec.array, record.spec.launcher) == (2, "plain")
    assert record.spec.words() == [
        *("bench", "train", "--sweep=batch=1,2", f"--recipe={recipe}", "--units=1", "--warmup=0"),
        *("--device=cpu", f"--out={out}", "--part={task}/2"),
    ]
    assert ended(record) is JobState.COMPLETED, printed(record)
    points = json.loads(shown(capsys, "collect", record.id, "--json"))["points"]
    assert sorted(point["settings"]["batch"] for point in points) == [1, 2]
    assert {point["status"] for point in points} == {"ok"}
    # The same command here finds all of it done.
    assert run([*sweep, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert sorted(one["id"] for one in again) == sorted(point["id"] for point in points)
    assert not (out / "records.jsonl").exists()


def nested(chosen: dict[str, str]) -> dict[str, Any]:
    """Dotted settings as a recipe's file has them."""
    values: dict[str, Any] = {}
    merge(values, parse_overrides(arguments(chosen)))
    return values
