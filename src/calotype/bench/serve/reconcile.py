"""Nothing lost, nothing doubled: what clients were told beside what the deployment lists.

Knows nothing of either's ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calotype.bench.serve.load_generator import OK, Sample
from calotype.spec.job import FINAL_STATES


@dataclass(frozen=True)
class Reconciliation:
    """How a run adds up; all lists are empty when it does."""

    asked: int
    listed: int
    lost: tuple[str, ...]
    """Keys whose client had its picture, and whose job the deployment does not list as done."""
    unfinished: tuple[str, ...]
    """Keys of jobs that were accepted and have not ended."""
    doubled: tuple[str, ...]
    """Keys with more than one job."""
    unasked: tuple[str, ...]
    """Keys of jobs that nobody asked for."""
    misnamed: tuple[str, ...]
    """Keys whose client was told another id than the deployment lists."""

    @property
    def is_consistent(self) -> bool:
        return not (self.lost or self.unfinished or self.doubled or self.unasked or self.misnamed)


def reconcile(
    samples: Sequence[Sample], jobs: Iterable[Mapping[str, Any]], key: Callable[[int], str]
) -> Reconciliation:
    """Hold what was asked against what is listed; `key` tells a request's idempotency key by its number."""
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
