"""What traces amount to: made-up ones with known answers, and a piece of a real one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calotype.bench.profile.chrome_trace import WINDOW, Trace, innermost, read_trace, trace_of
from calotype.bench.profile.launch_bound import Advice, launch_bound_time
from calotype.bench.profile.load_trace import profile_trace
from calotype.bench.profile.summary import groups_of, kernels_of, stages_of
from calotype.core.errors import NotFoundError, RequestError
from calotype.spec.records.profile import Waiting
from tests.unit.cli.conftest import Calotype

REAL = Path(__file__).parent / "training_step.json.gz"
GEMM, CONV, ADD = (
    "nvjet_sm90_tst_NNN",
    "sm90_xmma_fprop_implicit_gemm_nhwc",
    "vectorized_elementwise_kernel<4>",
)
ADVICE = Advice(for_host=("launch less",), for_data=("fetch more",))


def event(
    cat: str, name: str, start: float, end: float, lane: int = 7, call: int | None = None
) -> dict[str, Any]:
    when = {"ts": 1000 + start, "dur": end - start}
    arguments = {} if call is None else {"correlation": call}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": lane, **when, "args": arguments}


def two_streams() -> list[dict[str, Any]]:
    """A window of 100: both streams at work from 30 to 40, nothing from 60 to 80 nor at the ends."""
    return [
        event("user_annotation", WINDOW, 0, 100, lane=1),
        event("user_annotation", "step", 5, 75, lane=1),
        event("user_annotation", "data", 76, 80, lane=1),
        event("cuda_runtime", "cudaLaunchKernel", 5, 9, lane=1, call=1),
        event("cuda_runtime", "cudaLaunchKernel", 11, 14, lane=1, call=2),
        event("cuda_runtime", "cudaLaunchKernel", 75, 79, lane=1, call=3),
        event("kernel", GEMM, 10, 40, call=1),
        event("kernel", CONV, 30, 60, lane=8, call=2),
        event("kernel", ADD, 80, 90, call=3),
        event("gpu_memset", "Memset (Device)", 200, 300),
        event("cpu_op", "aten::mm", 5, 10, lane=1),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 0, "id": 1},
    ]


def _shares(trace: Trace) -> dict[str, float]:
    return {one.group: round(one.share, 9) for one in groups_of(trace, kernels_of(trace)) if one.share}


def test_shares_of_overlapping_streams_add_up_to_the_window() -> None:
    trace = trace_of(two_streams())
    assert _shares(trace) == {"matmul": 0.25, "convolution": 0.25, "elementwise": 0.1, "launch gaps": 0.4}
    kernels = kernels_of(trace)
    assert [(one.name, one.count) for one in kernels] == [(GEMM, 1), (CONV, 1), (ADD, 1)]
    assert [one.seconds for one in kernels] == pytest.approx([25e-6, 25e-6, 10e-6])


def test_stages_by_the_host_and_by_the_device() -> None:
    (step,) = stages_of(trace_of(two_streams()), ["step"])
    assert step.count == 1
    assert (step.host_s, step.device_s) == pytest.approx((70e-6, 50e-6))


def test_what_another_thread_starts_meanwhile_is_the_stages_too() -> None:
    events = [
        event("user_annotation", WINDOW, 0, 100, lane=1),
        event("user_annotation", "backward", 0, 10, lane=1),
        event("user_annotation", "optimizer", 10, 20, lane=1),
        event("cuda_runtime", "cudaGraphLaunch", 3, 5, lane=2, call=1),
        event("cuda_runtime", "cudaLaunchKernel", 12, 13, lane=1, call=2),
        event("kernel", GEMM, 4, 40, call=1),
        event("kernel", CONV, 40, 60, call=1),
        event("kernel", ADD, 60, 63, call=2),
    ]
    found = stages_of(trace_of(events), ["backward", "optimizer"])
    assert [one.device_s for one in found] == pytest.approx([56e-6, 3e-6])


def test_the_device_waits_where_nothing_was_asked_of_it() -> None:
    # The first 10, from 60 to 80, since the launch came at 75, and the last 10.
    found = launch_bound_time(trace_of(two_streams()), ADVICE)
    assert (found.verdict, found.advice) == ("host-bound", ["launch less"])
    figures = (found.busy_s, found.idle_s, found.waiting_s, found.waiting_for_data_s, found.launch_s)
    assert figures == pytest.approx((60e-6, 40e-6, 40e-6, 4e-6, 11e-6))
    assert found.launches == 3
    assert "busy 0.1 ms" in found.message


def _with_launch_at(start: float) -> Waiting:
    """The last kernel's launch moved."""
    events = two_streams()
    place = next(
        place for place, one in enumerate(events) if one["name"] == "cudaLaunchKernel" and one["ts"] == 1075
    )
    events[place] = event("cuda_runtime", "cudaLaunchKernel", start, start + 1, lane=1, call=3)
    return launch_bound_time(trace_of(events), ADVICE)


