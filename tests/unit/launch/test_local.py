"""Jobs in this machine's background: they outlive who handed them in, and are found again by their id."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from calotype.cli.main import run
from calotype.core.errors import ExitCode, NotFoundError, RequestError
from calotype.core.hardware import Gpu, GpuSurvey
from calotype.core.process import process_start_time
from calotype.launch.backend import JobRecord, JobState
from calotype.launch.job_store import claim_folder, find, release_folder
from calotype.launch.local import LocalBackend
from calotype.launch.submit import status_of
from tests.faults.checks import processes_with
from tests.polling import until
from tests.unit.launch.specs import HERE, spec

STAND_IN = """#!/bin/bash
printf '%s\\n' "$@"
if [ "$BEHAVE" = wait ]; then
  trap 'echo told to stop; exit 0' TERM
  echo waits
  while :; do sleep 0.05; done
fi
if [ "$BEHAVE" = stay ]; then
  trap 'echo told to stop' TERM
  echo waits
  while :; do sleep 0.05; done
fi
if [ "$BEHAVE" = "wait in $2 $3 $4" ]; then exec env BEHAVE=wait "$0"; fi
exit "${CODE:-0}"
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def hand_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., JobRecord]]:
    program = tmp_path / "stand-in"
    program.write_text(STAND_IN)
    program.chmod(0o755)

    def handed_in(*settings: str, words: tuple[str, ...] = ("doctor",)) -> JobRecord:
        given = [f"python={program}", "launcher=plain", *settings]
        assert (
            run(["launch", "submit", "--on=local", "--json", *(f"--set={each}" for each in given), *words])
            == 0
        )
        return find(json.loads(capsys.readouterr().out)["id"])

    yield handed_in
    # A job whose script was killed goes on without it.
    for left in processes_with(f"CALOTYPE_STATE={tmp_path}"):
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


def ended(record: JobRecord) -> JobState:
    until(lambda: status_of(LocalBackend(), find(record.id)).state.is_over, "it is over")
    return status_of(LocalBackend(), find(record.id)).state


def test_a_job_runs_and_its_end_is_remembered(hand_in: Callable[..., JobRecord]) -> None:
    record = hand_in(words=("generate", "a b", "$HOME"))
    assert ended(record) is JobState.COMPLETED
    assert (record.logs / "node-0.log").read_text().splitlines() == [
        "-m",
        "calotype",
        "generate",
        "a b",
        "$HOME",
    ]
    # Nobody asks the machine any more.
    assert find(record.id).ended is not None
    assert hand_in().id == "doctor-1"


@pytest.mark.parametrize(
    ("settings", "state"),
    [(("environment.CODE=3",), JobState.FAILED), (("environment.CODE=124",), JobState.TIMED_OUT)],
)
def test_how_it_failed_is_known(
    hand_in: Callable[..., JobRecord], settings: tuple[str, ...], state: JobState
) -> None:
    assert ended(hand_in(*settings)) is state


def test_time_is_limited(hand_in: Callable[..., JobRecord]) -> None:
    record = hand_in("environment.BEHAVE=wait", "time_limit=2s", "grace_s=1")
    assert ended(record) is JobState.TIMED_OUT
    assert "told to stop" in (record.logs / "node-0.log").read_text()


def test_what_does_not_end_when_its_time_is_over_is_killed_and_has_timed_out(
    hand_in: Callable[..., JobRecord],
) -> None:
    record = hand_in("environment.BEHAVE=stay", "time_limit=2s", "grace_s=1")
    assert ended(record) is JobState.TIMED_OUT


def test_what_does_not_end_when_it_is_cancelled_is_killed(hand_in: Callable[..., JobRecord]) -> None:
    record = hand_in("environment.BEHAVE=stay", "grace_s=1")
    has_begun(record)
    LocalBackend().cancel(record)
    assert ended(record) is JobState.CANCELLED
    assert "told to stop" in (record.logs / "node-0.log").read_text()


def has_begun(record: JobRecord) -> None:
    def waits() -> bool:
        return any("waits" in log.read_text() for log in record.logs.iterdir())

    until(waits, "it has started")


# Ignores SIGTERM, as a process does that waits for a device.
DEAF = """import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("waits", os.getpid(), flush=True)
while True:
    time.sleep(0.1)
"""


