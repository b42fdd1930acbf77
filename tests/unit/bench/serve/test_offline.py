"""The engine without a server, set beside one: what is asked of it, and what is kept of it."""

from __future__ import annotations

import pytest

from calotype.bench.serve import offline as module
from calotype.bench.serve.offline import offline
from calotype.bench.sweep.runner import SweepOutcome, SweepPlan
from calotype.core.errors import CancelledError
from calotype.core.progress import Progress, Silent
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.spec.bench_job import InferenceJob
from calotype.spec.records.measurement import Measurement
from tests.unit.bench.records.conftest import made_up

PLAN = DeploymentConfig(
    name="a", models=("random:sd15",), devices=("cuda:0",), preset="int8", precision="bf16"
)
ASKED = {"steps": 20, "cfg": 4.0, "width": 768, "height": 512, "prompt": "left to the sweep"}


@pytest.mark.parametrize("finished", [True, False])
def test_the_same_pictures_are_asked_for_and_what_is_over_is_kept(
    finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[SweepPlan] = []
    over = [made_up("batch=8", 1.0)]

    def measured(plan: SweepPlan, progress: Progress) -> SweepOutcome:
        asked.append(plan)
        return SweepOutcome(over, finished=finished)

    monkeypatch.setattr(module, "run_sweep", measured)
    kept: list[Measurement] = []
    if finished:
        assert offline(PLAN, ASKED, (8, 16), Silent(), kept.append) == over
    else:
        with pytest.raises(CancelledError, match="between two batch sizes"):
            offline(PLAN, ASKED, (8, 16), Silent(), kept.append)
    assert kept == over
    jobs = [point.job for point in asked[0].points if isinstance(point.job, InferenceJob)]
    assert [job.request.count for job in jobs] == [8, 16]
    for job in jobs:
        assert (job.model, job.preset, job.precision, job.device) == ("random:sd15", "int8", "bf16", "cuda:0")
        request = job.request
        assert (request.steps, request.cfg, request.width, request.height) == (20, 4.0, 768, 512)
