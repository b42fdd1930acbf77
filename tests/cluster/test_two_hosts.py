"""Training over two hosts: what one host trains, whatever is cut off, killed or lost on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import LONGEST_S, Host, is_running, two_hosts, until
from tests.small_models import shallow_folder
from tests.unit.train.children import run_on_two_ranks, surroundings
from tests.unit.train.runs import arguments, assert_same, furthest, metrics, settings, state_in
from tests.warm_python import warm_python

PORT = 29600
# As in tests/unit/train/test_elastic.py: so that sums in another order are not enlarged.
CHANGES: dict[str, Any] = {
    "trainer__max_steps": 6,
    "trainer__devices": 1,
    "trainer__nodes": 2,
    "trainer__peer_timeout_s": 12,
    "optimizer__eps": 1e-3,
    "optimizer__learning_rate": 1e-3,
    "model__micro_batch_size": 1,
    "model__global_batch_size": 4,
    "checkpoint__every_steps": 2,
    "checkpoint__asynchronous": False,
}
TOLERANCE = 1e-6
# A node that has said nothing for three seconds is gone. One that is there waits ten for another: on a busy
# machine the two may start that far apart, and the test begins with both.
RENDEZVOUS = "keep_alive_interval=1,keep_alive_max_attempt=3,last_call_timeout=10"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shallow_folder(tmp_path_factory.mktemp("base"), "emoji", 0)


@pytest.fixture(scope="module")
def one_host(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the same two ranks on one host that nobody disturbs."""
    folder = tmp_path_factory.mktemp("one") / "run"
    run_on_two_ranks([line(base, folder, trainer__devices=2, trainer__nodes=1)], folder.parent)
    return folder


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as pair:
        yield pair


def line(base: Path, folder: Path, **changes: Any) -> list[str]:
    empty = folder.parent / "empty.yaml"
    empty.write_text("{}", encoding="utf-8")
    chosen = settings(base, folder, **{**CHANGES, **changes})
    return ["train", str(empty), *arguments(chosen), "--device=cpu"]


@dataclass
class Cluster:
    """One run over two hosts, with what the test holds it by."""

    hosts: tuple[Host, Host]
    base: Path
    place: Path
    nodes: str = "2"
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def run(self) -> Path:
        return self.place / "run"

    def hold(self, *steps: int) -> None:
        for step in steps:
            (self.place / f"hold-{step}").touch()

    def reached(self, step: int, among: list[subprocess.Popen[bytes]]) -> None:
        until((self.place / f"at-{step}").exists, f"step {step}", among)

    def go_on(self, step: int) -> None:
        (self.place / f"hold-{step}").unlink()

    def agent(self, host: Host, worker_python: str | None = None) -> subprocess.Popen[bytes]:
        python, first = warm_python(), self.hosts[0]
        conf = f"is_host={int(host is first)},{RENDEZVOUS}"
        launcher = ["-m", "torch.distributed.run", f"--nnodes={self.nodes}", "--nproc-per-node=1"]
        launcher += ["--max-restarts=9", "--monitor-interval=0.2", "--rdzv-backend=c10d", "--rdzv-id=test"]
        launcher += [f"--rdzv-endpoint={first.address}:{PORT}", f"--rdzv-conf={conf}"]
        launcher += [f"--local-addr={host.address}", "-m", "tests.cluster.paced_run", str(self.place)]
        words = [python, *launcher, *line(self.base, self.run, **self.changes)]
        # Torch 2.13 tells hosts that come later no address otherwise.
        env = {**surroundings(), "GLOO_SOCKET_IFNAME": host.link, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        # Which is what torchrun starts its workers with.
        env["PYTHON_EXEC"] = worker_python or python
        return host.start(words, self.place, env, self.log(host))

    def log(self, host: Host) -> Path:
        return self.place / f"{host.name}.log"

    def said(self, host: Host) -> str:
        return self.log(host).read_text(encoding="utf-8", errors="replace")

    def worker(self, rank: int) -> int:
        return int((self.place / f"pid-{rank}").read_text(encoding="utf-8"))

    def finish(self, agents: list[subprocess.Popen[bytes]]) -> None:
        for agent, host in zip(agents, self.hosts, strict=True):
            assert agent.wait(LONGEST_S) == 0, self.said(host)[-6000:]


def test_cut_off_and_killed_on_the_way_two_hosts_train_what_one_does(
    hosts: tuple[Host, Host], one_host: Path, base: Path, tmp_path: Path
) -> None:
    first, second = hosts
    cluster = Cluster(hosts, base, tmp_path)
    cluster.hold(1, 3, 5)
    agents = [cluster.agent(host) for host in hosts]

    # A moment without the cable is only waited for.
    cluster.reached(1, agents)
    workers = cluster.worker(0), cluster.worker(1)
    second.pull_the_cable()
    cluster.go_on(1)
    until(first.waits_for_answers, "a pulled cable", agents)
    second.plug_it_in()

    # A worker that dies at once, with a step after the last checkpoint.
    cluster.reached(3, agents)
    assert (cluster.worker(0), cluster.worker(1)) == workers
    assert "lost" not in cluster.said(first) + cluster.said(second)
    os.kill(cluster.worker(1), signal.SIGKILL)
    cluster.go_on(3)

    # A host that is gone for longer than anybody waits, and comes back.
    cluster.reached(5, agents)
    assert cluster.worker(1) != workers[1]
    before = len(cluster.said(first)), len(cluster.said(second))
    second.pull_the_cable()
    cluster.go_on(5)
    for host, length, rank in zip(hosts, before, (0, 1), strict=True):
        told = f"rank {rank} of 2 on {host.name} lost the other processes of the run"
        until(lambda h=host, n=length, t=told: t in cluster.said(h)[n:], "an end to waiting", agents)  # type: ignore[misc]
    second.plug_it_in()

    cluster.finish(agents)
    assert_same(state_in(one_host), state_in(cluster.run))
    assert metrics(one_host) == metrics(cluster.run)
    assert [each["step"] for each in metrics(cluster.run)] == list(range(1, 7))


def test_a_lost_host_is_done_without_and_taken_back(
    hosts: tuple[Host, Host], one_host: Path, base: Path, tmp_path: Path
) -> None:
    first, second = hosts
    cluster = Cluster(hosts, base, tmp_path, nodes="1:2", changes={"trainer__elastic": True})
    cluster.hold(1, 3)
    # A worker that is to end with its agent has to be its child.
    agents = [cluster.agent(first), cluster.agent(second, worker_python=sys.executable)]

    cluster.reached(1, agents)
    lost = cluster.worker(1)
    agents[1].kill()
    agents[1].wait(LONGEST_S)
    cluster.go_on(1)
    cluster.reached(3, agents[:1])
    # The first went on alone, and not with an orphan that nobody looks after any more.
    assert not is_running(lost)
    assert len(metrics(cluster.run)) == 3

    (tmp_path / "pid-1").unlink()
    agents[1] = cluster.agent(second)
    until(lambda: "closing signal SIGTERM" in cluster.said(first), "a second host", agents)
    cluster.go_on(3)
    cluster.finish(agents)
    assert (tmp_path / "pid-1").exists(), "the second host took no part again"

    assert [each["step"] for each in metrics(cluster.run)] == list(range(1, 7))
    assert furthest(state_in(cluster.run)["parameters"], state_in(one_host)["parameters"]) <= TOLERANCE
    for mine, theirs in zip(metrics(cluster.run), metrics(one_host), strict=True):
        assert mine["samples"] == theirs["samples"]
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-6)
