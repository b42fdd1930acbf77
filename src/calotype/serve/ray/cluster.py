"""Connects this process to a running Ray cluster, or starts a local one."""

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
"""The Ray namespace of the actors."""
ANSWERS_WITHIN_S = 10.0
LOOPBACK = "127.0.0.1"


async def connect(plan: ClusterSettings) -> None:
    """Connect to the cluster, in a thread: in the main thread Ray would install its SIGTERM handler."""
    await asyncio.to_thread(_connect, plan.address)


def _connect(address: str | None) -> None:
    # Ray's only message would be that it leaves SIGTERM alone.
    logging.getLogger("ray").setLevel(logging.ERROR)
    if address is not None:
        _check_answers(address)
    try:
        ray.init(address=address or "auto", namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except ConnectionError as error:
        if address is not None:
            raise _unreachable(address, error) from None
        _start_local()
    except (RuntimeError, ValueError) as error:
        raise UnavailableError(f"cannot connect to the Ray cluster: {error}") from error


def _start_local() -> None:
    """Start a cluster on this machine only; it ends with this process, and other machines cannot reach it."""
    # Disable Ray's usage statistics, which it sends over the network by default.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray replaces the loopback address and listens on all interfaces.
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
    """Check the address first: Ray retries for minutes before it reports that nothing listens."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        rule = f"{address!r} is not HOST:PORT of a Ray cluster's head node"
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
    """Return a function that starts replicas; this process must be connected to the cluster."""
    gpus = plan.gpus_per_replica
    if gpus is None:
        gpus = 1.0 if options.device != "cpu" and ray.cluster_resources().get("GPU") else 0.0
    if gpus == 0 and not plan.resources and options.device is None:
        # Without an assigned GPU it must not use those of other actors on its node.
        options = replace(options, device="cpu")
    share = ActorResources(plan.cpus_per_replica, gpus, plan.resources)

    async def start() -> RayWorker:
        if not await asyncio.to_thread(_is_connected):
            raise UnavailableError("Ray has died on the server's node; deploy again when Ray runs again")
        return RayWorker(name, options, share)

    return start


def _is_connected() -> bool:
    """Whether this process is still connected: otherwise no replica would ever start."""
    here = ray.get_runtime_context().get_node_id()
    return any(node["Alive"] and node["NodeID"] == here for node in ray.nodes())


def disconnect() -> None:
    """Disconnect from the cluster; this ends our actors."""
    ray.shutdown()
