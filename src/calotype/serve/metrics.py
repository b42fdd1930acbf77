"""Prometheus metrics of a deployment."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_STEP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ROWS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)


class Metrics:
    """The metrics of one deployment, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.queued = Gauge("calotype_jobs_queued", "Queued jobs", registry=registry)
        self.running = Gauge("calotype_jobs_running", "Running jobs", registry=registry)
        self.accepted = Counter("calotype_jobs_accepted", "Jobs accepted", registry=registry)
        self.ended = Counter(
            "calotype_jobs_ended", "Jobs ended, by final state", ["state"], registry=registry
        )
        self.failures = Counter("calotype_job_failures", "Jobs failed, by kind", ["kind"], registry=registry)
        self.refused = Counter(
            "calotype_jobs_refused", "Submissions refused, by reason", ["reason"], registry=registry
        )
        self.wait_seconds = Histogram(
            "calotype_job_wait_seconds",
            "Time from acceptance to a worker",
            buckets=_SECONDS,
            registry=registry,
        )
        self.job_seconds = Histogram(
            "calotype_job_seconds", "Time from acceptance to images", buckets=_SECONDS, registry=registry
        )
        self.images = Counter("calotype_images", "Images finished", ["model"], registry=registry)
        self.step_seconds = Histogram(
            "calotype_step_seconds", "One UNet evaluation", buckets=_STEP_SECONDS, registry=registry
        )
        self.batch_rows = Histogram(
            "calotype_batch_rows", "Rows of one UNet evaluation", buckets=_ROWS, registry=registry
        )
        self.batch_jobs = Histogram(
            "calotype_batch_jobs", "Jobs that shared one UNet evaluation", buckets=_ROWS, registry=registry
        )
        self.worker_restarts = Counter(
            "calotype_worker_restarts", "Worker restarts", ["worker"], registry=registry
        )
        self.worker_hangs = Counter(
            "calotype_worker_hangs", "Workers killed because they hung", ["worker"], registry=registry
        )
        self.workers_ready = Gauge("calotype_workers_ready", "Workers that can take jobs", registry=registry)
        self.memory_bytes = Gauge(
            "calotype_worker_memory_bytes",
            "Memory for the weights of a worker's models",
            ["worker"],
            registry=registry,
        )
        self.free_bytes = Gauge(
            "calotype_worker_free_memory_bytes",
            "Free memory for the weights of a worker's models",
            ["worker"],
            registry=registry,
        )
