"""Profiles an engine that generates the images of one request."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from calotype.bench.profile.analyze import ProfiledRun, analyze
from calotype.bench.profile.annotations import marked
from calotype.bench.profile.launch_bound import Advice
from calotype.bench.profile.nsight import nsight_commands
from calotype.bench.profile.options import TRACE, ProfilePlan
from calotype.bench.profile.torch_profiler import mark, record, wall_s
from calotype.core.progress import CancelToken, Progress, Silent
from calotype.engine.device import device_name, precision_name
from calotype.engine.engine import Engine
from calotype.engine.passes.cuda_graph import CUDA_GRAPH
from calotype.engine.presets import pass_names
from calotype.engine.text_encoder import TextConditioner
from calotype.engine.torch_info import full_fingerprint
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.profile import ProfileRecord

STAGES = ("text encode", "step", "decode")


def profile_generate(
    engine: Engine,
    request: GenerateRequest,
    plan: ProfilePlan,
    *,
    batch_size: int | None = None,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> ProfileRecord | None:
    """Warm up, then generate the images once under the profiler; None with `marks_only`."""
    device, watcher = engine.model.device, progress or Silent()

    def make() -> None:
        # The prompt cache is cleared, so that the profile includes encoding a new prompt.
        engine.clear_prompt_cache()
        engine.generate(request, batch_size=batch_size, cancel=cancel)
        watcher.advance()

    with _stages_marked():
        watcher.start("warm-up", plan.warmup)
        warmup_s = [wall_s(make, device) for _ in range(plan.warmup)]
        if plan.marks_only:
            mark(make, device)
            return None
        watcher.start("profile", 2)
        unprofiled_s = wall_s(make, device)
        record(make, device, plan.out / TRACE)
    return analyze(
        ProfiledRun(
            trace=plan.out / TRACE,
            command=plan.command,
            job="generate",
            asked=_asked(engine, request, batch_size),
            device=device_name(device),
            stages=STAGES,
            advice=_advice(engine.preset, device),
            fingerprint=full_fingerprint().as_dict(),
            unprofiled_s=unprofiled_s,
            warmup_s=warmup_s,
            nsight=nsight_commands(plan.command, plan.out, "step"),
        )
    )


def _stages_marked() -> ExitStack:
    stack = ExitStack()
    for owner, method, name in (
        (TextConditioner, "encode", "text encode"),
        (Engine, "step", "step"),
        (Engine, "finish", "decode"),
    ):
        stack.enter_context(marked(owner, method, name))
    return stack


def _asked(engine: Engine, request: GenerateRequest, batch_size: int | None) -> dict[str, object]:
    return {
        "request": engine.resolve_defaults(request).as_dict(),
        "model": engine.model.identity.model_dump(mode="json"),
        "preset": engine.preset,
        "precision": precision_name(engine.model.dtype),
        "batch_size": batch_size,
    }


def _advice(preset: str, device: torch.device) -> Advice:
    larger = "generate larger batches (--count, --batch-size), so that each launch does more work"
    if CUDA_GRAPH.name in pass_names(preset, device.type):
        return Advice(for_host=(larger,))
    graph = f"--preset fast has the pass {CUDA_GRAPH.name}, which launches a whole step as one graph"
    return Advice(for_host=(graph, larger))
