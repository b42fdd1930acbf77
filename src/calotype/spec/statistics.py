"""Summary statistics of measurements, used by all records and reports.

Percentiles interpolate linearly between the two nearest values, the default of numpy and most spreadsheets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class Summary(BaseModel):
    """Statistics of at least one number."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    count: int
    mean: float
    stdev: float
    """Of the sample, divided by count − 1; 0 for a single number."""
    min: float
    p5: float
    p25: float
    median: float
    p75: float
    p95: float
    p99: float
    max: float


def summarize(values: Sequence[float]) -> Summary:
    """Mean, spread and percentiles; raises ValueError for empty lists and non-finite values."""
    if not values:
        raise ValueError("nothing was measured: a summary needs at least one number")
    non_finite = [value for value in values if not math.isfinite(value)]
    if non_finite:
        raise ValueError(f"{non_finite[0]} is not a measured number; leave out failed measurements")
    ordered, count = sorted(map(float, values)), len(values)
    mean = math.fsum(ordered) / count
    squares = math.fsum((value - mean) ** 2 for value in ordered)
    return Summary(
        count=count,
        mean=mean,
        stdev=math.sqrt(squares / (count - 1)) if count > 1 else 0.0,
        min=ordered[0],
        p5=percentile(ordered, 5),
        p25=percentile(ordered, 25),
        median=percentile(ordered, 50),
        p75=percentile(ordered, 75),
        p95=percentile(ordered, 95),
        p99=percentile(ordered, 99),
        max=ordered[-1],
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Percentile `share` (0 to 100) of numbers in ascending order."""
    position = (len(ordered) - 1) * share / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
