"""A real Slurm on this machine for tests: a controller and two nodes, with munge of their own.

Nothing outside its folder is touched, and nothing listens but on loopback. Knows nothing of Calotype.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.ports import free_ports

LONGEST_S = 300.0
NODES = ("n1", "n2")
CPUS, MEMORY_MIB, GPUS = 2, 4000, 2
PARTITION, URGENT, SHORT = "cpu", "urgent", "short"
"""Everybody's; one whose jobs preempt those of the others; one with ten minutes at most."""
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo", "squeue")

Found = TypeVar("Found")


@dataclass(frozen=True)
class Cluster:
    """A running Slurm."""

    configuration: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to talk to it."""
        return {"SLURM_CONF": str(self.configuration)}

    def ask(self, *command: str) -> str:
        """What one of Slurm's programs says."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            check=False,
            timeout=LONGEST_S,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def job(self, number: str) -> dict[str, str]:
        """What the controller knows of a job."""
        words = self.ask("scontrol", "show", "job", "--oneliner", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster for as long as the block lasts; its daemons are ended by their process ids."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    assert not missing, f"{', '.join(missing)} missing; scripts/test-tools installs slurm-wlm and munge"
    cluster = Cluster(_configured(folder))
    environment = {**os.environ, **cluster.environment}
    with ExitStack() as daemons:
        daemons.enter_context(_munge(folder))
        for name, command in (
            ("slurmctld", ["slurmctld", "-D", "-i"]),
            *((f"slurmd.{node}", ["slurmd", "-D", "-N", node]) for node in NODES),
        ):
            daemons.enter_context(_daemon(command, folder / f"{name}.out", environment))
        try:
            until(lambda: _all_idle(cluster), "both nodes idle")
        except AssertionError:
            logs = "\n".join(log.read_text(errors="replace")[-2000:] for log in folder.glob("*.log"))
            raise AssertionError(f"Slurm did not start:\n{logs}") from None
        yield cluster


def until(found: Callable[[], Found | None], what: str, limit_s: float = LONGEST_S) -> Found:
    """Ask until there is an answer."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"no {what} within {limit_s:.0f} s")


@contextmanager
def in_time(limit_s: int = int(LONGEST_S)) -> Iterator[None]:
    """An error in the middle of what takes longer; for what waits by itself."""

    def late(*_: object) -> None:
        raise AssertionError(f"not over within {limit_s} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _all_idle(cluster: Cluster) -> bool:
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--partition", PARTITION, "--format=%T"],
        capture_output=True,
        text=True,
        env={**os.environ, **cluster.environment},
        check=False,
        timeout=LONGEST_S,
    )
    return done.stdout.split() == ["idle"] * len(NODES)


@contextmanager
def _munge(folder: Path) -> Iterator[None]:
    """Munge insists on folders that nobody else can write to, and on a key that nobody else can read."""
    place = folder / "munge"
    place.mkdir(mode=0o755)
    key = place / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    command = ["munged", "--foreground", "--force", f"--socket={place / 'socket'}", f"--key-file={key}"]
    command += [f"--pid-file={place / 'pid'}", f"--seed-file={place / 'seed'}", f"--log-file={place / 'log'}"]
    with _daemon(command, folder / "munged.out", dict(os.environ)):
        until((place / "socket").exists, "socket of munge")
        yield


@contextmanager
def _daemon(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _configured(folder: Path) -> Path:
    host = socket.gethostname().partition(".")[0]
    controller, *ports = free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
        f"RealMemory={MEMORY_MIB} Gres=gpu:{GPUS} Feature=small"
        for node, port in zip(NODES, ports, strict=True)
    )
    # Any two character devices will do as GPUs: nobody opens them.
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
    (folder / "cgroup.conf").write_text("")
    (folder / "state").mkdir()
    configuration = folder / "slurm.conf"
    configuration.write_text(
        f"""ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that was put back into the queue may start again after so many seconds.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=30
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
{nodes}
PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=120
PartitionName={URGENT} Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
PartitionName={SHORT} Nodes={NODES[0]} MaxTime=00:10:00 PriorityTier=1 MaxNodes=1
"""
    )
    return configuration
