"""Told to stop while it compiles, a run ends well: at once in its first step, later when the step is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest

from calotype.train import train as run_module
from calotype.train.checkpoint.preemption import STOP_SIGNALS
from calotype.train.distributed.failure import RanksLostError
from calotype.train.signals import SignalShelter, StoppedBeforeFirstStep, TrainingStop
from tests.stop_signals import tell_to_stop
from tests.unit.train.children import run_alone, run_on_two_ranks, surroundings
from tests.unit.train.runs import (
    CPU,
    arguments,
    assert_same,
    metrics,
    saved_state,
    settings,
    small_recipe,
    trained,
)
from tests.warm_python import warm_python

LONGEST_S = 120


def compiling(
    how: str, name: str, call: int, base: Path, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """A run in `folder` that is told to stop by a compiler."""
    words = [how, name, str(call), "train", *_line(base, folder), *options]
    return run_alone("tests.unit.train.compiling_run", words, folder)


def _line(base: Path, folder: Path, **changes: Any) -> list[str]:
    recipe = folder / "empty.yaml"
    recipe.write_text("{}", encoding="utf-8")
    return [str(recipe), *arguments(settings(base, folder / "run", **changes)), "--device=cpu"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_run_whose_first_step_compiles_is_over_at_once(base: Path, tmp_path: Path, name: str) -> None:
    ended = compiling("slow", name, 1, base, tmp_path)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout == "stopped before the first step finished; the same command starts over\n"
    assert "Traceback" not in ended.stderr
    assert trained(small_recipe(base, tmp_path / "run")).step == 4


def test_a_later_step_that_compiles_ends_and_is_saved(base: Path, tmp_path: Path) -> None:
    straight = small_recipe(base, tmp_path / "straight")
    trained(straight)
    ended = compiling("quick", "SIGTERM", 2, base, tmp_path)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.startswith("stopped at step 2 (4 samples)")
    again = compiling("slow", "SIGTERM", 1, base, tmp_path)
    assert again.returncode == 0, again.stderr[-4000:]
    assert again.stdout == "stopped before the first step finished; the same command resumes at step 2\n"
    recipe = small_recipe(base, tmp_path / "run")
    assert trained(recipe).step == 4
    assert_same(saved_state(straight), saved_state(recipe))
    assert metrics(tmp_path / "run") == metrics(tmp_path / "straight")


def test_a_run_that_starts_its_own_ranks_passes_the_signal_on(base: Path, tmp_path: Path) -> None:
    line = _line(base, tmp_path, trainer__devices=2, model__global_batch_size=4, trainer__max_steps=100_000)
    steps = tmp_path / "run" / "metrics.jsonl"
    with subprocess.Popen(
        [warm_python(), "-m", "calotype", "train", *line],
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            latest = time.monotonic() + LONGEST_S
            while not (steps.exists() and steps.read_text().count("\n") >= 2):
                assert child.poll() is None, child.communicate(timeout=LONGEST_S)
                assert time.monotonic() < latest, "no second step within its time"
                time.sleep(0.02)
            child.terminate()
            out, err = child.communicate(timeout=LONGEST_S)
        finally:
            child.kill()
    assert child.returncode == 0, err[-4000:]
    step = saved_state(small_recipe(base, tmp_path / "run"))["step"]
    assert out == f"stopped at step {step} ({4 * step} samples); checkpoints in {tmp_path / 'run'}\n"


def test_who_was_told_before_it_could_listen_begins_nothing(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told(TrainingStop):
        """By a signal that was held back until somebody listened."""

        def __enter__(self) -> Self:
            entered = super().__enter__()
            self.request("SIGTERM")
            return entered

    monkeypatch.setattr(run_module, "TrainingStop", Told)
    assert not trained(small_recipe(base, tmp_path / "run")).begun
    assert not (tmp_path / "run").exists()


def test_waiting_where_no_signal_is_heard_is_given_up(base: Path, tmp_path: Path) -> None:
    ended = compiling("deep", "SIGTERM", 1, base, tmp_path)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "stopped before the end of its first step" in ended.stderr
    assert trained(small_recipe(base, tmp_path / "run")).step == 4


def test_ranks_that_are_told_in_their_first_step_all_end_well(base: Path, tmp_path: Path) -> None:
    line = _line(base, tmp_path, trainer__devices=2, model__global_batch_size=4)
    run_on_two_ranks(
        [["slow", "SIGTERM", "1", "train", *line]], tmp_path, program="tests.unit.train.compiling_run"
    )
    assert not list((tmp_path / "run" / "checkpoints").glob("step-*"))


@pytest.mark.parametrize(
    ("told", "steps", "is_failure"), [(True, 0, False), (True, 1, False), (True, 2, True), (False, 0, True)]
)
def test_peers_that_are_gone_first_are_no_failure_in_the_first_step(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool, steps: int, is_failure: bool
) -> None:
    def lose_the_others(_recipe: Any, _process: Any, stop: TrainingStop, *others: Any) -> None:
        del others
        for _ in range(steps):
            stop.after_step(None, None)
        if told:
            stop.request("SIGTERM")
        raise RanksLostError("they are gone")

    monkeypatch.setattr(run_module, "_train", lose_the_others)
    recipe = small_recipe(base, tmp_path / "run")
    if is_failure:
        with pytest.raises(RanksLostError):
            run_module.train(recipe, device=CPU)
    else:
        assert not run_module.train(recipe, device=CPU).begun


def interrupt_a_wait(number: signal.Signals) -> None:
    """Another thread sends the signal when this one waits, and lets it go if that does not end the wait."""
    main_thread, gate = threading.get_ident(), threading.Lock()
    ended, too_late = threading.Event(), threading.Event()

    def wait() -> None:
        gate.acquire()

    def send() -> None:
        latest = time.monotonic() + LONGEST_S
        while sys._current_frames()[main_thread].f_code is not wait.__code__:
            if time.monotonic() > latest:
                return  # it never waited, so it has ended by itself
            time.sleep(0.001)
        os.kill(os.getpid(), number)
        if not ended.wait(30):
            too_late.set()
            gate.release()

    with gate:
        sender = threading.Thread(target=send)
        sender.start()
        try:
            wait()
        finally:
            ended.set()
            sender.join(LONGEST_S)
            assert not too_late.is_set(), f"{number.name} interrupted nothing"


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_wait_before_the_first_step_is_interrupted(number: signal.Signals) -> None:
    with pytest.raises(StoppedBeforeFirstStep), TrainingStop(owns_process=False):
        interrupt_a_wait(number)


def test_a_second_interrupt_does_not_wait_either_in_the_first_step_or_later() -> None:
    with TrainingStop(owns_process=False):
        with pytest.raises(StoppedBeforeFirstStep):
            interrupt_a_wait(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt_a_wait(signal.SIGINT)
    with TrainingStop(owns_process=False) as stop:
        stop.after_step(None, None)
        tell_to_stop(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt_a_wait(signal.SIGINT)


def test_processes_of_a_run_are_sheltered_and_later_ones_are_not() -> None:
    suicide = ["/bin/sh", "-c", "kill -s TERM $$"]
    before = _surroundings_of_signals()
    with SignalShelter():
        assert subprocess.run(suicide, timeout=LONGEST_S, check=False).returncode == 0
    assert subprocess.run(suicide, timeout=LONGEST_S, check=False).returncode == -signal.SIGTERM
    assert _surroundings_of_signals() == before


def _surroundings_of_signals() -> tuple[object, ...]:
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    handlers = [signal.getsignal(number) for number in (*STOP_SIGNALS, signal.SIGURG)]
    return wakeup, handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ()), threading.active_count()
