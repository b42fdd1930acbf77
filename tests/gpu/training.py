"""What training does on a GPU and nowhere else, run by hand on one: `python -m tests.gpu.training`.

Small and shallow models, so that all of it takes a few minutes, most of them compiling. Every switch has to
lead to the losses of the plain run. Prints a line for each check and ends with 1 if one failed. Not collected
by pytest: the machines that run the tests have no GPU.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from calotype.engine.torch_info import full_fingerprint
from calotype.spec.recipe import Recipe
from calotype.train.benchmark import BenchmarkPlan, benchmark
from calotype.train.builders import build_task, load_training_model, requirements_of
from calotype.train.data.dataloader import build_dataloader
from calotype.train.data.types import Batch
from calotype.train.distributed.process_group import init_process_group
from calotype.train.recipes import load_recipe
from calotype.train.train import train
from calotype.train.trainer import Trainer
from tests.small_models import shallow_folder
from tests.unit.train.runs import assert_same, small_recipe, state_in

STEPS = 6
# Relative to the plain run's losses, the largest of six steps. bf16 rounds each number by up to 0.4 %, and
# weights kept in it lose small updates.
EXACT, ROUNDED, LOSSY = 1e-4, 3e-2, 1e-1


@dataclass(frozen=True)
class Bench:
    """Where the checks run."""

    device: torch.device
    base: Path
    folder: Path

    def recipe(self, **changes: Any) -> Recipe:
        shared = {"data__kind": "synthetic", "trainer__max_steps": 100, "model__precision": "bf16"}
        return small_recipe(self.base, self.folder / "run", **{**shared, **changes})

    def losses(self, poison: int | None = None, **changes: Any) -> tuple[list[float], Trainer]:
        """Of the first steps of a run with these settings."""
        recipe = self.recipe(**changes)
        with init_process_group(recipe, self.device) as process:
            model = load_training_model(recipe, process.device)
            loop = Trainer(build_task(model, recipe), recipe, process)
            needs = requirements_of(model, recipe)
            with build_dataloader(recipe.data, needs, micro_batch_size=recipe.model.micro_batch_size) as feed:
                loop.subject.use_empty_text(feed.facts.empty_text)
                batches = (
                    _poisoned(b) if i == poison else b for i, b in enumerate(iter(feed.__next__, None))
                )
                return [loop.train_step(batches).loss for _ in range(STEPS)], loop


def _poisoned(batch: Batch) -> Batch:
    assert batch.pixels is not None
    return replace(batch, pixels=batch.pixels * float("nan"))


def near(found: list[float], wanted: list[float], tolerance: float) -> str:
    furthest = max(abs(f - w) / abs(w) for f, w in zip(found, wanted, strict=True))
    assert furthest <= tolerance, f"{furthest:.2e} from the plain run's losses: {found} against {wanted}"
    return f"{furthest:.1e} from the plain run's losses, at most {tolerance:g}"


def switches(bench: Bench) -> dict[str, Callable[[], str]]:
    """Checks that compare a switch with the plain run in the same precision."""
    plain: dict[str, list[float]] = {}

    def like_plain(tolerance: float, precision: str = "bf16", **changes: Any) -> Callable[[], str]:
        def check() -> str:
            if precision not in plain:
                plain[precision] = bench.losses(model__precision=precision)[0]
            found, _ = bench.losses(**{"model__precision": precision, **changes})
            return near(found, plain[precision], tolerance)

        return check

    fast: dict[str, Any] = {"model__compile": True, "model__channels_last": True}
    halves: dict[str, Any] = {"model__micro_batch_size": 1}
    compiled = {
        "compile, fp32": like_plain(EXACT, "fp32", **fast),
        "compile, bf16": like_plain(ROUNDED, **fast),
        "compile and CUDA graphs, fp32": like_plain(EXACT, "fp32", model__cuda_graphs=True, **fast),
        "encoding aside, compile, CUDA graphs, one pass, fp32": like_plain(
            EXACT, "fp32", model__encode_aside=True, model__cuda_graphs=True, optimizer__one_pass=True, **fast
        ),
        "fsdp and compile, bf16": like_plain(ROUNDED, trainer__strategy="fsdp", model__compile=True),
    }
    return {
        "CUDA graphs alone, fp32": like_plain(EXACT, "fp32", model__cuda_graphs=True),
        "CUDA graphs and accumulation, fp32": like_plain(EXACT, "fp32", model__cuda_graphs=True, **halves),
        "fp16 with a scaler": like_plain(ROUNDED, model__precision="fp16"),
        "low-precision weights": like_plain(LOSSY, model__low_precision_weights=True),
        "channels last, fp32": like_plain(EXACT, "fp32", model__channels_last=True),
        "not fused, fp32": like_plain(EXACT, "fp32", optimizer__fused=False),
        "one pass, fp32": like_plain(EXACT, "fp32", optimizer__one_pass=True),
        "one pass, channels last, fp32": like_plain(
            EXACT, "fp32", optimizer__one_pass=True, model__channels_last=True
        ),
        "encoding aside, fp32": like_plain(EXACT, "fp32", model__encode_aside=True),
        "AdamW in eight bits": like_plain(LOSSY, optimizer__name="adamw8bit"),
        "averages on the CPU, fp32": like_plain(EXACT, "fp32", ema__device="cpu"),
        "gradient checkpointing, fp32": like_plain(EXACT, "fp32", model__gradient_checkpointing=True),
        "ddp of one, fp32": like_plain(EXACT, "fp32", trainer__strategy="ddp"),
        "fsdp of one, fp32": like_plain(EXACT, "fp32", trainer__strategy="fsdp"),
        "fsdp of one, bf16": like_plain(ROUNDED, trainer__strategy="fsdp"),
        **{
            f"attention {name}": like_plain(ROUNDED, model__attention=name)
            for name in ("flash", "efficient", "cudnn", "math")
        },
        **compiled,
    }


def a_bad_batch_is_skipped(bench: Bench) -> str:
    changes: dict[str, Any] = {"trainer__on_non_finite": "skip", "model__precision": "fp32"}
    good, _ = bench.losses(**changes)
    bad, loop = bench.losses(poison=2, **changes)
    near(bad[:2], good[:2], EXACT)
    assert bad[2] != bad[2], bad
    assert loop.skips == 1
    assert all(bool(p.isfinite().all()) for p in loop.subject.parameters().values())
    return "one step skipped, every weight finite"


def a_resumed_run_ends_the_same(bench: Bench) -> str:
    """To the bit, where the kernels sum in a fixed order."""
    whole, parts = bench.folder / "whole", bench.folder / "parts"
    settings = {"model__precision": "fp32", "model__attention": "math", "checkpoint__every_steps": 2}
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        train(small_recipe(bench.base, whole, **settings, trainer__max_steps=4), device=bench.device)
        for steps in (2, 4):
            train(small_recipe(bench.base, parts, **settings, trainer__max_steps=steps), device=bench.device)
    assert_same(state_in(parts), state_in(whole))
    return "the same to the bit"


def too_large_a_batch_is_a_row(bench: Bench) -> str:
    sizes = [f"model.{size}_batch_size=8192" for size in ("micro", "global")]
    recipe = load_recipe("sd2-base", sizes).recipe
    done = benchmark(recipe, BenchmarkPlan("by hand", steps=1, warmup_steps=0), device=bench.device)
    assert done.record.outcome == "OOM", done.record.message
    return str(done.record.message)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", help="names of checks; all if not said")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        base = shallow_folder(Path(place), "sd2-base", 0)
        bench = Bench(torch.device(chosen.device), base, Path(place))
        checks = {
            "a bad batch is skipped": lambda: a_bad_batch_is_skipped(bench),
            "a resumed run ends the same": lambda: a_resumed_run_ends_the_same(bench),
            "too large a batch is a row": lambda: too_large_a_batch_is_a_row(bench),
            **switches(bench),
        }
        results: dict[str, Any] = {}
        for name in chosen.only or checks:
            results[name] = result(name, checks[name])
            # Compiling is slow, and a machine may be lent for minutes.
            if chosen.out:
                found = {"environment": full_fingerprint().as_dict(), "checks": results}
                chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    raise SystemExit(any(not r["passed"] for r in results.values()))


def result(name: str, check: Callable[[], str]) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        said, passed = check(), True
    except Exception as error:
        said, passed = f"{type(error).__name__}: {error}"[:600], False
        traceback.print_exc(limit=3)
    seconds = round(time.perf_counter() - started, 1)
    print(f"{'ok' if passed else 'FAILED'}  {name} ({seconds} s): {said}", flush=True)
    return {"passed": passed, "said": said, "seconds": seconds}


if __name__ == "__main__":
    main()
