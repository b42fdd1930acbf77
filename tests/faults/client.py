"""A process that asks a deployment on and on, whatever happens to it: `python -m tests.faults.client`.

What it means to ask is on disk before it asks, what it was promised before it goes on. A killed one is
followed by another, which first asks again for everything whose end was not seen, with the same keys. Half of
its threads speak HTTP, half gRPC. SIGTERM: no new jobs, and it ends when it has seen the end of all.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import grpc
import httpx

from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.grpc.calotype_pb2_grpc import CalotypeStub
from calotype.serve.lifecycle.registry import DeploymentDir, Endpoint
from tests.faults import ledger

PAUSE_S = 0.05
PATIENCE_S = 120.0
"""One question to a server that hangs; the storm would notice."""


class DownError(Exception):
    """Nobody answers there now."""


def values_of(key: str, steps: int) -> dict[str, Any]:
    """What a key stands for, so that a later client asks for the same."""
    number = int(key.rpartition("-")[2])
    return {"prompt": f"fault:slow {key}", "steps": steps, "seed": number, "width": 64, "height": 64}


class Asker:
    """Asks for one key after the other."""

    def __init__(self, place: DeploymentDir, book: ledger.Ledger, steps: int) -> None:
        self._place, self._book, self._steps = place, book, steps

    def see_done(self, key: str, over_http: bool) -> None:
        """Ask until the job's end is known; the ledger has every promise on the way."""
        while True:
            running = self._place.running()
            try:
                if running is None:
                    raise DownError
                (self._by_http if over_http else self._by_grpc)(running, key)
                return
            except (DownError, httpx.TransportError):
                time.sleep(PAUSE_S)

    def _by_http(self, running: Endpoint, key: str) -> None:
        with httpx.Client(base_url=running.http, timeout=PATIENCE_S, trust_env=False) as client:
            body = {"request": values_of(key, self._steps)}
            said = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
            if said.status_code in (429, 503):
                raise DownError
            job = said.raise_for_status().json()
            self._book.note(key=key, id=job["id"])
            # With the key once more: the same job, and this time its end.
            said = client.post("/v1/jobs?wait=true", json=body, headers={"Idempotency-Key": key})
            if said.status_code in (429, 503):
                raise DownError
            job = said.raise_for_status().json()
            self._book.note(key=key, id=job["id"])
            if job["state"] in ("queued", "running"):
                raise DownError
            self._book.note(key=key, job=job)

    def _by_grpc(self, running: Endpoint, key: str) -> None:
        assert running.grpc is not None
        asked = pb.Submission(request=pb.GenerateRequest(**values_of(key, self._steps)), idempotency_key=key)
        with grpc.insecure_channel(running.grpc) as channel:
            stub = CalotypeStub(channel)
            try:
                self._book.note(key=key, id=stub.Submit(asked, timeout=PATIENCE_S).id)
                made = stub.Generate(asked, timeout=PATIENCE_S)
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
                    raise DownError from None
                raise
            with httpx.Client(base_url=running.http, timeout=PATIENCE_S, trust_env=False) as client:
                job = client.get(f"/v1/jobs/{made.job.id}").raise_for_status().json()
            self._book.note(key=key, id=made.job.id)
            self._book.note(key=key, job=job)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("book", type=Path)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    chosen = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    known = ledger.read(chosen.book)
    again: SimpleQueue[str] = SimpleQueue()
    for key in sorted(known.open):
        again.put(key)
    fresh = itertools.count(len(known.meant))
    book = ledger.Ledger(chosen.book)
    asker = Asker(DeploymentDir(chosen.folder), book, chosen.steps)

    def work(over_http: bool) -> None:
        while True:
            try:
                key = again.get_nowait()
            except Empty:
                if stopping.is_set():
                    return
                key = f"key-{next(fresh)}"
                book.note(key=key)
            asker.see_done(key, over_http)

    threads = [
        threading.Thread(target=work, args=(number % 2 == 0,), daemon=True)
        for number in range(chosen.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
