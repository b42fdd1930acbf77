"""A real Ray cluster on this machine, reached over loopback alone, whose nodes can be killed and added."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from calotype.serve.lifecycle.daemon import stop
from calotype.serve.lifecycle.registry import all_deployment_dirs
from tests.polling import until
from tests.ports import free_ports

CPUS = 4
"""That each node says it has."""
LOOPBACK = "127.0.0.1"
STORE_BYTES = 80 * 2**20


class Nodes:
    """The cluster: a head that stays, and a second node."""

    def __init__(self, gcs_port: int) -> None:
        from ray.cluster_utils import Cluster

        said = {
            "num_cpus": CPUS,
            "node_ip_address": LOOPBACK,
            "gcs_server_port": gcs_port,
            "object_store_memory": STORE_BYTES,
            # Any: others may run a cluster on this machine too.
            "dashboard_agent_listen_port": 0,
            "include_dashboard": False,
            "include_log_monitor": False,
        }
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=said)
        self._second: Any = None

    @property
    def address(self) -> str:
        return cast("str", self._cluster.address)

    def start_second(self) -> None:
        if self._second is None:
            # Ray tells every job of a death when it finds out: jobs of a later test shall not hear of it.
            until(lambda: self.alive() == 1, "the lost node is known to be lost")
            self._second = self._cluster.add_node(
                num_cpus=CPUS, num_gpus=1, node_ip_address=LOOPBACK, object_store_memory=STORE_BYTES
            )

    def start_dashboard(self, port: int) -> subprocess.Popen[bytes]:
        """Of the head: all that takes jobs and tells of them, and none of what draws pages."""
        head, program = self._cluster.head_node, Path(ray_folder(), "dashboard", "dashboard.py")
        said = {
            "host": LOOPBACK,
            "port": port,
            "port-retries": 0,
            "temp-dir": head.get_temp_dir_path(),
            "log-dir": head.get_logs_dir_path(),
            "session-dir": head.get_session_dir_path(),
            "gcs-address": self.address,
            "cluster-id-hex": head.cluster_id.hex(),
            "node-ip-address": LOOPBACK,
            "modules-to-load": "JobHead,NodeHead,StateHead",
        }
        options = [f"--{name}={value}" for name, value in said.items()]
        return subprocess.Popen([sys.executable, str(program), *options])

    def kill_second(self) -> None:
        """The node's own processes, with -9; replicas are no children of the test's."""
        self._cluster.remove_node(self._second, allow_graceful=False)
        self._second = None

    @property
    def second_raylet(self) -> int:
        return cast("int", self._second.all_processes["raylet"][0].process.pid)

    def on_second(self, pid: int) -> bool:
        return self._second is not None and self.second_raylet in _ancestors(pid)

    def alive(self) -> int:
        """How many nodes the cluster believes it has."""
        import ray

        return sum(node["Alive"] for node in ray.nodes()) if ray.is_initialized() else 1

    def actors(self) -> list[str]:
        """The names of all that live in the cluster."""
        import ray

        return sorted(actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True))

    def shut_down(self) -> None:
        self._cluster.shutdown()


def ray_folder() -> str:
    import ray

    return str(Path(ray.__file__).parent)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return
        yield pid


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    # Sockets have short names only: pytest's own folders lie too deep.
    folder = tempfile.mkdtemp(prefix="ray-")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_TMPDIR", folder)
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Then loopback means loopback, in the deployments' processes and, set below, in this one.
        patched.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        # Nobody needs processes before they are asked for.
        patched.setenv("RAY_prestart_worker_first_driver", "0")
        import ray
        from ray._private import ray_constants

        patched.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)
        started = Nodes(*free_ports())
        try:
            started.start_second()
            ray.init(address=started.address, log_to_driver=False, configure_logging=False)
            yield started
        finally:
            ray.shutdown()
            started.shut_down()
            signal.signal(signal.SIGTERM, before)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def dashboard(nodes: Nodes) -> Iterator[str]:
    """The address at which the cluster takes jobs."""
    import socket

    (port,) = free_ports()
    process = nodes.start_dashboard(port)

    def answers() -> bool:
        assert process.poll() is None, "the dashboard has ended"
        with suppress(OSError), socket.create_connection((LOOPBACK, port), 1):
            return True
        return False

    try:
        until(answers, "the dashboard answers")
        yield f"http://{LOOPBACK}:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    yield tmp_path / "state"
    for place in all_deployment_dirs():
        running = place.running()
        if running is not None:
            stop(running, at_once=True)