def test_processes_of_torchrun_that_do_not_end_are_killed_with_it(
    hand_in: Callable[..., JobRecord], tmp_path: Path
) -> None:
    package = tmp_path / "deaf" / "calotype"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(DEAF)
    given = [f"python={sys.executable}", f"environment.PYTHONPATH={package.parent}", "launcher=torchrun"]
    record = hand_in(*given, "processes_per_node=2", "grace_s=1", "time_limit=1h")

    def pids() -> list[int]:
        return [int(pid) for pid in re.findall(r"waits (\d+)\n", (record.logs / "node-0.log").read_text())]

    until(lambda: (record.logs / "node-0.log").exists() and len(pids()) == 2, "both have started")
    LocalBackend().cancel(record)
    assert ended(record) is JobState.CANCELLED
    assert [process_start_time(pid) for pid in pids()] == [None, None]


@pytest.mark.parametrize("settings", [("setup=[echo is prepared, exit 3]",), ("directory=/nowhere/at/all",)])
@pytest.mark.parametrize("array", [None, 2])
def test_a_job_that_fails_before_its_command_has_failed(
    hand_in: Callable[..., JobRecord], settings: tuple[str, ...], array: int | None
) -> None:
    record = hand_in(*settings, *([f"array={array}"] if array else []))
    assert ended(record) is JobState.FAILED
    assert {task.state for task in LocalBackend().status(record).tasks} <= {JobState.FAILED}


