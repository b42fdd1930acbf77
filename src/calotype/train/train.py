"""Run a whole training from a recipe to its last checkpoint: build the parts, resume, train and save."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from calotype.core.errors import CalotypeError, Problem, RequestError
from calotype.core.progress import Progress, Silent
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.builders import (
    build_task,
    build_training_dataloader,
    load_training_model,
    requirements_of,
)
from calotype.train.callbacks.bad_samples import BadSampleCallback
from calotype.train.callbacks.best_metric import BestMetric
from calotype.train.callbacks.loggers import MetricsFile, ProgressBar, TensorBoard
from calotype.train.callbacks.profiler import ProfileWindow
from calotype.train.callbacks.reconstructions import Reconstructions
from calotype.train.callbacks.sample_images import SampleImages
from calotype.train.callbacks.validation import Validation
from calotype.train.callbacks.wandb import WandbRun
from calotype.train.checkpoint import (
    BackgroundSaver,
    CheckpointManager,
    Ranks,
    check_free_space,
    separate_ranks,
)
from calotype.train.checkpoint.compatibility import origin_of, refuse_other
from calotype.train.data.factory import check_place
from calotype.train.data.requirements import DataRequirements
from calotype.train.distributed.failure import SAVES_TAKE, RanksLostError, is_under_torchrun, peers_stopped
from calotype.train.distributed.process_group import Rank, apply_elastic_world_size, init_process_group
from calotype.train.metrics import Metrics, most_samples_per_s
from calotype.train.oom import explain_out_of_memory
from calotype.train.signals import StoppedBeforeFirstStep, TrainingStop
from calotype.train.start_weights import check_weights_are_chosen, random_weights_note
from calotype.train.trainer import Callback, NonFiniteError, StepMetrics, Trainer

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    samples: int | None
    """None where `begun` is false."""
    stopped_early: bool
    folder: Path
    unreadable: tuple[str, ...]
    random_weights: bool = False
    """Whether the model started from random numbers."""
    begun: bool = True
    """False if a stop signal ended the run within its first step; the same command resumes from `step`."""


def run_folder(recipe: Recipe) -> Path:
    """The folder that holds all output of the run."""
    return Path(recipe.checkpoint.folder.replace("{name}", recipe.name))


def train(
    recipe: Recipe,
    *,
    device: torch.device | None = None,
    progress: Progress | None = None,
    models: Path | None = None,
    extra_callbacks: tuple[Callback, ...] = (),
    owns_process: bool = False,
) -> Outcome:
    """Train until the recipe's last step or a stop signal; in both cases the last step is saved.

    A stop signal before the end of the first step ends the run at once. With `owns_process` the run may end
    the whole process where nothing else would end it (see `TrainingStop`).
    """
    check_weights_are_chosen(recipe)
    recipe, stop = apply_elastic_world_size(recipe), TrainingStop(owns_process=owns_process)
    try:
        with stop:
            stop.exit_if_requested()
            with init_process_group(recipe, device) as process, explain_out_of_memory(recipe, process):
                return _train(recipe, process, stop, progress, models, extra_callbacks)
    except (StoppedBeforeFirstStep, RanksLostError):
        # Peers receive the stop signal too and may be gone before this process ends.
        if not stop.in_first_step:
            raise
        return _not_begun(recipe)


def _train(
    recipe: Recipe,
    process: Rank,
    stop: TrainingStop,
    progress: Progress | None,
    models: Path | None,
    extra_callbacks: tuple[Callback, ...],
) -> Outcome:
    folder = run_folder(recipe)
    check_place(recipe.data)
    with ExitStack() as exit_stack:
        ranks = separate_ranks(SAVES_TAKE * recipe.trainer.peer_timeout_s)
        store = exit_stack.enter_context(
            CheckpointManager(
                folder / "checkpoints", recipe.checkpoint.keep_last, recipe.checkpoint.keep_best
            )
        )
        if process.is_first:
            store.claim()
        # No rank searches for checkpoints while the first one still removes the leftovers of a killed run.
        ranks.barrier()
        watched = progress if progress and process.is_first else Silent()
        model = load_training_model(recipe, process.device, watched, models)
        if model.identity.random and process.is_first:
            _log.warning("%s", random_weights_note(recipe))
        run_metrics = _run_metrics(recipe, model, process)
        task = build_task(model, recipe)
        trainer = Trainer(task, recipe, process)
        best_metric = BestMetric(recipe, run_metrics)
        identity = _resume(trainer, best_metric, store, ranks, recipe)
        if process.is_first and trainer.step < recipe.trainer.max_steps:
            # Check now rather than a thousand steps later, at the first checkpoint.
            check_free_space(store.folder, trainer.least_bytes())
        dataloader = exit_stack.enter_context(
            build_training_dataloader(model, recipe, process, samples_seen=trainer.samples, progress=watched)
        )
        _check_same_data(identity, dataloader.facts.identity)
        task.use_empty_text(dataloader.facts.empty_text)
        saver = exit_stack.enter_context(
            BackgroundSaver(store, rank=ranks.rank, world_size=ranks.world_size, barrier=ranks.barrier)
        )
        resumed_step = trainer.step if identity else None
        checkpoints = _Checkpoints(saver, recipe, best_metric, dataloader.facts.identity, resumed_step)
        callbacks: list[Callback] = [
            stop,
            best_metric,
            *_validation(recipe, trainer, requirements_of(model, recipe), run_metrics),
        ]
        callbacks += _rank_callbacks(recipe, folder, trainer, stop, exit_stack)
        if process.is_first:
            callbacks += _first_rank_callbacks(recipe, folder, trainer, watched, exit_stack, run_metrics)
        unreadable = BadSampleCallback(dataloader, folder, process.rank)
        # The file is also written for a run that fails, perhaps because too many samples are unreadable.
        exit_stack.callback(unreadable.write_new)
        callbacks += [unreadable, *extra_callbacks, checkpoints]
        try:
            trainer.run(dataloader, callbacks, lambda: process.any(stop.requested))
        except (CalotypeError, OSError, torch.OutOfMemoryError) as error:
            # Saving needs all ranks. A non-finite number is seen by all of them, any other error by this one.
            if isinstance(error, NonFiniteError) or process.world_size == 1:
                checkpoints.after_failure(trainer)
            raise
        checkpoints.last(trainer)
        finished = trainer.step >= recipe.trainer.max_steps
        left_out = tuple(process.gathered(dataloader.report().names))
        if not finished and not stop.requested and is_under_torchrun():
            raise peers_stopped(trainer.step, process.rank, process.world_size)
        return Outcome(
            trainer.step,
            trainer.samples,
            not finished,
            folder,
            left_out,
            random_weights=model.identity.random,
        )


def _not_begun(recipe: Recipe) -> Outcome:
    folder, part = run_folder(recipe), recipe.checkpoint
    saved = CheckpointManager(folder / "checkpoints", part.keep_last).list() if part.resume else ()
    return Outcome(saved[-1].step if saved else 0, None, True, folder, (), begun=False)


class _Checkpoints:
    """Saves every `every_steps` steps, and at the end if the last step is not on disk yet."""

    def __init__(
        self,
        saver: BackgroundSaver,
        recipe: Recipe,
        best_metric: BestMetric,
        data_identity: str,
        resumed_step: int | None,
    ) -> None:
        self._saver, self._part, self._best_metric = saver, recipe.checkpoint, best_metric
        self._identity = data_identity
        self._resumed_step = resumed_step

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        if step_metrics.step % self._part.every_steps == 0:
            save = self._saver.save if self._part.asynchronous else self._saver.save_now
            best_metric = self._best_metric
            metric, name = best_metric.metric(step_metrics.step), best_metric.metric_name
            save(step_metrics.step, self._state(trainer), {}, metric=metric, metric_name=name)

    def last(self, trainer: Trainer) -> None:
        # A failed save is no reason to lose the steps since then: the disk may have room again.
        self._saver.settle()
        is_saved = trainer.step in (self._saver.saved_step, self._resumed_step)
        # All ranks decide together, because saving needs all of them and the save of a single one may fail.
        if trainer.process.any(not is_saved):
            best_metric = self._best_metric
            metric, name = best_metric.metric(trainer.step), best_metric.metric_name
            self._saver.save_now(trainer.step, self._state(trainer), {}, metric=metric, metric_name=name)

    def after_failure(self, trainer: Trainer) -> None:
        """Save the last consistent state. If that fails too, it is only logged: the first error says more."""
        if trainer.step and trainer.is_consistent:
            try:
                self.last(trainer)
            except (CalotypeError, OSError, torch.OutOfMemoryError) as error:
                _log.warning("step %d could not be saved either: %s", trainer.step, error)

    def _state(self, trainer: Trainer) -> dict[str, Any] | None:
        # Every rank builds the state, because gathering sharded weights needs all; only the first's counts.
        state = {**trainer.state(), "data_identity": self._identity, "judged": self._best_metric.state()}
        state["origin"] = origin_of(trainer.subject.model, trainer.recipe)
        return state if trainer.process.is_first else None


def _run_metrics(recipe: Recipe, model: Model, process: Rank) -> Metrics:
    # The peak is measured before the optimizer exists, while the device has free memory.
    speed = most_samples_per_s(recipe, model.architecture, process.device) if process.is_first else None
    return Metrics(speed, every_steps=recipe.trainer.log_every_steps)


def _validation(
    recipe: Recipe, trainer: Trainer, needs: DataRequirements, run_metrics: Metrics
) -> list[Callback]:
    if recipe.validation.data is None:
        return []
    validation = Validation(recipe, recipe.validation.data, needs, run_metrics)
    validation.check(trainer)
    return [validation]


def _resume(
    trainer: Trainer, best_metric: BestMetric, store: CheckpointManager, ranks: Ranks, recipe: Recipe
) -> str | None:
    """Resume from the newest complete checkpoint; returns the identity of the data it was saved with."""
    if not recipe.checkpoint.resume:
        return None
    loaded = store.load_newest(ranks.rank, ranks.lowest)
    if loaded is None:
        return None
    refuse_other(loaded.shared, trainer.subject.parameters(), trainer.subject.model, recipe)
    trainer.load_state(loaded.shared)
    if "judged" in loaded.shared:
        best_metric.load_state(loaded.shared["judged"])
    return str(loaded.shared["data_identity"])


def _check_same_data(saved: str | None, now: str) -> None:
    if saved is not None and saved != now:
        rule = "the list of samples has changed since the checkpoint, so its position in the data is invalid"
        raise RequestError(
            [Problem("data", f"{rule}; use another checkpoint.folder, or checkpoint.resume=false")]
        )


def _rank_callbacks(
    recipe: Recipe, folder: Path, trainer: Trainer, stop: TrainingStop, exit_stack: ExitStack
) -> list[Callback]:
    """The callbacks that any rank may have."""
    callbacks: list[Callback] = []
    if recipe.profile.enabled and trainer.process.rank in recipe.profile.ranks:
        window = ProfileWindow(recipe.profile, folder, trainer.process.rank, trainer.step + 1)
        callbacks.append(exit_stack.enter_context(window))
    if not recipe.logging.sample_every_steps:
        return callbacks
    if recipe.model.train == "vae":
        return [*callbacks, Reconstructions(recipe, folder / "samples")]
    return [*callbacks, SampleImages(recipe, folder / "samples", trainer.subject, lambda: stop.requested)]


def _first_rank_callbacks(
    recipe: Recipe,
    folder: Path,
    trainer: Trainer,
    progress: Progress,
    exit_stack: ExitStack,
    run_metrics: Metrics,
) -> list[Callback]:
    """The callbacks of the first rank, which write the files of the whole run."""
    callbacks: list[Callback] = []
    metrics_file = MetricsFile(folder / "metrics.jsonl", trainer.step + 1, run_metrics)
    exit_stack.callback(metrics_file.close)
    if recipe.logging.tensorboard:
        board = TensorBoard(folder / "tensorboard", trainer.step + 1, run_metrics)
        exit_stack.callback(board.close)
        callbacks.append(board)
    if recipe.logging.wandb != "off":
        wandb_run = WandbRun(folder, recipe, run_metrics)
        exit_stack.callback(wandb_run.close)
        callbacks.append(wandb_run)
    return [*callbacks, metrics_file, ProgressBar(progress, recipe, trainer.step, run_metrics)]
