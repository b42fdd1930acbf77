"""This process as a member of a Ray cluster: of one that runs, or of one of its own.

Knows nothing of what replicas do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import replace

import ray
from ray._private import ray_constants

from calotype.core.errors import Problem, RequestError
from calotype.serve.ray.actor_worker import ActorResources, RayWorker
from calotype.serve.ray.settings import ClusterSettings
from calotype.serve.scheduler.worker_protocol import StartWorker
from calotype.serve.service import UnavailableError
from calotype.serve.worker.options import WorkerOptions

NAMESPACE = "calotype"
"""Of the actors, in the cluster."""
ANSWERS_WITHIN_S = 10.0
LOOPBACK = "127.0.0.1"


async def connect(plan: ClusterSettings) -> None:
    """Become a member. From a thread: in the main one Ray would take SIGTERM for itself."""
    await asyncio.to_thread(_join, plan.address)


def _join(address: str | None) -> None:
    # That it leaves SIGTERM alone is all it would say.
    logging.getLogger("ray").setLevel(logging.ERROR)
    if address is not None:
        _check_answers(address)
    try:
        ray.init(address=address or "auto", namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except ConnectionError as error:
        if address is not None:
            raise _unreachable(address, error) from None
        _start_own()
    except (RuntimeError, ValueError) as error:
        raise UnavailableError(f"the Ray cluster cannot be joined: {error}") from error


def _start_own() -> None:
    """A cluster of this machine alone, which ends with this process and nobody else can reach."""
    # Ray counts its users over the network unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray takes loopback for a mistake otherwise, and listens to every machine that can reach this one.
    ray_constants.ENABLE_RAY_CLUSTER = False
    ray.init(
        address="local",
        namespace=NAMESPACE,
        log_to_driver=False,
        configure_logging=False,
        include_dashboard=False,
        _node_ip_address=LOOPBACK,
    )


def _check_answers(address: str) -> None:
    """Ray itself asks for minutes before it says that nobody is there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        rule = f"{address!r} is not HOST:PORT of a Ray cluster's head"
        raise RequestError([Problem("cluster.address", rule, address)])
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S).close()
    except OSError as error:
        raise _unreachable(address, error) from None


def _unreachable(address: str, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"no Ray cluster answers at {address}: {error}; start one with `ray start --head`, "
        "or leave --ray-address out"
    )


def worker_starter(name: str, plan: ClusterSettings, options: WorkerOptions) -> StartWorker:
    """Starts replicas of a deployment; this process is a member of the cluster by now."""
    gpus = plan.gpus_per_replica
    if gpus is None:
        gpus = 1.0 if options.device != "cpu" and ray.cluster_resources().get("GPU") else 0.0
    if gpus == 0 and not plan.resources and options.device is None:
        # Others may have the GPUs that its node has.
        options = replace(options, device="cpu")
    share = ActorResources(plan.cpus_per_replica, gpus, plan.resources)

    async def start() -> RayWorker:
        if not await asyncio.to_thread(_member):
            raise UnavailableError("Ray has died on the server's own node; deploy again when it is back")
        return RayWorker(name, options, share)

    return start


def _member() -> bool:
    """Whether this process still is in the cluster: nothing that it asks for would ever begin otherwise."""
    here = ray.get_runtime_context().get_node_id()
    return any(node["Alive"] and node["NodeID"] == here for node in ray.nodes())


def disconnect() -> None:
    """Leave the cluster; what was ours in it ends."""
    ray.shutdown()
