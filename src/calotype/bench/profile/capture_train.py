"""Profiles a few training steps of a recipe, without checkpoints and metrics."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calotype.bench.profile.analyze import ProfiledRun, analyze
from calotype.bench.profile.annotations import marked, replaced, staged
from calotype.bench.profile.launch_bound import DATA, Advice
from calotype.bench.profile.nsight import nsight_commands
from calotype.bench.profile.options import TRACE, ProfilePlan
from calotype.bench.profile.torch_profiler import mark, record, wall_s
from calotype.core.errors import Problem, RequestError
from calotype.core.progress import CancelToken, Progress, Silent
from calotype.engine.device import device_name
from calotype.engine.torch_info import full_fingerprint
from calotype.spec.recipe import Recipe
from calotype.spec.records.profile import ProfileRecord
from calotype.train.builders import build_task, build_training_dataloader, load_training_model
from calotype.train.data.dataloader import DataLoader
from calotype.train.distributed.process_group import Rank, apply_elastic_world_size, init_process_group
from calotype.train.fused_optimizer import FusedOptimizer
from calotype.train.oom import out_of_memory_help
from calotype.train.trainer import Trainer

STAGES = (DATA, "prepare", "forward", "backward", "optimizer", "average")


def profile_train(
    recipe: Recipe,
    plan: ProfilePlan,
    *,
    device: torch.device | None = None,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
    models: Path | None = None,
) -> ProfileRecord | None:
    """Warm up, then train a few steps under the profiler; None with `marks_only`."""
    recipe = apply_elastic_world_size(recipe)
    if recipe.num_processes > 1:
        rule = f"{recipe.num_processes} processes; a profile looks into one. Set trainer.devices=1 and "
        rule += "trainer.nodes=1, or train with profile.enabled=true and read each rank's trace with "
        rule += "`calotype profile trace`"
        raise RequestError([Problem("trainer.devices", rule, recipe.num_processes)])
    with init_process_group(recipe, device) as process:
        try:
            return _profiled(recipe, plan, process, progress or Silent(), cancel or CancelToken(), models)
        except torch.OutOfMemoryError as error:
            raise out_of_memory_help(recipe, process) from error


def _profiled(
    recipe: Recipe,
    plan: ProfilePlan,
    process: Rank,
    progress: Progress,
    cancel: CancelToken,
    models: Path | None,
) -> ProfileRecord | None:
    model = load_training_model(recipe, process.device, progress, models)
    subject = build_task(model, recipe)
    loop = Trainer(subject, recipe, process)
    feed = build_training_dataloader(model, recipe, process, progress=progress)
    # Marked from the start, because a step's micro-batch is prepared during the previous step.
    with feed, _stages_marked(loop, feed):
        subject.use_empty_text(feed.facts.empty_text)

        def update() -> None:
            cancel.check()
            loop.train_step(feed)
            progress.advance()

        def steps() -> None:
            for _ in range(plan.steps):
                update()

        progress.start("warm-up", plan.warmup)
        warmup_s = [wall_s(update, process.device) for _ in range(plan.warmup)]
        if plan.marks_only:
            mark(steps, process.device)
            return None
        progress.start("profile", 2 * plan.steps)
        unprofiled_s = wall_s(steps, process.device)
        record(steps, process.device, plan.out / TRACE)
    return analyze(
        ProfiledRun(
            trace=plan.out / TRACE,
            command=plan.command,
            job="train",
            asked=recipe.model_dump(mode="json"),
            device=device_name(process.device),
            stages=STAGES,
            advice=_advice(recipe),
            fingerprint=full_fingerprint().as_dict(),
            unprofiled_s=unprofiled_s,
            warmup_s=warmup_s,
            nsight=nsight_commands(plan.command, plan.out, "forward"),
        )
    )


def _stages_marked(loop: Trainer, feed: DataLoader) -> ExitStack:
    def preparing(prepare: Any) -> Any:
        # It returns the forward pass, which has not run yet.
        return lambda *arguments: staged("forward", staged("prepare", prepare)(*arguments))

    stack = ExitStack()
    stack.enter_context(replaced(loop.subject, "prepare", preparing))
    stack.enter_context(marked(type(feed), "__next__", DATA))
    stack.enter_context(marked(Tensor, "backward", "backward"))
    stack.enter_context(marked(loop.optimizer, "step", "optimizer"))
    stack.enter_context(marked(FusedOptimizer, "step", "optimizer"))
    if loop.ema:
        stack.enter_context(marked(loop.ema, "step", "average"))
    return stack


def _advice(recipe: Recipe) -> Advice:
    model = recipe.model
    for_host = [
        *([] if model.compile else ["model.compile=true fuses elementwise operations, for fewer launches"]),
        *([] if model.cuda_graphs else ["model.cuda_graphs=true launches a whole pass as one graph"]),
        f"a larger model.micro_batch_size (now {model.micro_batch_size}) gives each launch more work",
    ]
    for_data = [
        f"more data.num_workers (now {recipe.data.num_workers}), or data.in_memory=true for a small set",
        "`calotype train precompute` encodes pictures and captions once",
    ]
    return Advice(for_host=for_host, for_data=for_data)
