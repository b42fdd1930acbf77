"""Two hosts on this machine: network namespaces joined by a cable, each with a name and address of its own.

What one starts reaches the other through the cable alone, which can be pulled. Everything is removed at the
end by its name, also what a killed run left. Needs root. Knows nothing of training.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PREFIX = "calotype-"
LONGEST_S = 240.0
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Host:
    name: str
    """As `hostname` says there."""
    address: str
    namespace: str
    link: str
    """Its end of the cable."""

    def start(
        self, command: Sequence[str], folder: Path, env: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """A program there, with all it says at the end of `log`. Its pid is the program's own."""
        named = f'hostname {self.name}; exec "$@"'
        with log.open("ab") as out:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "unshare", "-u", "sh", "-c", named, "sh", *command],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def pull_the_cable(self) -> None:
        run("ip", "-n", self.namespace, "link", "set", self.link, "down")

    def plug_it_in(self) -> None:
        run("ip", "-n", self.namespace, "link", "set", self.link, "up")

    def waits_for_answers(self) -> bool:
        """Whether something was sent again without an answer."""
        sockets = run("ip", "netns", "exec", self.namespace, "ss", "-tnio").stdout
        return any(f"backoff:{times}" in sockets for times in range(1, 9))

    def kill_all(self) -> None:
        """Everything that runs there, at once."""
        for pid in run("ip", "netns", "pids", self.namespace).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """The first and the second; nothing of them is left afterwards."""
    _remove_what_was_left()
    mine = os.getpid()
    hosts = [
        Host(f"host-{side}", f"10.77.0.{number}", f"{PREFIX}{mine}-{side}", f"c{mine}{side}")
        for number, side in enumerate("ab", start=1)
    ]
    first, second = hosts
    try:
        for host in hosts:
            run("ip", "netns", "add", host.namespace)
        cable = ["type", "veth", "peer", "name", second.link, "netns", second.namespace]
        run("ip", "link", "add", first.link, "netns", first.namespace, *cable)
        for host in hosts:
            run("ip", "-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.link)
            run("ip", "-n", host.namespace, "link", "set", "lo", "up")
            host.plug_it_in()
        yield first, second
    finally:
        for host in hosts:
            _remove(host.namespace)


def until(condition: Callable[[], bool], what: str, among: Sequence[subprocess.Popen[bytes]] = ()) -> None:
    """Wait for it; an error when it takes too long, or when a program that it needs has ended."""
    latest = time.monotonic() + LONGEST_S
    while not condition():
        for program in among:
            assert program.poll() is None, f"ended with {program.returncode} before {what}"
        assert time.monotonic() < latest, f"{what} did not happen within {LONGEST_S:g} s"
        time.sleep(_PAUSE_S)


def is_running(pid: int) -> bool:
    """Not one that has ended and that nobody has asked about yet, either."""
    try:
        state = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except FileNotFoundError:
        return False
    return state not in "ZX"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)


def _remove_what_was_left() -> None:
    for line in run("ip", "netns", "list").stdout.splitlines():
        name = line.split(maxsplit=1)[0]
        owner = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and not Path("/proc", owner).exists():
            _remove(name)


def _remove(namespace: str) -> None:
    """With all that runs in it; its end of the cable goes with it."""
    with suppress(subprocess.CalledProcessError):
        for pid in run("ip", "netns", "pids", namespace).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        run("ip", "netns", "del", namespace)
