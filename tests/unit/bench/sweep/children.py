"""Stands for the processes of points: quick ones that do as they are told. Loads next to nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from calotype.spec.bench_job import Point

STAND_IN = """
import hashlib, json, os, signal, sys
place, *files = sys.argv[1:]
with open(f"{place}/processes", "a") as begun:
    begun.write(f"{os.getpid()}\\n")
for ticket_file, out in zip(files[::2], files[1::2]):
    ticket = json.load(open(ticket_file))
    point, name = ticket["point"], ticket["point"]["name"]
    with open(f"{place}/ran", "a") as ran:
        ran.write(f"{name}/{ticket['round']}\\n")
    record = {
        "id": "ID", "point": name, "round": ticket["round"], "kind": "inference", "model": "emoji",
        "settings": point["settings"], "device": "CPU", "fingerprint": {}, "command": point["command"],
        "started_at": "2026-11-15T12:00:00Z", "status": "ok", "precision": "fp32",
        "work": {"tflop_per_sample": 1.0, "tflops": 20.0},
    }
    job = json.dumps(point["job"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    record["id"] = hashlib.sha256(job.encode()).hexdigest()[:16]
    unfinished = {**record, "status": "error", "message": "ended before it was done", "device": "a GPU"}
    if out != files[1]:
        json.dump(unfinished, open(out, "w"))
    told = open(f"{place}/told/{name}").read() if os.path.exists(f"{place}/told/{name}") else ""
    if told == "hold":
        open(f"{place}/begun", "w").write("x")
        open(f"{place}/release").read()
    if told == "interrupt":
        os.kill(os.getppid(), signal.SIGINT)
    if told in ("hang", "interrupt"):
        signal.pause()
    if told == "refuse":
        json.dump({**record, "status": "oom", "message": "too large"}, open(out, "w"))
        sys.exit()
    if told == "kill at once":
        os.kill(os.getpid(), signal.SIGKILL)
    if told == "exit":
        sys.exit("the disk is on fire")
    json.dump(unfinished if told == "kill" else record, open(out, "w"))
    if told == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Children:
    """Stands for the processes of points; `tell` says how one of them behaves."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "told").mkdir(parents=True, exist_ok=True)

    def tell(self, name: str, behaviour: str) -> None:
        (self.place / "told" / name).write_text(behaviour)

    def invalidate(self, name: str) -> None:
        (self.place / "told" / name).unlink()

    def ran(self) -> list[str]:
        """Names and rounds of the processes there have been, in order."""
        file = self.place / "ran"
        return file.read_text().splitlines() if file.exists() else []

    def processes(self) -> int:
        """How many there have been."""
        return len(self.pids())

    def pids(self) -> list[int]:
        return [int(line) for line in (self.place / "processes").read_text().splitlines()]

    def command(self, ticket: Path, measurement: Path, _point: Point) -> list[str]:
        return [sys.executable, "-c", STAND_IN, str(self.place), str(ticket), str(measurement)]
