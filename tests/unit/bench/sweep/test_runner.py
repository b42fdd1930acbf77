"""Whatever becomes of a point's process is a row, the sweep goes on, and nothing is measured twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from calotype.bench.records.store import append, read
from calotype.bench.sweep.points import parse_sweep, points_of
from calotype.bench.sweep.runner import SweepPlan, run_sweep
from calotype.core.progress import Silent
from calotype.spec.records.measurement import FILE
from tests.polling import until
from tests.unit.bench.records.conftest import made_up
from tests.unit.bench.sweep.children import Children
from tests.unit.bench.sweep.conftest import points
from tests.unit.train.children import surroundings

SWEEP = """
import sys
from pathlib import Path
from calotype.bench.sweep.runner import SweepPlan, run_sweep
from calotype.core.progress import Silent
from calotype.spec.bench_job import Point
from tests.unit.bench.sweep.children import Children
place, run, *points = sys.argv[1:]
asked = [Point.model_validate_json(point) for point in points]
run_sweep(SweepPlan(asked, Path(run), command=Children(Path(place)).command), Silent())
"""


def runs(pid: int) -> bool:
    """Whether there is such a process that somebody has yet to end."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_rounds_go_over_all_points(children: Children, tmp_path: Path) -> None:
    done = run_sweep(SweepPlan(points(1, 2), tmp_path / "run", rounds=2, command=children.command), Silent())
    assert children.ran() == [f"batch={n}/{r}" for r in (1, 2) for n in (1, 2)]
    assert [(m.point, m.round) for m in done.measurements] == [
        ("batch=1", 1),
        ("batch=1", 2),
        ("batch=2", 1),
        ("batch=2", 2),
    ]
    assert done.finished


def test_what_is_recorded_is_not_run_again(children: Children, tmp_path: Path) -> None:
    plan = SweepPlan(points(1, 2), tmp_path / "run", command=children.command)
    run_sweep(plan, Silent())
    more = SweepPlan(points(1, 2, 3), tmp_path / "run", rounds=2, command=children.command)
    # Somebody else's line in the file is nobody's business.
    append(tmp_path / "run" / FILE, made_up("another"))
    done = run_sweep(more, Silent())
    assert children.ran()[2:] == ["batch=3/1", "batch=1/2", "batch=2/2", "batch=3/2"]
    assert len(done.measurements) == 6
    assert run_sweep(more, Silent()).measurements == done.measurements


def test_a_killed_a_failed_and_a_hanging_process_are_rows(children: Children, tmp_path: Path) -> None:
    for name, behaviour in {"1": "kill", "2": "kill at once", "3": "exit", "4": "hang"}.items():
        children.tell(f"batch={name}", behaviour)
    plan = SweepPlan(points(1, 2, 3, 4, 5), tmp_path / "run", limit_s=1.5, command=children.command)
    killed, at_once, failed, hung, fine = run_sweep(plan, Silent()).measurements
    assert [m.status for m in (killed, at_once, failed, hung, fine)] == ["error"] * 4 + ["ok"]
    assert "code -9" in str(killed.message)
    assert "killed" in str(killed.message)
    # It had found out as much before it was killed.
    assert killed.device == "a GPU"
    assert "code -9" in str(at_once.message)
    assert at_once.id == plan.points[1].id
    assert at_once.fingerprint["machine"]["python"]
    assert "the disk is on fire" in str(failed.message)
    assert "limit of 1.5 s" in str(hung.message)
    assert hung.seconds_in_all
    assert hung.seconds_in_all > 1.5
    assert all((tmp_path / "run" / "logs" / f"{m.id}-1.log").exists() for m in (killed, hung))


def test_points_of_one_model_follow_each_other_in_one_process_until_one_fails(
    children: Children, tmp_path: Path
) -> None:
    for name, behaviour in {"2": "refuse", "3": "kill", "5": "hang"}.items():
        children.tell(f"batch={name}", behaviour)
    asked = points(1, 2, 3, 4, 5, 6)
    plan = SweepPlan(asked, tmp_path / "run", limit_s=1.5, command=children.command, keep_loaded=True)
    done = run_sweep(plan, Silent())
    assert [m.status for m in done.measurements] == ["ok", "oom", "error", "ok", "error", "ok"]
    assert "code -9" in str(done.measurements[2].message)
    assert "limit of 1.5 s" in str(done.measurements[4].message)
    assert [m.point for m in done.measurements] == [f"batch={n}" for n in range(1, 7)]
    # 1 and 2, 3, 4 and 5, 6.
    assert children.processes() == 4
    assert children.ran() == [f"batch={n}/1" for n in range(1, 7)]
    for number in (2, 3, 5):
        children.invalidate(f"batch={number}")
    again = SweepPlan(
        asked, tmp_path / "run", command=children.command, keep_loaded=True, retry_failed=True, rounds=2
    )
    assert {m.status for m in run_sweep(again, Silent()).measurements} == {"ok"}
    assert children.processes() == 5
    assert children.ran()[6:9] == ["batch=2/1", "batch=3/1", "batch=5/1"]


