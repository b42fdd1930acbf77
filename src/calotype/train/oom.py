"""Explain out-of-memory errors by naming the settings to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from calotype.core.errors import DoesNotFitError
from calotype.spec.recipe import Recipe
from calotype.train.distributed.process_group import Rank

_MAX_ADVICE = 3


@contextmanager
def explain_out_of_memory(recipe: Recipe, process: Rank) -> Iterator[None]:
    """Replace an out-of-memory error by one that names the settings to lower."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise out_of_memory_help(recipe, process) from error


def out_of_memory_help(recipe: Recipe, process: Rank) -> DoesNotFitError:
    """The error, with the settings that can still be lowered."""
    peak = torch.cuda.max_memory_allocated(process.device) / 2**30 if process.device.type == "cuda" else 0
    model, micro = recipe.model, recipe.model.micro_batch_size
    advice = {
        f"lower model.micro_batch_size (now {micro})": micro > 1,
        "set model.gradient_checkpointing=true": not model.gradient_checkpointing,
        "keep the EMA with ema.device=cpu": model.use_ema and recipe.ema.device == "same",
        "set trainer.strategy=fsdp": recipe.num_processes > 1 and recipe.trainer.strategy != "fsdp",
        "lower model.resolution": True,
    }
    helpful = [text for text, helps in advice.items() if helps][:_MAX_ADVICE]
    return DoesNotFitError(f"out of GPU memory after {peak:.1f} GiB; {', or '.join(helpful)}")
