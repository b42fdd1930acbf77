"""Out of memory, in words that say what to lower. Knows nothing of what was under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from calotype.core.errors import DoesNotFitError
from calotype.spec.recipe import Recipe
from calotype.train.distributed.process_group import Rank

_MAX_SAID = 3


@contextmanager
def explain_out_of_memory(recipe: Recipe, process: Rank) -> Iterator[None]:
    """Say what to lower, wherever memory ends."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise out_of_memory_help(recipe, process) from error


def out_of_memory_help(recipe: Recipe, process: Rank) -> DoesNotFitError:
    """Out of memory, with what to lower that is not yet as low as it goes."""
    peak = torch.cuda.max_memory_allocated(process.device) / 2**30 if process.device.type == "cuda" else 0
    model, micro = recipe.model, recipe.model.micro_batch_size
    advice = {
        f"lower model.micro_batch_size (now {micro})": micro > 1,
        "set model.gradient_checkpointing=true": not model.gradient_checkpointing,
        "keep the EMA with ema.device=cpu": model.use_ema and recipe.ema.device == "same",
        "set trainer.strategy=fsdp": recipe.num_processes > 1 and recipe.trainer.strategy != "fsdp",
        "lower model.resolution": True,
    }
    helpful = [text for text, helps in advice.items() if helps][:_MAX_SAID]
    return DoesNotFitError(f"out of GPU memory after {peak:.1f} GiB; {', or '.join(helpful)}")