def test_what_cannot_share_a_model_has_its_own_process(children: Children, tmp_path: Path) -> None:
    axes = {"model": ["emoji", "sd15"], "preset": ["low-memory", "fast", "baseline"]}
    systems = ["calotype", "diffusers-eager", "diffusers-compile"]
    asked = points_of(parse_sweep({"kind": "inference", "axes": axes, "systems": systems}))
    plan = SweepPlan(asked, tmp_path / "run", command=children.command, keep_loaded=True)
    assert run_sweep(plan, Silent()).finished
    # One for each model; of either its low-memory point and that of the compiled peer are apart.
    assert children.processes() == 2 * (1 + 2)


def test_ctrl_c_in_a_shared_process_keeps_what_was_whole(children: Children, tmp_path: Path) -> None:
    children.tell("batch=2", "interrupt")
    plan = SweepPlan(points(1, 2, 3), tmp_path / "run", command=children.command, keep_loaded=True)
    stopped = run_sweep(plan, Silent())
    assert not stopped.finished
    assert [m.point for m in stopped.measurements] == ["batch=1"]
    children.invalidate("batch=2")
    assert run_sweep(plan, Silent()).finished
    assert children.ran() == ["batch=1/1", "batch=2/1", "batch=2/1", "batch=3/1"]


def test_failures_are_run_again_when_asked(children: Children, tmp_path: Path) -> None:
    children.tell("batch=1", "exit")
    plan = SweepPlan(points(1, 2), tmp_path / "run", command=children.command)
    run_sweep(plan, Silent())
    assert [m.status for m in run_sweep(plan, Silent()).measurements] == ["error", "ok"]
    children.invalidate("batch=1")
    again = SweepPlan(points(1, 2), tmp_path / "run", command=children.command, retry_failed=True)
    assert [m.status for m in run_sweep(again, Silent()).measurements] == ["ok", "ok"]
    assert children.ran() == ["batch=1/1", "batch=2/1", "batch=1/1"]


def test_a_known_ceiling_makes_a_share(children: Children, tmp_path: Path) -> None:
    asked = []

    def ceiling(device: str, precision: str) -> float:
        asked.append((device, precision))
        return 80.0

    plan = SweepPlan(points(1), tmp_path / "run", command=children.command, ceiling=ceiling)
    [measurement] = run_sweep(plan, Silent()).measurements
    assert asked == [("CPU", "fp32")]
    assert measurement.work
    assert (measurement.work.ceiling_tflops, measurement.work.share_of_ceiling) == (80.0, 0.25)


def test_a_sweep_that_is_killed_goes_on_where_it_was(children: Children, tmp_path: Path) -> None:
    children.tell("batch=2", "hold")
    for pipe in ("begun", "release"):
        os.mkfifo(children.place / pipe)
    run, asked = tmp_path / "run", points(1, 2, 3)
    command = [sys.executable, "-c", SWEEP, str(children.place), str(run)]
    with subprocess.Popen([*command, *(p.model_dump_json() for p in asked)], env=surroundings()) as sweep:
        (children.place / "begun").read_text()
        sweep.kill()
    # Nobody was left to end the process of its point, which would hold the device.
    until(lambda: not runs(children.pids()[-1]), "the point's process ends with the sweep")
    whole = read(run / FILE)
    assert ([m.point for m in whole.measurements], whole.faults) == (["batch=1"], ())
    children.invalidate("batch=2")
    done = run_sweep(SweepPlan(asked, run, command=children.command), Silent())
    assert [m.status for m in done.measurements] == ["ok"] * 3
    assert children.ran() == ["batch=1/1", "batch=2/1", "batch=2/1", "batch=3/1"]


def test_ctrl_c_leaves_whole_lines_and_the_same_command_goes_on(children: Children, tmp_path: Path) -> None:
    children.tell("batch=2", "interrupt")
    plan = SweepPlan(points(1, 2, 3), tmp_path / "run", command=children.command)
    stopped = run_sweep(plan, Silent())
    assert not stopped.finished
    assert [m.point for m in stopped.measurements] == ["batch=1"]
    lines = (tmp_path / "run" / FILE).read_bytes()
    assert lines.count(b"\n") == 1
    assert lines.endswith(b"\n")
    children.invalidate("batch=2")
    assert run_sweep(plan, Silent()).finished
    assert children.ran() == ["batch=1/1", "batch=2/1", "batch=2/1", "batch=3/1"]
