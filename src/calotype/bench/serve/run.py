"""The phases of a run: one client alone, the load, less of it; then the same load on a plain server.

Knows nothing of how servers are started, nor of what is written down.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from calotype.bench.serve.clients import Interface, Response, open_client
from calotype.bench.serve.load_generator import OK, Ask, Load, LoadResult, Sample, generate_load
from calotype.bench.serve.reconcile import Reconciliation, reconcile
from calotype.bench.serve.server_metrics import JOBS, ROWS, Counted, MemoryUse, ServerMetrics, watch_server
from calotype.bench.serve.stats import LatencyStats, latency_stats
from calotype.bench.serve.targets import Target
from calotype.core.errors import CalotypeError
from calotype.core.progress import Progress
from calotype.serve.tls import Identity, identity_at

WARM_REQUESTS = 1
_WEIGH_EVERY_S = 1.0


class NoAnswerError(CalotypeError):
    """A load of which nothing can be told."""


@dataclass(frozen=True)
class ServePlan:
    """What to put on whom."""

    load: Load
    interface: Interface = "http"
    request: Mapping[str, Any] = field(default_factory=dict)
    """Values of a GenerateRequest, for all requests."""
    target_s: float | None = None
    """What goodput counts."""
    solo: int = 10
    """Requests of one client by itself, before the load."""
    few: tuple[int, ...] = ()
    """After the load: so many clients, each of which waits for its answer."""
    shares: tuple[float, ...] = ()
    """After that: arrivals at each of these shares of the throughput it reached."""
    timeout_s: float = 600.0
    api_key: str | None = None
    identity: Identity | None = None
    """Of a deployment that speaks TLS."""

    def asked(self, phase: str) -> Response:
        run = f"bench-{uuid4().hex[:12]}-{phase}"
        return Response(self.request, run, self.timeout_s, self.api_key, self.identity)


@dataclass(frozen=True)
class Phase:
    """One part of a run, and all that is known of it."""

    name: str
    system: str
    load: Load
    interface: Interface
    figures: LatencyStats
    account: Reconciliation | None = None
    """None of a server that lists nothing."""
    counted: Counted | None = None
    """What the deployment's metrics gained."""
    weight: MemoryUse | None = None

    @property
    def batch_rows(self) -> dict[str, int]:
        return self.counted.histogram(ROWS) if self.counted else {}

    @property
    def batch_jobs(self) -> dict[str, int]:
        return self.counted.histogram(JOBS) if self.counted else {}

    @property
    def mean_jobs(self) -> float | None:
        return self.counted.mean(JOBS) if self.counted else None


Finished = Callable[[Phase, str], None]
"""Told of a phase when it is over, and of the name of what it ran on: what follows may be interrupted."""


async def on_deployment(
    target: Target, plan: ServePlan, progress: Progress, finished: Finished
) -> tuple[list[Phase], str]:
    """All phases on a deployment, and the name of what it runs on."""
    address = target.running.grpc if plan.interface == "grpc" else target.running.http
    if address is None:
        raise NoAnswerError("the deployment has no gRPC interface; measure it over HTTP")
    if (certificate := target.plan.reached.tls_certificate) is not None:
        plan = replace(plan, identity=identity_at(target.running.http, certificate))
    headers, context = plan.asked("").headers, plan.identity.context if plan.identity else None
    async with watch_server(target.running.http, target.running.pid, headers, context) as deployment:
        workers = (await deployment.status())["workers"]
        device = ", ".join(sorted({str(worker["device"]) for worker in workers}))
        phases: list[Phase] = []

        async def measure(name: str, load: Load) -> None:
            phases.append(await _phase(name, load, address, deployment, plan, progress))
            finished(phases[-1], device)

        if plan.solo:
            await measure("solo", Load(clients=1, requests=plan.solo))
        await measure("load", plan.load)
        reached = phases[-1].figures.throughput
        if (plan.few or plan.shares) and not reached:
            raise NoAnswerError("nothing ended well under the load: there is no share of it")
        for clients in plan.few:
            few = f"{clients} client{'s' * (clients > 1)}"
            await measure(few, replace(plan.load, clients=clients, rate=None))
        for share in plan.shares:
            await measure(f"{share:g} of the load", replace(plan.load, clients=None, rate=share * reached))
        return phases, device


async def _phase(
    name: str, load: Load, address: str, deployment: ServerMetrics, plan: ServePlan, progress: Progress
) -> Phase:
    asked = plan.asked(name.replace(" ", "-"))
    async with open_client(plan.interface, address, asked) as ask:
        await _warm(replace(asked, run=f"warm-{asked.run}"), plan, address)
        before = await deployment.counted()
        async with deployment.weighed(_WEIGH_EVERY_S) as weight:
            driven = await _driven(name, load, ask, progress)
        after = await deployment.counted()
    jobs = await deployment.jobs(asked.run)
    return Phase(
        name,
        "calotype",
        load,
        plan.interface,
        latency_stats(driven, plan.target_s),
        reconcile(driven.samples, jobs, asked.key),
        after.since(before),
        weight,
    )


async def on_baseline(url: str, plan: ServePlan, progress: Progress) -> Phase:
    """The same load on the plain server."""
    asked = plan.asked("plain")
    plain = replace(plan, interface="plain", api_key=None)
    async with open_client("plain", url, asked) as ask:
        await _warm(asked, plain, url)
        driven = await _driven("plain diffusers", plan.load, ask, progress)
    return Phase("load", "diffusers-fastapi", plan.load, "plain", latency_stats(driven, plan.target_s))


async def _warm(asked: Response, plan: ServePlan, address: str) -> None:
    """A few requests for nobody; what cannot be asked at all is said here."""
    async with open_client(plan.interface, address, asked) as ask:
        driven = await generate_load(Load(clients=1, requests=WARM_REQUESTS), ask)
    wrong = {sample.reply.kind for sample in driven.samples} - {OK}
    if wrong:
        raise NoAnswerError(f"a first request was answered with {', '.join(sorted(wrong))}")


async def _driven(name: str, load: Load, ask: Ask, progress: Progress) -> LoadResult:
    """Drive, and show how it goes: requests done, or seconds gone by."""
    total = load.requests or round(load.warmup_s + (load.duration_s or 0.0))
    begin, kinds = asyncio.get_running_loop().time() + load.warmup_s, Counter[bool]()
    progress.start(name, total)

    def show() -> None:
        progress.describe(f"{name}: {kinds.total()} requests, {kinds[False]} errors")
        progress.advance()

    def on_sample(sample: Sample) -> None:
        kinds[sample.reply.kind == OK] += 1
        if load.requests is not None and sample.due_s >= begin:
            show()

    async with _every_second(show) if load.requests is None else nullcontext():
        driven = await generate_load(load, ask, on_sample)
    if not driven.samples:
        raise NoAnswerError(f"{name}: nothing was asked in {total} s; ask more often or for longer")
    return driven


@asynccontextmanager
async def _every_second(show: Callable[[], None]) -> AsyncIterator[None]:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            show()

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
