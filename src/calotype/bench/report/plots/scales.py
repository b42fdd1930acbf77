"""Maps numbers to positions on an axis, and chooses and formats tick values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Scale:
    """Maps a range of numbers to a range of the drawing."""

    low: float
    high: float
    start: float
    end: float
    kind: Literal["linear", "log"] = "linear"

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.kind == "log":
            low, high, at = math.log(low), math.log(high), math.log(value)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def round_ticks(high: float, most: int = 5) -> list[float]:
    """Return ticks from zero to `high` or above, in steps of 1, 2 or 5 times a power of ten."""
    if high <= 0:
        return [0.0, 1.0]
    rough = high / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * (1 - 1e-9))
    count = math.ceil(high / step - 1e-9)
    return [step * number for number in range(count + 1)]


def powers(low: float, high: float, base: int = 10) -> list[float]:
    """Return the powers of `base` that enclose `low` to `high`."""
    first = math.floor(math.log(low, base) + 1e-9)
    last = math.ceil(math.log(high, base) - 1e-9)
    return [float(base) ** power for power in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Return 1, 2 and 5 times powers of ten around a range, or only the powers if those are too many."""
    steps = [part * power for power in powers(low, high) for part in (1.0, 2.0, 5.0)]
    first = max((i for i, step in enumerate(steps) if step <= low * (1 + 1e-9)), default=0)
    last = next((i for i, step in enumerate(steps) if step >= high * (1 - 1e-9)), len(steps) - 1)
    fine = steps[first : max(last, first + 1) + 1]
    return fine if len(fine) <= most else powers(low, high)


def shown(value: float) -> str:
    """Format a tick label."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def figure(value: float) -> str:
    """Format a measured number with three digits, including trailing zeros."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def apart(places: Sequence[float], gaps: Sequence[float], low: float, high: float) -> list[float]:
    """Move places apart by one sweep down and one up, so that each keeps half its gap to its neighbors."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    at = low
    for i in order:
        moved[i] = max(moved[i], at + gaps[i] / 2)
        at = moved[i] + gaps[i] / 2
    at = high
    for i in reversed(order):
        moved[i] = min(moved[i], at - gaps[i] / 2)
        at = moved[i] - gaps[i] / 2
    return moved
