"""Rates by a clock that says what it was told, and by the real one on sizes that cost nothing."""

from __future__ import annotations

import pytest
import torch

from calotype.engine.microbenchmarks import Call, Sizes, matmul, measure_rate, trials_for
from calotype.spec.records.device_peak import NoRate, Rate

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
TINY = Sizes(matrix=16, channels=4, pixels=8, pictures=2, heads=2, tokens=8, copied_bytes=4096)


class Clock:
    """Runs what it times, and says what it was told to say for one call."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds)
        self.counts: list[int] = []

    def __call__(self, call: Call, count: int) -> float:
        call()
        self.counts.append(count)
        return self._seconds.pop(0) * count


def test_the_best_and_the_median_of_samples_after_a_warm_up() -> None:
    # The warm-up, however quick, and the call that tells how many make a sample do not count.
    clock = Clock(1e-9, 0.002, 0.004, 0.001, 0.002)
    found = measure_rate(matmul("fp32", TINY), CPU, repeats=3, seconds_of=clock)
    assert isinstance(found, Rate)
    assert clock.counts == [3, 1, 10, 10, 10]
    assert found.calls == 10
    assert found.seconds == pytest.approx([0.004, 0.001, 0.002])
    assert found.best == pytest.approx(2 * 16**3 / 0.001 / 1e12)
    assert found.median == pytest.approx(2 * 16**3 / 0.002 / 1e12)


def test_the_work_of_every_kind_is_counted_as_a_loop_would() -> None:
    work = {trial.what: trial.work for trial in trials_for(CPU, TINY)}
    outputs = 2 * 4 * 8 * 8
    scores = 2 * 2 * 8 * 8
    assert work == {
        "matmul": 16 * 16 * 16 * 2,
        "convolution": outputs * 4 * 3 * 3 * 2,
        "attention": scores * 64 * 2 * 2,
        "copy": 2 * 4096,
    }


def test_everything_runs_by_the_real_clock() -> None:
    found = [measure_rate(trial, CPU, repeats=2) for trial in trials_for(CPU, TINY)]
    assert [one.what for one in found if isinstance(one, Rate)] == [
        "matmul",
        "convolution",
        "attention",
        "copy",
    ]
    assert all(0 < one.median <= one.best for one in found if isinstance(one, Rate))


def test_a_gpu_is_asked_for_every_precision() -> None:
    asked = [(trial.what, trial.dtype) for trial in trials_for(GPU, TINY)]
    products = [dtype for what, dtype in asked if what == "matmul"]
    assert products == ["fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
    assert {("convolution", "fp16"), ("attention", "bf16"), ("copy", "fp32")} <= set(asked)


def test_what_a_device_cannot_do_is_an_answer() -> None:
    def prepare(_: torch.Generator) -> Call:
        raise NotImplementedError("no eight bits here\nstack")

    trial = matmul("fp8", TINY)
    found = measure_rate(type(trial)(**{**vars(trial), "prepare": prepare}), CPU)
    assert found == NoRate(what="matmul", dtype="fp8", reason="no eight bits here")


def test_the_numbers_are_noise_and_nobody_elses_draws_change() -> None:
    before = torch.random.get_rng_state()
    seen: list[torch.Tensor] = []

    def clock(call: Call, count: int) -> float:
        result = call()
        assert isinstance(result, torch.Tensor)
        seen.append(result.clone())
        return count * 1.0

    for trial in trials_for(CPU, TINY):
        measure_rate(trial, CPU, repeats=1, seconds_of=clock)
        assert seen[-1].std() > 0.1
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_precision_of_products_is_put_back() -> None:
    before = torch.get_float32_matmul_precision()
    inside: list[str] = []

    def clock(call: Call, count: int) -> float:
        inside.append(torch.get_float32_matmul_precision())
        return 1.0

    for dtype in ("fp32", "tf32"):
        measure_rate(matmul(dtype, TINY), CPU, repeats=1, seconds_of=clock)
    assert (inside[0], inside[-1]) == ("highest", "high")
    assert torch.get_float32_matmul_precision() == before
