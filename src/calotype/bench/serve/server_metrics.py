"""Reads a deployment's metrics and status over HTTP, and the memory of its processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any

import httpx

PAGE = 200
ROWS, JOBS = "calotype_batch_rows", "calotype_batch_jobs"


@dataclass(frozen=True)
class Counted:
    """A snapshot of the deployment's metrics."""

    values: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]

    def total(self, name: str) -> float:
        """Sum over all labels."""
        return sum(value for (found, _), value in self.values.items() if found == name)

    def since(self, before: Counted) -> Counted:
        """Return the increase since `before`, which is meaningful for counters and histograms only."""
        return Counted({key: value - before.values.get(key, 0.0) for key, value in self.values.items()})

    def histogram(self, name: str) -> dict[str, int]:
        """Return the count of each non-empty bucket by its upper bound."""
        bounds = {
            dict(labels)["le"]: value
            for (found, labels), value in self.values.items()
            if found == f"{name}_bucket"
        }
        counts, below = {}, 0.0
        for bound in sorted(bounds, key=float):
            if bounds[bound] > below:
                counts[bound.removesuffix(".0")] = round(bounds[bound] - below)
            below = bounds[bound]
        return counts

    def mean(self, name: str) -> float | None:
        count = self.total(f"{name}_count")
        return self.total(f"{name}_sum") / count if count else None


def parse_metrics(text: str) -> Counted:
    """Parse the Prometheus text format."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - only where served

    families = text_string_to_metric_families(text)
    samples = (sample for family in families for sample in family.samples)
    return Counted({(one.name, tuple(sorted(one.labels.items()))): one.value for one in samples})


@dataclass
class MemoryUse:
    """Main memory of the deployment's processes during a load."""

    bytes: list[int] = field(default_factory=list)
    """Samples of the resident memory of server and workers together."""

    @property
    def growth(self) -> int:
        """Growth from the middle of the load, when all caches are filled, to its end."""
        return self.bytes[-1] - self.bytes[len(self.bytes) // 2]


class ServerMetrics:
    """Reads the metrics, status and jobs of a deployment."""

    def __init__(self, client: httpx.AsyncClient, server_pid: int) -> None:
        self._client, self._server = client, server_pid

    async def counted(self) -> Counted:
        answer = await self._client.get("/metrics", headers={"accept": "text/plain"})
        return parse_metrics(answer.raise_for_status().text)

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self._client.get("/v1/deployment")).raise_for_status().json()
        return found

    async def resident_bytes(self) -> int:
        workers = (await self.status())["workers"]
        return sum(resident_bytes([self._server, *(one["pid"] for one in workers if one["pid"])]))

    async def jobs(self, keys_begin_with: str) -> list[dict[str, Any]]:
        """Return all jobs of a run, newest first."""
        found: list[dict[str, Any]] = []
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            query = {"limit": PAGE, **({"before": page["next"]} if page["next"] else {})}
            page = (await self._client.get("/v1/jobs", params=query)).raise_for_status().json()
            found += [
                job for job in page["jobs"] if (job["idempotency_key"] or "").startswith(keys_begin_with)
            ]
        return found

    @asynccontextmanager
    async def sample_memory(self, every_s: float) -> AsyncIterator[MemoryUse]:
        """Sample the memory while the block runs, including its start and end."""
        memory = MemoryUse([await self.resident_bytes()])

        async def sample() -> None:
            while True:
                await asyncio.sleep(every_s)
                with suppress(httpx.HTTPError):
                    memory.bytes.append(await self.resident_bytes())

        sampling = asyncio.create_task(sample())
        try:
            yield memory
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
        memory.bytes.append(await self.resident_bytes())


@asynccontextmanager
async def watch_server(
    url: str, server_pid: int, headers: Mapping[str, str], context: SSLContext | None
) -> AsyncIterator[ServerMetrics]:
    """Connect to a deployment; `context` verifies its TLS certificate."""
    verify = True if context is None else context
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=60, verify=verify, trust_env=False
    ) as client:
        yield ServerMetrics(client, server_pid)


def resident_bytes(pids: Iterable[int]) -> Sequence[int]:
    """Return the resident memory of each process; 0 for one that has ended."""
    return [_resident(Path(f"/proc/{pid}/status")) for pid in pids]


def _resident(status: Path) -> int:
    with suppress(OSError):
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0
