"""Runs the phases of a load test: one client, the load, parts of it, and the load on a baseline server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from calotype.bench.serve.clients import Interface, RequestTemplate, open_client
from calotype.bench.serve.load_generator import OK, Ask, Load, LoadResult, Sample, generate_load
from calotype.bench.serve.reconcile import Reconciliation, reconcile
from calotype.bench.serve.server_metrics import JOBS, ROWS, Counted, MemoryUse, ServerMetrics, watch_server
from calotype.bench.serve.stats import LatencyStats, latency_stats
from calotype.bench.serve.targets import Target
from calotype.core.errors import CalotypeError
from calotype.core.progress import Progress
from calotype.serve.tls import Identity, identity_at

WARM_REQUESTS = 1
_SAMPLE_MEMORY_EVERY_S = 1.0


class NoAnswerError(CalotypeError):
    """A load without a usable result."""


@dataclass(frozen=True)
class ServePlan:
    """The load and the phases of a run."""

    load: Load
    interface: Interface = "http"
    request: Mapping[str, Any] = field(default_factory=dict)
    """Values of a GenerateRequest, for all requests."""
    target_s: float | None = None
    """The latency target of goodput."""
    solo: int = 10
    """Requests of a single client before the load."""
    few: tuple[int, ...] = ()
    """Numbers of clients for the phases after the load."""
    shares: tuple[float, ...] = ()
    """Shares of the load's throughput for the phases after that, as arrival rates."""
    timeout_s: float = 600.0
    api_key: str | None = None
    identity: Identity | None = None
    """The TLS identity of the deployment, if it uses TLS."""

    def template(self, phase: str) -> RequestTemplate:
        run = f"bench-{uuid4().hex[:12]}-{phase}"
        return RequestTemplate(self.request, run, self.timeout_s, self.api_key, self.identity)


@dataclass(frozen=True)
class Phase:
    """One phase of a run and its results."""

    name: str
    system: str
    load: Load
    interface: Interface
    figures: LatencyStats
    account: Reconciliation | None = None
    """None if the server does not list jobs."""
    counted: Counted | None = None
    """Increase of the deployment's metrics during the phase."""
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
"""Called with each finished phase and its device, because later phases may be interrupted."""


async def on_deployment(
    target: Target, plan: ServePlan, progress: Progress, finished: Finished
) -> tuple[list[Phase], str]:
    """Run all phases on a deployment; return them and the name of its device."""
    address = target.running.grpc if plan.interface == "grpc" else target.running.http
    if address is None:
        raise NoAnswerError("the deployment has no gRPC interface; measure it over HTTP")
    if (certificate := target.plan.reached.tls_certificate) is not None:
        plan = replace(plan, identity=identity_at(target.running.http, certificate))
    headers, context = plan.template("").headers, plan.identity.context if plan.identity else None
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
            raise NoAnswerError(
                "no request of the load succeeded, so its parts cannot be measured; lower the load"
            )
        for clients in plan.few:
            few = f"{clients} client{'s' * (clients > 1)}"
            await measure(few, replace(plan.load, clients=clients, rate=None))
        for share in plan.shares:
            await measure(f"{share:g} of the load", replace(plan.load, clients=None, rate=share * reached))
        return phases, device


async def _phase(
    name: str, load: Load, address: str, deployment: ServerMetrics, plan: ServePlan, progress: Progress
) -> Phase:
    template = plan.template(name.replace(" ", "-"))
    async with open_client(plan.interface, address, template) as ask:
        await _warm(replace(template, run=f"warm-{template.run}"), plan, address)
        before = await deployment.counted()
        async with deployment.sample_memory(_SAMPLE_MEMORY_EVERY_S) as weight:
            result = await _generate_with_progress(name, load, ask, progress)
        after = await deployment.counted()
    jobs = await deployment.jobs(template.run)
    return Phase(
        name,
        "calotype",
        load,
        plan.interface,
        latency_stats(result, plan.target_s),
        reconcile(result.samples, jobs, template.key),
        after.since(before),
        weight,
    )


async def on_baseline(url: str, plan: ServePlan, progress: Progress) -> Phase:
    """Run the load on the baseline server."""
    template = plan.template("plain")
    plain = replace(plan, interface="plain", api_key=None)
    async with open_client("plain", url, template) as ask:
        await _warm(template, plain, url)
        result = await _generate_with_progress("plain diffusers", plan.load, ask, progress)
    return Phase("load", "diffusers-fastapi", plan.load, "plain", latency_stats(result, plan.target_s))


async def _warm(template: RequestTemplate, plan: ServePlan, address: str) -> None:
    """Send a few warm-up requests and fail early if they do not succeed."""
    async with open_client(plan.interface, address, template) as ask:
        result = await generate_load(Load(clients=1, requests=WARM_REQUESTS), ask)
    wrong = {sample.reply.kind for sample in result.samples} - {OK}
    if wrong:
        raise NoAnswerError(f"the warm-up request failed: {', '.join(sorted(wrong))}")


async def _generate_with_progress(name: str, load: Load, ask: Ask, progress: Progress) -> LoadResult:
    """Generate the load and show its progress in requests or seconds."""
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
        result = await generate_load(load, ask, on_sample)
    if not result.samples:
        raise NoAnswerError(f"{name}: no request was sent in {total} s; raise the rate or the duration")
    return result


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
