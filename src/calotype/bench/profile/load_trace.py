"""Evaluates an existing trace, such as that of a training run with `profile.enabled=true`."""

from __future__ import annotations

from pathlib import Path

from calotype.bench.profile.analyze import ProfiledRun, analyze
from calotype.bench.profile.capture_generate import STAGES as GENERATING
from calotype.bench.profile.capture_train import STAGES as TRAINING
from calotype.bench.profile.launch_bound import Advice
from calotype.spec.records.profile import ProfileRecord

_ADVICE = Advice(
    for_host=("launch less often: CUDA graphs, fused kernels, or more work in each launch (a larger batch)",),
    for_data=("more data loading workers, or data that needs less preprocessing",),
)


def profile_trace(trace: Path, command: str) -> ProfileRecord:
    """Evaluate a trace without knowledge of its job."""
    return analyze(
        ProfiledRun(
            trace=trace,
            command=command,
            job="trace",
            asked={},
            device=None,
            stages=(*GENERATING, *TRAINING),
            advice=_ADVICE,
            fingerprint={},
        )
    )
