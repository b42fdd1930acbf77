"""Stands for the processes of points: quick ones that do as they are told. Loads next to nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from calotype.spec.measurement_job import Point

STAND_IN = """
import json, os, signal, sys
place, ticket_file, out = sys.argv[1:]
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
record["id"] = open(f"{place}/ids/{name}").read()
told = open(f"{place}/told/{name}").read() if os.path.exists(f"{place}/told/{name}") else ""
if told == "hold":
    open(f"{place}/begun", "w").write("x")
    open(f"{place}/release").read()
if told == "interrupt":
    os.kill(os.getppid(), signal.SIGINT)
if told in ("hang", "interrupt"):
    signal.pause()
if told == "kill at once":
    os.kill(os.getpid(), signal.SIGKILL)
if told == "exit":
    sys.exit("the disk is on fire")
if told == "kill":
    record |= {"status": "error", "message": "ended before it was done", "device": "a GPU"}
json.dump(record, open(out, "w"))
if told == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Children:
    """Stands for the processes of points; `tell` says how one of them behaves."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for folder in ("ids", "told"):
            (place / folder).mkdir(parents=True, exist_ok=True)

    def tell(self, name: str, behaviour: str) -> None:
        (self.place / "told" / name).write_text(behaviour)

    def forget(self, name: str) -> None:
        (self.place / "told" / name).unlink()

    def ran(self) -> list[str]:
        """Names and rounds of the processes there have been, in order."""
        file = self.place / "ran"
        return file.read_text().splitlines() if file.exists() else []

    def command(self, ticket: Path, measurement: Path, point: Point) -> list[str]:
        (self.place / "ids" / point.name).write_text(point.id)
        return [sys.executable, "-c", STAND_IN, str(self.place), str(ticket), str(measurement)]
