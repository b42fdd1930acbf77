"""Evaluates every number of rows that jobs may share, for nobody, before the first job.

Otherwise whoever first makes one more in an evaluation waits until kernels are compiled or chosen for it and
recorded as a graph: a second or two, in which others arrive. Knows nothing of jobs.
"""

from __future__ import annotations

import logging

from calotype.core.errors import DiskFullError, DoesNotFitError
from calotype.core.progress import Progress
from calotype.engine.artifacts.shapes import Shape
from calotype.engine.device import is_out_of_memory
from calotype.engine.engine import Engine
from calotype.engine.memory_planner import MAX_AT_ONCE
from calotype.serve.worker.row_limits import bucket
from calotype.spec.generate_request import GenerateRequest

_log = logging.getLogger(__name__)


def warmup_batch_sizes(most_rows: int) -> list[int]:
    """Numbers of pictures with guidance that fill the rows which are evaluated, up to so many."""
    return sorted({bucket(rows) // 2 for rows in range(2, most_rows + 1, 2) if bucket(rows) <= most_rows})


def warm_up_batches(engine: Engine, most_rows: int, progress: Progress) -> None:
    """At the model's own size: a picture with all that belongs to it, then evaluations of ever more.

    What does not fit is left to requests, which may be for smaller ones.
    """
    try:
        _warm(engine, most_rows, progress)
    except (DiskFullError, DoesNotFitError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        _log.warning("not everything is warmed up: %s", error)


def _warm(engine: Engine, most_rows: int, progress: Progress) -> None:
    side = engine.model.architecture.native_size
    engine.warm_up([Shape(side, side)], progress)
    resolved = engine.resolve_defaults(GenerateRequest(prompt="", width=side, height=side))
    fitting = engine.plan_memory(resolved.with_changes(count=MAX_AT_ONCE)).batch_size
    counts = [count for count in warmup_batch_sizes(most_rows) if 1 < count <= fitting]
    progress.start("warming up", len(counts))
    for count in counts:
        progress.describe(f"warming up {count} pictures together")
        engine.warm_up_batch(resolved, count)
        progress.advance()
