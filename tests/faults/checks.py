"""What must hold when the storm is over. Knows nothing of how it went."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from calotype.serve.lifecycle.registry import DeploymentDir, Endpoint
from tests.faults.ledger import Promises

FILES = {"plan.json", "place.lock", "server.log", "queue"}
QUEUE = {"jobs.sqlite", ".lock", "pictures"}
JOURNALS = {"jobs.sqlite-wal", "jobs.sqlite-shm"}
"""Beside the database while it is open, and after a kill until the next start."""


def all_jobs(running: Endpoint) -> list[dict[str, Any]]:
    """Everything it lists, newest first."""
    jobs: list[dict[str, Any]] = []
    with httpx.Client(base_url=running.http, timeout=60, trust_env=False) as client:
        after: str | None = ""
        while after is not None:
            asked = {"limit": "200", **({"before": after} if after else {})}
            page = client.get("/v1/jobs", params=asked).raise_for_status().json()
            jobs, after = jobs + page["jobs"], page["next"]
    return jobs


def check_jobs(promises: Promises, jobs: list[dict[str, Any]]) -> None:
    """Every accepted request ended exactly once, and nothing else was made."""
    keys = Counter(job["idempotency_key"] for job in jobs)
    assert not {key: number for key, number in keys.items() if number != 1}, "more than one job for a key"
    assert set(keys) == promises.meant, "jobs nobody asked for, or asked for and not there"
    listed = {job["idempotency_key"]: job for job in jobs}
    for key, ids in promises.accepted.items():
        assert ids == {listed[key]["id"]}, f"{key} was promised as {ids}"
    wrong = {key: (job["state"], job["failure"]) for key, job in listed.items() if job["state"] != "done"}
    assert not wrong, f"did not end well: {wrong}"
    for key, then in promises.done.items():
        assert listed[key] == then, f"{key} changed after it had ended"


def check_pictures(running: Endpoint, jobs: list[dict[str, Any]]) -> None:
    """Every picture can be read, has the hash that is listed, and is the one that was asked for."""
    with httpx.Client(base_url=running.http, timeout=60, trust_env=False) as client:
        for job in jobs:
            (picture,) = job["pictures"]
            data = client.get(f"/v1/jobs/{job['id']}/pictures/0").raise_for_status().content
            assert hashlib.sha256(data).hexdigest() == picture["sha256"]
            # What the engine that does nothing makes of a seed.
            assert Image.open(BytesIO(data)).getpixel((0, 0)) == job["request"]["seed"] % 256


def check_log(place: DeploymentDir, jobs: list[dict[str, Any]]) -> None:
    """No job was ended twice: a job's end is one line of the log, or none if the server died before it."""
    ids = {job["id"] for job in jobs}
    ends: Counter[str] = Counter()
    for line in place.log.read_text().splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if said.get("job_id") in ids and str(said.get("message", "")).endswith(": done"):
            ends[said["job_id"]] += 1
    assert ends, "the log tells no job's end: its form has changed"
    assert max(ends.values()) == 1, [job for job, number in ends.items() if number > 1]


def check_files(place: DeploymentDir, jobs: list[dict[str, Any]]) -> None:
    """Nothing is left but what belongs there."""
    assert {path.name for path in place.folder.iterdir()} == FILES
    assert {path.name for path in place.queue.iterdir()} - JOURNALS == QUEUE
    used = {picture["sha256"] for job in jobs for picture in job["pictures"]}
    assert {path.name for path in (place.queue / "pictures").iterdir()} == used


def processes_with(mark: str) -> list[int]:
    """Processes, but this one, that were started with `mark` in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            # Gone, or somebody else's.
            except OSError:
                continue
    return found
