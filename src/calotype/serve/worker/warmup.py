"""Evaluates every batch size once before the first job.

Otherwise the first batch of each size would wait one or two seconds for kernel compilation, autotuning and
CUDA graph capture, while other jobs arrive.
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
    """Return the numbers of images with guidance that fill the batch sizes up to `most_rows`."""
    return sorted({bucket(rows) // 2 for rows in range(2, most_rows + 1, 2) if bucket(rows) <= most_rows})


def warm_up_batches(engine: Engine, most_rows: int, progress: Progress) -> None:
    """Generate one image at the model's native size, then evaluate ever larger batches.

    Sizes that do not fit stay cold: requests may be for smaller images.
    """
    try:
        _warm(engine, most_rows, progress)
    except (DiskFullError, DoesNotFitError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        _log.warning("warm-up is incomplete: %s", error)


def _warm(engine: Engine, most_rows: int, progress: Progress) -> None:
    side = engine.model.architecture.native_size
    engine.warm_up([Shape(side, side)], progress)
    resolved = engine.resolve_defaults(GenerateRequest(prompt="", width=side, height=side))
    fitting = engine.plan_memory(resolved.with_changes(count=MAX_AT_ONCE)).batch_size
    counts = [count for count in warmup_batch_sizes(most_rows) if 1 < count <= fitting]
    progress.start("warming up", len(counts))
    for count in counts:
        progress.describe(f"warming up a batch of {count} images")
        engine.warm_up_batch(resolved, count)
        progress.advance()
