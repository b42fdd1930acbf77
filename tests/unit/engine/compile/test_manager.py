"""Nobody waits for a compiler: what is not compiled yet runs as it is, what is compiled takes its place.

The compiler here is one whose every step the test decides.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Barrier, Event
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.profiler import profile

from calotype.bench.profile.classify import host_kind
from calotype.engine.compile import manager
from calotype.engine.compile.manager import CompiledFunctions, CompiledRegion, CompileManager
from calotype.engine.compile.region import CompileRequest, Region

KEPT = Path("kept")


class Compiler:
    """Compiles when it is told to, and notes what it was asked for and what of it was run."""

    def __init__(self, error: Exception | None = None) -> None:
        self.orders: list[CompileRequest] = []
        self.runs: list[str] = []
        self.go_on = Event()
        self._error = error

    def compile(self, order: CompileRequest) -> Path:
        self.orders.append(order)
        assert self.go_on.wait(30)
        if self._error:
            raise self._error
        return Path(order.signature)

    def load(self, path: Path) -> CompiledFunctions:
        def run(inputs: list[Tensor | None], weights: list[Tensor]) -> Tensor:
            self.runs.append(str(path))
            [x, tokens], [weight, bias] = inputs, weights
            assert x is not None
            assert tokens is not None
            return linear(x, weight, bias) + tokens.sum()

        return run


def region(layer: nn.Linear, name: str = "layer") -> Region:
    def walk(x: Tensor, tokens: Tensor) -> Tensor:
        return layer(x) + tokens.sum()

    return Region(name, layer, walk, open_sizes={1: 1})


def layer_of(width: int = 4) -> nn.Linear:
    torch.manual_seed(width)
    return nn.Linear(3, width).requires_grad_(False)


def asked(rows: int = 2, tokens: int = 5) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 3), torch.randn(rows, tokens)


def compiled_of(
    layer: nn.Linear, compiler: Compiler, kept: Mapping[str, Path] | None = None
) -> tuple[CompiledRegion, CompileManager]:
    workshop = CompileManager(kept or {}, compiler.load, compiler.compile)
    return workshop.run(region(layer)), workshop


def check(run: CompiledRegion, layer: nn.Linear, inputs: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(run(*inputs), layer(inputs[0]) + inputs[1].sum())


def test_the_first_evaluation_does_not_wait_and_later_ones_are_compiled() -> None:
    layer, compiler = layer_of(), Compiler()
    run, workshop = compiled_of(layer, compiler)
    # The compiler is not done before it is told to go on: whoever waited for it would wait forever.
    for _ in range(3):
        check(run, layer, asked())
    assert compiler.runs == []
    assert workshop.changes == 0
    compiler.go_on.set()
    workshop.finish()
    assert workshop.changes == 1
    check(run, layer, asked())
    check(run, layer, asked())
    assert len(compiler.runs) == 2
    assert len(compiler.orders) == 1


def test_other_prompts_and_weights_that_change_in_place_compile_nothing() -> None:
    layer, compiler = layer_of(), Compiler()
    run, workshop = compiled_of(layer, compiler)
    check(run, layer, asked())
    compiler.go_on.set()
    workshop.finish()
    for tokens in (1, 5, 77):
        check(run, layer, asked(tokens=tokens))
    layer.weight.mul_(3)
    check(run, layer, asked())
    assert len(compiler.runs) == 4
    assert len(compiler.orders) == 1


def test_rows_that_lie_apart_are_handed_over_without_gaps() -> None:
    layer, compiler = layer_of(), Compiler()
    run, workshop = compiled_of(layer, compiler)
    x, tokens = asked(tokens=9)
    check(run, layer, (x, tokens[:, :4]))
    compiler.go_on.set()
    workshop.finish()
    check(run, layer, (x, tokens[:, :4]))
    assert len(compiler.orders) == len(compiler.runs) == 1
    [order] = compiler.orders
    assert order.forms[1] is not None
    assert order.forms[1].stride == (4, 1)


def test_another_number_of_rows_or_layout_is_compiled_by_itself() -> None:
    layer, compiler = layer_of(), Compiler()
    compiler.go_on.set()
    run, workshop = compiled_of(layer, compiler)
    check(run, layer, asked(2))
    check(run, layer, asked(3))
    x, tokens = asked(3)
    check(run, layer, (x.T.contiguous().T, tokens))
    workshop.finish()
    assert len({order.signature for order in compiler.orders}) == len(compiler.orders) == 3


def test_regions_of_one_form_are_compiled_once() -> None:
    compiler = Compiler()
    workshop = CompileManager({}, compiler.load, compiler.compile)
    layers = [layer_of(4), layer_of(4), layer_of(5)]
    layers[1].weight.neg_()
    runs = [workshop.run(region(layer, f"layer {place}")) for place, layer in enumerate(layers)]
    for _ in range(2):
        for run, layer in zip(runs, layers, strict=True):
            check(run, layer, asked())
        compiler.go_on.set()
        workshop.finish()
    assert [order.region.name for order in compiler.orders] == ["layer 0", "layer 2"]
    assert len(compiler.runs) == 3


def test_several_are_compiled_beside_each_other() -> None:
    compiler, together = Compiler(), Barrier(3)

    def compile_it(order: CompileRequest) -> Path:
        together.wait(30)  # as many as that, or it breaks
        return compiler.compile(order)

    compiler.go_on.set()
    workshop = CompileManager({}, compiler.load, compile_it, at_once=3)
    layers = [layer_of(width) for width in range(4, 10)]
    runs = [workshop.run(region(layer)) for layer in layers]
    for run, layer in zip(runs, layers, strict=True):
        check(run, layer, asked())
    workshop.finish()
    assert workshop.changes == len(compiler.orders) == 6
    for run, layer in zip(runs, layers, strict=True):
        check(run, layer, asked())
    assert len(compiler.runs) == 6


def test_what_is_done_in_the_midst_of_a_recording_is_loaded_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading asks a GPU for what it does not give while it records."""
    layer, compiler = layer_of(), Compiler()
    run, workshop = compiled_of(layer, compiler)
    check(run, layer, asked())
    compiler.go_on.set()
    workshop.finish()
    monkeypatch.setattr(manager, "_is_capturing", lambda _: True)
    check(run, layer, asked())
    assert compiler.runs == []
    monkeypatch.setattr(manager, "_is_capturing", lambda _: False)
    check(run, layer, asked())
    assert len(compiler.runs) == 1


