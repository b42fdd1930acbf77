"""Measure a recipe's training for a few steps: speed, memory and losses.

It trains as a run does, but writes only a record: no checkpoints, no metrics. A failure becomes a record too.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import torch

from calotype.core.errors import CalotypeError, ExitCode, Problem, RequestError
from calotype.core.hardware import read_cpu
from calotype.core.paths import atomic_write
from calotype.core.progress import Progress, Silent
from calotype.engine.torch_info import full_fingerprint
from calotype.spec.recipe import Recipe
from calotype.spec.records.train_benchmark import BenchmarkRecord, DeviceMemory, Window
from calotype.train.builders import build_task, build_training_dataloader, load_training_model
from calotype.train.distributed.process_group import Rank, apply_elastic_world_size, init_process_group
from calotype.train.flops import training_tflop
from calotype.train.oom import out_of_memory_help
from calotype.train.peak_flops import measured_peak
from calotype.train.tasks.base import DTYPES
from calotype.train.timing import all_memory, own_memory, timed, window_of
from calotype.train.train import run_folder
from calotype.train.trainer import Trainer

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchmarkPlan:
    """What to measure, besides the recipe."""

    command: str
    """The command line that repeats the benchmark."""
    steps: int = 30
    warmup_steps: int = 10
    ceiling_tflops: float | None = None
    record_file: Path | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.steps < 1:
            problems.append(Problem("--benchmark-steps", f"{self.steps} is too few; at least 1", self.steps))
        if self.warmup_steps < 0:
            rule = f"{self.warmup_steps} is negative; use 0 for none"
            problems.append(Problem("--warmup-steps", rule, self.warmup_steps))
        if self.ceiling_tflops is not None and not 0 < self.ceiling_tflops < math.inf:
            rule = f"{self.ceiling_tflops} is not a speed; give the TFLOP/s of a large matrix product here"
            problems.append(Problem("--ceiling-tflops", rule, self.ceiling_tflops))
        if problems:
            raise RequestError(problems)


@dataclass(frozen=True)
class Benchmarked:
    """The record and the exit code of a benchmark."""

    record: BenchmarkRecord
    exit_code: ExitCode
    is_first: bool
    """Whether this rank reports the run; if another rank failed, that one wrote the record."""


@dataclass
class _Findings:
    """Filled in as far as the run gets."""

    outcome: Literal["OK", "OOM", "Error!"] = "OK"
    message: str | None = None
    exit_code: ExitCode = ExitCode.OK
    warmup_step_s: list[float] = field(default_factory=list)
    ceiling_tflops: float | None = None
    ceiling_source: Literal["given", "measured"] | None = None
    window: Window | None = None
    memory: list[DeviceMemory] = field(default_factory=list)


def usual_record(recipe: Recipe, steps: int, warmup_steps: int) -> Path:
    """The default path of a record: one file for each distinct configuration, the same on every rank.

    A repeated benchmark replaces its record.
    """
    value = json.dumps([recipe.model_dump(mode="json"), steps, warmup_steps], sort_keys=True)
    digest = hashlib.sha256(value.encode()).hexdigest()[:8]
    name = f"m{recipe.model.micro_batch_size}-g{recipe.model.global_batch_size}-{digest}.json"
    return run_folder(recipe) / "benchmarks" / name


def benchmark(
    recipe: Recipe,
    plan: BenchmarkPlan,
    *,
    device: torch.device | None = None,
    progress: Progress | None = None,
    models: Path | None = None,
) -> Benchmarked:
    """Measure, and write the record if the plan names a file; failures of the run go into the record."""
    recipe = apply_elastic_world_size(recipe)
    _warn_of_ignored(recipe)
    started = time.time()
    with init_process_group(recipe, device) as process:
        rank_progress = progress if progress and process.is_first else Silent()
        findings = _Findings()
        try:
            _measure(recipe, plan, process, findings, rank_progress, models)
        except torch.OutOfMemoryError:
            findings.outcome, findings.exit_code = "OOM", ExitCode.DOES_NOT_FIT
            findings.message, findings.memory = str(out_of_memory_help(recipe, process)), own_memory(process)
        except Exception as error:
            _record_failure(error, findings, process)
        # The model is freed by now, so that reading device properties cannot fail for lack of memory.
        gc.collect()
        if process.device.type == "cuda":
            torch.cuda.empty_cache()
        began = datetime.fromtimestamp(started, UTC)
        record = _record(recipe, plan, findings, process).model_copy(update={"started_at": began})
        if plan.record_file and not _is_written_by_other_rank(plan.record_file, findings, process, started):
            with atomic_write(plan.record_file, "w") as file:
                file.write(record.model_dump_json(indent=1) + "\n")
        return Benchmarked(record, findings.exit_code, process.is_first)


def _is_written_by_other_rank(file: Path, findings: _Findings, process: Rank, started: float) -> bool:
    """Whether another rank writes the record.

    A failing rank writes it, whichever it is, since the first rank may be waiting for it. Once it is gone the
    other ranks fail as a consequence, and their errors must not replace its own.
    """
    if findings.outcome == "OK":
        return not process.is_first
    is_consequence = process.world_size > 1 and findings.outcome == "Error!"
    return is_consequence and file.exists() and file.stat().st_mtime >= started


def _record_failure(error: Exception, findings: _Findings, process: Rank) -> None:
    is_known = isinstance(error, CalotypeError)
    findings.outcome, findings.memory = "Error!", own_memory(process)
    findings.message = str(error) if is_known else f"{type(error).__name__}: {error}"
    findings.exit_code = error.exit_code if isinstance(error, CalotypeError) else ExitCode.BUG
    if not is_known:
        _log.error("the benchmark failed", exc_info=error)


def _warn_of_ignored(recipe: Recipe) -> None:
    part = recipe.logging
    ignored = {
        "profile.enabled": recipe.profile.enabled,
        "logging.tensorboard": part.tensorboard,
        "logging.wandb": part.wandb if part.wandb != "off" else None,
        "validation.data.kind": recipe.validation.data and recipe.validation.data.kind,
        "logging.sample_every_steps": part.sample_every_steps,
    }
    for name, value in ignored.items():
        if value:
            _log.warning("%s=%s has no effect with --benchmark, which writes only its record", name, value)


def _measure(
    recipe: Recipe,
    plan: BenchmarkPlan,
    process: Rank,
    findings: _Findings,
    progress: Progress,
    models: Path | None,
) -> None:
    model = load_training_model(recipe, process.device, progress, models)
    tflop = training_tflop(model.architecture, recipe)
    _find_ceiling(recipe, plan, process, findings, counted=tflop is not None)
    task = build_task(model, recipe)
    trainer = Trainer(task, recipe, process)
    dataloader = build_training_dataloader(model, recipe, process, progress=progress)
    with dataloader:
        task.use_empty_text(dataloader.facts.empty_text)
        progress.start("warm-up", plan.warmup_steps)
        for _ in range(plan.warmup_steps):
            started = time.perf_counter()
            trainer.train_step(dataloader)
            findings.warmup_step_s.append(time.perf_counter() - started)
            progress.advance()
        progress.start("benchmark", plan.steps)
        timings = timed(trainer, dataloader, plan.steps, progress)
    findings.window = window_of(timings, recipe, tflop, findings.ceiling_tflops)
    findings.memory = all_memory(process)


def _find_ceiling(
    recipe: Recipe, plan: BenchmarkPlan, process: Rank, findings: _Findings, *, counted: bool
) -> None:
    """The peak is measured only if it leads to an MFU, before the optimizer exists and uses the memory."""
    given = plan.ceiling_tflops or recipe.trainer.ceiling_tflops
    if given:
        findings.ceiling_tflops, findings.ceiling_source = given, "given"
    elif counted and process.is_first:
        findings.ceiling_tflops = measured_peak(process.device, DTYPES[recipe.model.precision])
        findings.ceiling_source = None if findings.ceiling_tflops is None else "measured"


def _record(recipe: Recipe, plan: BenchmarkPlan, findings: _Findings, process: Rank) -> BenchmarkRecord:
    on_gpu = process.device.type == "cuda"
    # Other ranks would open every device of the machine to report the same fingerprint.
    reports = process.is_first or findings.outcome != "OK"
    return BenchmarkRecord(
        outcome=findings.outcome,
        message=findings.message,
        gpu=torch.cuda.get_device_name(process.device) if on_gpu else f"CPU {read_cpu().model}",
        command=plan.command,
        recipe=recipe.model_dump(mode="json"),
        devices=recipe.trainer.devices,
        nodes=recipe.trainer.nodes,
        warmup_steps=plan.warmup_steps,
        warmup_step_s=findings.warmup_step_s,
        steps=plan.steps,
        ceiling_tflops=findings.ceiling_tflops,
        ceiling_source=findings.ceiling_source,
        window=findings.window,
        memory=findings.memory,
        fingerprint=full_fingerprint().as_dict() if reports else {},
    )
