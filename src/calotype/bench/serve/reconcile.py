"""Compares the clients' results with the deployment's jobs to find lost and duplicated jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calotype.bench.serve.load_generator import OK, Sample
from calotype.spec.job import FINAL_STATES


@dataclass(frozen=True)
class Reconciliation:
    """The comparison of a run; all lists are empty if it is consistent."""

    asked: int
    listed: int
    lost: tuple[str, ...]
    """Keys whose client received its image, while the deployment does not list the job as done."""
    unfinished: tuple[str, ...]
    """Keys of accepted jobs that have not ended."""
    doubled: tuple[str, ...]
    """Keys with more than one job."""
    unasked: tuple[str, ...]
    """Keys of jobs that no client requested."""
    misnamed: tuple[str, ...]
    """Keys whose client received another job id than the deployment lists."""

    @property
    def is_consistent(self) -> bool:
        return not (self.lost or self.unfinished or self.doubled or self.unasked or self.misnamed)


def reconcile(
    samples: Sequence[Sample], jobs: Iterable[Mapping[str, Any]], key: Callable[[int], str]
) -> Reconciliation:
    """Compare samples with listed jobs; `key` maps the number of a request to its idempotency key."""
    listed = list(jobs)
    number_of = Counter(str(job["idempotency_key"]) for job in listed)
    by_key = {str(job["idempotency_key"]): job for job in listed}
    asked = {key(sample.number): sample.reply for sample in samples}
    well = {name: reply for name, reply in asked.items() if reply.kind == OK}
    return Reconciliation(
        asked=len(asked),
        listed=len(listed),
        lost=tuple(name for name in well if by_key.get(name, {}).get("state") != "done"),
        unfinished=tuple(name for name, job in by_key.items() if job["state"] not in FINAL_STATES),
        doubled=tuple(name for name, number in number_of.items() if number > 1),
        unasked=tuple(name for name in by_key if name not in asked),
        misnamed=tuple(
            name
            for name, reply in asked.items()
            if reply.job_id and name in by_key and by_key[name]["id"] != reply.job_id
        ),
    )