def test_a_cancelled_job_is_told_first(
    hand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    record = hand_in("environment.BEHAVE=wait")
    log = record.logs / "node-0.log"
    until(lambda: log.exists() and "waits" in log.read_text(), "it has started")
    assert run(["launch", "status", record.id]) == 0
    assert capsys.readouterr().out == f"{record.id}: running\n"
    # It is nobody's child and in no session of ours.
    pid = int(record.handle.partition(":")[0])
    assert os.getsid(pid) == pid
    assert run(["launch", "cancel", record.id]) == 0
    assert ended(record) is JobState.CANCELLED
    assert "told to stop" in log.read_text()


def test_the_tasks_of_an_array_run_in_order(hand_in: Callable[..., JobRecord]) -> None:
    record = hand_in("array=3", words=("generate", "{task}/{tasks}"))
    assert ended(record) is JobState.COMPLETED
    said = [(record.logs / f"task-{task}-node-0.log").read_text().split()[-1] for task in range(3)]
    assert said == ["0/3", "1/3", "2/3"]


def test_a_cancelled_array_begins_no_more_tasks(hand_in: Callable[..., JobRecord]) -> None:
    record = hand_in("array=3", "environment.BEHAVE=wait")
    log = record.logs / "task-0-node-0.log"
    until(lambda: log.exists() and "waits" in log.read_text(), "it has started")
    status = LocalBackend().status(record)
    assert [task.state.value for task in status.tasks] == ["running", "pending", "pending"]
    LocalBackend().cancel(record)
    assert ended(record) is JobState.CANCELLED
    assert not (record.logs / "task-1-node-0.log").exists()


def test_tasks_that_were_over_before_an_array_was_cancelled_keep_their_ends(
    hand_in: Callable[..., JobRecord],
) -> None:
    record = hand_in(
        "array=4", "environment.BEHAVE=wait in calotype generate 1", words=("generate", "{task}")
    )
    has_begun(record)
    states = [task.state.value for task in LocalBackend().status(record).tasks]
    assert states == ["completed", "running", "pending", "pending"]
    LocalBackend().cancel(record)
    assert ended(record) is JobState.CANCELLED
    states = [task.state.value for task in LocalBackend().status(record).tasks]
    assert states == ["completed", "cancelled", "cancelled", "cancelled"]


def test_a_killed_job_is_lost_and_another_process_of_its_number_is_not_it(
    hand_in: Callable[..., JobRecord],
) -> None:
    record = hand_in("environment.BEHAVE=wait")
    os.killpg(int(record.handle.partition(":")[0]), 9)
    until(lambda: LocalBackend().status(record).state is JobState.LOST, "it is lost")
    other = record.model_copy(update={"handle": f"{os.getpid()}:1"})
    assert LocalBackend().status(other).state is JobState.LOST
    # Or these tests would end here.
    LocalBackend().cancel(other)


def test_more_than_this_machine_has_is_refused() -> None:
    class OneGpu:
        def survey(self) -> GpuSurvey:
            return GpuSurvey(gpus=(Gpu(0),))

    found = LocalBackend(OneGpu()).check(spec(HERE, gpus_per_node=2, cpus_per_node=100_000))
    assert [problem.field for problem in found] == ["cpus_per_node", "gpus_per_node"]
    assert "ask for at most 1" in found[1].message


def test_jobs_are_listed_and_found_by_id_or_folder(
    hand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = hand_in("name=one"), hand_in("name=two")
    assert (first.id, second.id) == ("one-1", "two-1")
    assert hand_in("name=one").id == "one-2"
    monkeypatch.chdir("/")
    assert find("one-1") == first
    assert find(first.folder) == first
    assert run(["launch", "list", "--json"]) == 0
    assert {job["id"] for job in json.loads(capsys.readouterr().out)} == {"one-1", "one-2", "two-1"}
    assert run(["launch", "status", "tow-1"]) == ExitCode.NOT_FOUND
    assert "did you mean 'two-1'" in capsys.readouterr().err
    with pytest.raises(RequestError):
        find("../one-1")


def test_a_folder_holds_one_job(
    hand_in: Callable[..., JobRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    record = hand_in("work_folder=mine")
    assert record.folder.endswith("/mine")
    assert run(["launch", "submit", "--on=local", "--set=work_folder=mine", "doctor"]) == ExitCode.BAD_REQUEST
    assert "mine already holds a job; use another folder, or {name} in it" in capsys.readouterr().err
    (Path(record.folder) / "launch.json").unlink()
    with pytest.raises(NotFoundError, match=r"the folder of job .* no longer has a launch.json"):
        find(record.id)


@pytest.mark.parametrize("damage", [b"", b'{"format": ', b"\xff\xfe", b"{}"])
def test_a_damaged_row_of_a_benchmark_is_told_without_a_trace(
    hand_in: Callable[..., JobRecord], damage: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    record = hand_in()
    row = Path(record.folder, "record.json")
    row.write_bytes(damage)
    assert run(["launch", "collect", record.id]) == ExitCode.BAD_REQUEST
    assert capsys.readouterr().err.startswith(f"error: {row} is not a benchmark record: ")


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"format": "calotype.launch.9"}'])
def test_a_damaged_record_hides_no_other_job(
    hand_in: Callable[..., JobRecord],
    damage: bytes,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    hand_in("name=whole")
    broken = Path(hand_in("name=broken").folder, "launch.json")
    broken.write_bytes(damage)
    assert run(["launch", "list", "--json"]) == 0
    assert [job["id"] for job in json.loads(capsys.readouterr().out)] == ["whole-1"]
    assert f"job 'broken-1' is skipped: {broken} is not a job record" in caplog.text
    assert run(["launch", "status", "whole"]) == ExitCode.NOT_FOUND
    assert "did you mean 'whole-1'" in capsys.readouterr().err
    assert run(["launch", "status", "broken-1"]) == ExitCode.BAD_REQUEST
    assert f"{broken} is not a job record" in capsys.readouterr().err


def test_two_who_hand_in_at_once_share_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = spec(HERE, work_folder=str(tmp_path / "shared" / "{name}"))
    first = claim_folder(shared)
    # Somebody else, or on another machine: with a state of their own, and nothing is handed in yet.
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "other-state"))
    second = claim_folder(shared)
    assert (first.name, second.name) == ("here-1", "here-2")
    assert first.folder != second.folder
    release_folder(second)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        claim_folder(spec(HERE, work_folder=str(tmp_path / "file" / "{name}")))
    assert claim_folder(shared).name == "here-2", "what was taken back or could not be made is free"
    only = spec(HERE, work_folder=str(tmp_path / "only"))
    claim_folder(only)
    with pytest.raises(RequestError, match="already holds a job"):
        claim_folder(only)


def test_a_folder_that_is_somebody_elses_is_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, touch = tmp_path / "shared" / "here-1", Path.touch
    theirs.mkdir(parents=True)

    def refusing(path: Path, mode: int = 0o666, exist_ok: bool = True) -> None:
        if path.parent == theirs:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        touch(path, mode, exist_ok)

    monkeypatch.setattr(Path, "touch", refusing)
    assert claim_folder(spec(HERE, work_folder=str(tmp_path / "shared" / "{name}"))).name == "here-2"
