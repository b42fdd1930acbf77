"""The options of a profile and their validation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calotype.core.errors import Problem, RequestError

TRACE, RECORD, SUMMARY = "trace.json.gz", "profile.json", "profile.md"
MAX_STEPS = 50
"""Maximum number of steps: each adds tens of thousands of events to the trace and little information."""


@dataclass(frozen=True)
class ProfilePlan:
    """How a profile is taken and where it goes."""

    command: str
    """The command line that repeats the profile, without the folder."""
    out: Path
    steps: int
    """Sampling steps of the image, or training steps."""
    warmup: int
    """Whole images, or training steps, before profiling starts."""
    marks_only: bool = False
    """Another profiler records; only mark the window and the stages."""

    def __post_init__(self) -> None:
        problems = []
        if not 1 <= self.steps <= MAX_STEPS:
            rule = (
                f"{self.steps} is out of range; a profile looks into 1 to {MAX_STEPS}; more show nothing new"
            )
            problems.append(Problem("--steps", rule, self.steps))
        if self.warmup < 1:
            rule = f"{self.warmup} is too few; the first run loads kernels and compiles, use 1 or more"
            problems.append(Problem("--warmup", rule, self.warmup))
        if problems:
            raise RequestError(problems)