def test_a_gap_before_work_that_was_queued_in_time_is_the_devices_own() -> None:
    assert _with_launch_at(61).waiting_s == pytest.approx(40e-6)
    assert _with_launch_at(59).waiting_s == pytest.approx(20e-6)


def test_waiting_for_data_is_told_apart() -> None:
    events = [one for one in two_streams() if one["name"] != "data"]
    events.append(event("user_annotation", "data", 60, 80, lane=1))
    events.append(event("user_annotation", "data", 90, 100, lane=1))
    found = launch_bound_time(trace_of(events), ADVICE)
    assert (found.verdict, found.advice) == ("data-bound", ["fetch more"])


def test_what_only_the_profiler_makes_wait_does_not_count() -> None:
    trace = trace_of(two_streams())
    # Alone the same work takes hardly longer than its kernels.
    found = launch_bound_time(trace, ADVICE, unprofiled_s=62e-6)
    assert (found.verdict, found.advice) == ("device-bound", [])
    assert found.waiting_s == pytest.approx(2e-6)
    assert launch_bound_time(trace, ADVICE, unprofiled_s=90e-6).verdict == "host-bound"


def test_kernels_of_a_graph_wait_for_nobody() -> None:
    launch = event("cuda_runtime", "cudaGraphLaunch", 0, 2, lane=1, call=1)
    kernels = [event("kernel", GEMM, start, start + 4, call=1) for start in range(3, 48, 5)]
    found = launch_bound_time(trace_of([launch, *kernels]), ADVICE)
    assert (found.verdict, found.launches) == ("device-bound", 1)
    assert found.waiting_s == 0


def test_operations_have_the_time_that_none_inside_them_has() -> None:
    events = [
        event("cpu_op", "aten::linear", 0, 10, lane=1),
        event("cpu_op", "aten::t", 0, 2, lane=1),
        event("cpu_op", "aten::addmm", 3, 9, lane=1),
        event("cpu_op", "aten::copy_", 4, 5, lane=1),
        event("cpu_op", "aten::add", 12, 16, lane=1),
        event("cpu_op", "aten::mul", 14, 18, lane=2),
    ]
    trace = trace_of(events)
    own: dict[str, float] = {}
    for name, when in innermost(trace.operations):
        own[name] = own.get(name, 0) + when.length
    inner = {"aten::linear": 2, "aten::t": 2, "aten::addmm": 5, "aten::copy_": 1}
    assert own == {**inner, "aten::add": 4, "aten::mul": 4}
    # Both threads from 14 to 16; nothing from 10 to 12.
    found = {one.group: one.seconds * 1e6 for one in groups_of(trace, kernels_of(trace)) if one.seconds}
    expected = {"matmul": 7, "elementwise": 6, "memory": 1, "other": 2, "launch gaps": 2}
    assert found == pytest.approx(expected)
    assert launch_bound_time(trace, ADVICE).verdict == "on the host"


def test_a_piece_of_a_real_training_step_against_time_counted_by_the_nanosecond() -> None:
    trace = read_trace(REAL)
    record = profile_trace(REAL, "calotype profile trace")
    shares = {one.group: one.share for one in record.groups}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["other"] == 0
    assert min(shares[group] for group in ("matmul", "convolution", "attention", "normalisation")) > 0
    moments = np.zeros(round(trace.window.length * 1000), dtype=bool)
    for one in json.loads(gzip.decompress(REAL.read_bytes()))["traceEvents"]:
        if one["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            start = round((one["ts"] - trace.window.start) * 1000)
            moments[start : start + round(one["dur"] * 1000)] = True
    assert record.waiting.busy_s == pytest.approx(moments.sum() * 1e-9, rel=1e-3)
    assert (record.waiting.verdict, record.waiting.launches) == ("host-bound", 260)
    assert sum(one.count for one in record.kernels) == 260


def test_a_trace_from_elsewhere_on_the_command_line(calotype: Calotype) -> None:
    done = calotype("profile", "trace", REAL, "--top", 3)
    assert done.code == 0, done.err
    assert all(words in done.out for words in ("launch gaps", "host-bound", "→"))
    told = json.loads(calotype("profile", "trace", REAL, "--json", "--top", 3).out)
    assert len(told["kernels"]) == 3
    assert told["clock"] == "device"


@pytest.mark.parametrize("content", [b"not json", b"[]", b"{}", b'{"traceEvents": []}', b"\x1f\x8bbroken"])
def test_what_is_no_trace_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(content)
    with pytest.raises(RequestError, match="is no Chrome trace"):
        read_trace(file)


def test_a_trace_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no trace"):
        read_trace(tmp_path / "nowhere.json")