def test_a_compiler_that_fails_is_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    layer, compiler = layer_of(), Compiler(RuntimeError("no C++ here"))
    compiler.go_on.set()
    run, workshop = compiled_of(layer, compiler)
    for _ in range(3):
        check(run, layer, asked())
        workshop.finish()
    assert len(compiler.orders) == 1
    [said] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == "layer stays uncompiled: no C++ here"
    assert workshop.changes == 0


def test_what_an_engine_was_built_with_serves_from_the_first_call() -> None:
    layer, compiler = layer_of(), Compiler()
    inputs = asked()
    signature = region(layer).signature(region(layer).kind(inputs))
    run, _ = compiled_of(layer, compiler, {signature: KEPT})
    check(run, layer, inputs)
    assert compiler.runs == ["kept"]
    assert compiler.orders == []


def test_a_profiler_sees_it_as_one_operation() -> None:
    layer, compiler = layer_of(), Compiler()
    inputs = asked()
    signature = region(layer).signature(region(layer).kind(inputs))
    run, _ = compiled_of(layer, compiler, {signature: Path(signature)})
    run(*inputs)
    with profile() as seen:
        run(*inputs)
    [event] = [each for each in seen.events() or () if host_kind(each.name).what.startswith("compiled code")]
    assert {child.name for child in event.cpu_children} >= {"aten::linear", "aten::sum"}


def test_without_a_compiler_other_shapes_run_as_they_are() -> None:
    layer, compiler = layer_of(), Compiler()
    workshop = CompileManager({}, compiler.load)
    check(workshop.run(region(layer)), layer, asked())
    assert compiler.runs == []


def test_a_file_that_cannot_be_loaded_is_not_in_the_way(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Path) -> Any:
        raise RuntimeError("not a package")

    layer = layer_of()
    inputs = asked()
    signature = region(layer).signature(region(layer).kind(inputs))
    run = CompileManager({signature: KEPT}, broken).run(region(layer))
    check(run, layer, inputs)
    check(run, layer, inputs)
    assert caplog.messages == ["layer stays uncompiled: not a package"]


def test_what_nobody_uses_any_more_is_not_kept_for_its_compiler() -> None:
    layer, compiler = layer_of(), Compiler()
    compiler.go_on.set()
    run, workshop = compiled_of(layer, compiler)
    check(run, layer, asked())
    [worker], there = workshop._workers, ref(layer)
    compiler.orders.clear()
    del run, workshop, layer
    gc.collect()
    worker.join(30)
    assert not worker.is_alive()
    compiler.orders.clear()
    assert there() is None
