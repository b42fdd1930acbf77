"""Kills server, worker and client at random moments, restarts what died, and looks at what is left.

Moments are counted in promises, and a random moment after: so a kill hits work under way on a fast machine
and on a slow one.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from select import poll

import httpx

from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.daemon import deploy, stop
from calotype.serve.lifecycle.registry import DeploymentDir
from tests.faults import checks, ledger
from tests.polling import until

VICTIMS = ("server", "worker", "client", "starting server")
MOST_PROMISES = 12
"""Lines of the ledger from one kill to the next."""
LONGEST_WAIT_S = 300.0
MARK = "CALOTYPE_FAULTS"


def killed(pid: int) -> None:
    """kill -9, and wait until it is gone."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(watched, signal.SIGKILL)
        gone = poll()
        gone.register(watched)
        assert gone.poll(LONGEST_WAIT_S * 1000), f"{pid} does not end"
    except ProcessLookupError:
        return
    finally:
        os.close(watched)


@dataclass
class Storm:
    """One deployment, one client, and who kills them."""

    folder: Path
    seed: int = 0
    engine: str = "nothing"
    steps: int = 4
    tell: Callable[[str], None] = print
    _client: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.place = DeploymentDir(self.folder / "stormy")
        self.book = self.folder / "promises.jsonl"
        self.plan = DeploymentConfig.parse(
            {
                "name": "stormy",
                "models": ("emoji",),
                "devices": ("cpu",),
                "engine": self.engine,
                # A job is not to blame for these deaths, however many hit it.
                "queue": {"max_losses": 100},
            }
        )

    def run(self, kills: int) -> dict[str, int]:
        """The whole storm; how often each victim died."""
        chance = random.Random(self.seed)
        died = dict.fromkeys(VICTIMS, 0)
        deploy(self.plan, directory=self.place)
        try:
            self._start_client()
            for number in range(kills):
                self._promises_more(chance.randint(1, MOST_PROMISES))
                time.sleep(chance.uniform(0.0, 0.03))
                victim = VICTIMS[number] if number < len(VICTIMS) else chance.choice(VICTIMS)
                self._kill(victim, chance)
                died[victim] += 1
                self.tell(f"{number + 1}/{kills}: {victim} killed; {len(self._promised().meant)} jobs so far")
            self._end_client()
            self._look()
        finally:
            self._clear_up()
        return died

    def _promised(self) -> ledger.Promises:
        return ledger.read(self.book)

    def _lines(self) -> int:
        return self.book.read_bytes().count(b"\n") if self.book.exists() else 0

    def _promises_more(self, number: int) -> None:
        wanted = self._lines() + number
        until(lambda: self._lines() >= wanted, "the client gets promises")

    def _start_client(self) -> None:
        command = [sys.executable, "-m", "tests.faults.client", str(self.place.folder), str(self.book)]
        self._client = subprocess.Popen([*command, f"--steps={self.steps}"])

    def _kill(self, victim: str, chance: random.Random) -> None:
        match victim:
            case "server":
                self._kill_server()
                deploy(self.plan, directory=self.place)
            case "starting server":
                self._kill_server()
                command = [sys.executable, "-m", "calotype.serve.lifecycle", str(self.place.folder)]
                with self.place.log.open("ab") as log:
                    starting = subprocess.Popen(command, stdout=log, stderr=log)
                time.sleep(chance.uniform(0.0, 2.0))
                starting.kill()
                starting.wait(60)
                deploy(self.plan, directory=self.place)
            case "worker":
                killed(self._worker())
            case _:
                assert self._client is not None
                self._client.kill()
                self._client.wait(60)
                self._start_client()

    def _kill_server(self) -> None:
        running = self.place.running()
        assert running is not None, "the server died by itself"
        killed(running.pid)

    def _worker(self) -> int:
        """Its number, once there is one that works."""
        found: list[int] = []

        def there() -> bool:
            running = self.place.running()
            assert running is not None, "the server died by itself"
            said = httpx.get(f"{running.http}/v1/deployment", timeout=60, trust_env=False)
            found[:] = [
                worker["pid"]
                for worker in said.raise_for_status().json()["workers"]
                if worker["state"] == "ready"
            ]
            return bool(found)

        until(there, "a worker is ready")
        return found[0]

    def _end_client(self) -> None:
        """It sees the end of everything it has asked for."""
        assert self._client is not None
        # One that was just started may not know yet what SIGTERM means.
        self._promises_more(1)
        self._client.terminate()
        assert self._client.wait(LONGEST_WAIT_S) == 0

    def _look(self) -> None:
        running = self.place.running()
        assert running is not None, "the server died by itself"
        promises = self._promised()
        assert not promises.open, f"never seen to end: {sorted(promises.open)}"
        jobs = checks.all_jobs(running)
        checks.check_jobs(promises, jobs)
        if self.engine == "nothing":
            checks.check_pictures(running, jobs)
        stop(running, at_once=False)
        checks.check_log(self.place, jobs)
        checks.check_files(self.place, jobs)
        mark = os.environ[MARK]
        until(lambda: not checks.processes_with(f"{MARK}={mark}"), "no process is left behind")

    def _clear_up(self) -> None:
        if self._client is not None and self._client.poll() is None:
            self._client.kill()
            self._client.wait(60)
        running = self.place.running()
        if running is not None:
            stop(running, at_once=True)
