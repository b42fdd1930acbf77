"""Runs the kernel written in Gluon, which has no interpreter, as threads over torch's tensors on a CPU.

What is asked of a GPU there is done as late as it may be, and spoils at once what it may spoil: where a copy
goes to is overwritten when it is asked for and filled later, in any order; a product reads its factors when
it is waited for. So a wait that is missing shows in the numbers, one too many as threads that are stuck.
It says nothing of layouts, registers and instructions: `compiled.py` has those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.engine.kernels import int8_product_triton, int8_specialised_triton
from calotype.engine.kernels.int8_plans import Plan
from calotype.engine.kernels.quantise import Quantised
from tests.unit.kernels.turns import Turns

SPOILT = 77


@dataclass
class Descriptor:
    """Of a whole matrix, in tiles."""

    whole: Tensor
    shape: list[int]
    layout: None = None

    @property
    def dtype(self) -> torch.dtype:
        return self.whole.dtype

    def inside(self, corner: Sequence[int]) -> tuple[slice, slice]:
        rows, columns = (
            slice(start, max(start, min(start + size, limit)))
            for start, size, limit in zip(corner, self.shape, self.whole.shape, strict=True)
        )
        return rows, columns


@dataclass
class Pointer:
    numbers: Tensor
    places: Tensor | None = None

    def __add__(self, places: Tensor) -> Pointer:
        return Pointer(self.numbers, places)


class Sums(Tensor):
    """A tensor that halves as Triton's do."""

    def split(self, *_: Any, **__: Any) -> Any:
        return self.unbind(-1)


@dataclass
class Shared:
    """A piece of shared memory."""

    numbers: Tensor
    machine: Machine
    unfenced: bool = False
    parts: dict[int, Shared] = field(default_factory=dict)

    @property
    def shape(self) -> torch.Size:
        return self.numbers.shape

    def index(self, place: int) -> Shared:
        assert 0 <= place < len(self.numbers)
        return self.parts.setdefault(place, Shared(self.numbers[place], self.machine))

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.numbers.permute(*order), self.machine)

    def store(self, numbers: Tensor) -> None:
        self.machine.turns.until()
        self.numbers.copy_(numbers)
        self.unfenced = True
        self.machine.unfenced.append(self)


@dataclass
class Barrier:
    count: int
    phase: int = 0
    missing: int = 0
    missing_bytes: int = 0

    def change(self, *, arrivals: int = 0, new_bytes: int = 0) -> None:
        self.missing -= arrivals
        self.missing_bytes += new_bytes
        assert self.missing >= 0
        if self.missing == 0 and self.missing_bytes == 0:
            self.phase, self.missing = self.phase + 1, self.count


class Machine:
    """One program: its warps, its copy engine, its shared memory."""

    def __init__(self, program: int, num_programs: int, num_warps: int, seed: int) -> None:
        self.program, self.num_programs, self.num_warps = program, num_programs, num_warps
        self.turns = Turns(seed)
        self.barriers: dict[int, Barrier] = {}
        self.copies: list[Callable[[], None]] = []
        self.going_out: dict[int, int] = {}
        self.unfenced: list[Shared] = []
        self.under_way: dict[int, list[tuple[Shared, Shared, Tensor]]] = {}
        self.done = 0

    def barrier(self, place: Shared) -> Barrier:
        return self.barriers[id(place)]

    # What the kernel asks for, by the names it has there.

    def allocate_shared_memory(self, dtype: torch.dtype, shape: list[int], _: object) -> Shared:
        return Shared(torch.full(shape, SPOILT, dtype=dtype), self)

    def warp_specialize(
        self, work: Sequence[tuple[Callable[..., None], tuple[Any, ...]]], warps: list[int], _: list[int]
    ) -> None:
        assert len(work) == len(warps) + 1

        def do(function: Callable[..., None], given: tuple[Any, ...]) -> None:
            function(*given)
            self.done += 1

        def copy() -> None:
            while self.copies or self.done < len(work):
                self.turns.until(lambda: bool(self.copies) or self.done == len(work))
                if self.copies:
                    self.turns.pick(self.copies)()

        self.turns.run([*(lambda f=f, given=given: do(f, given) for f, given in work), copy])

    def init(self, place: Shared, count: int) -> None:
        self.barriers[id(place)] = Barrier(count, missing=count)

    def wait(self, place: Shared, parity: int) -> None:
        barrier = self.barrier(place)
        self.turns.until(lambda: barrier.phase % 2 != parity)

    def expect(self, place: Shared, num_bytes: int) -> None:
        self.turns.until()
        self.barrier(place).change(arrivals=1, new_bytes=num_bytes)

    def arrive(self, place: Shared, *, pred: bool = True) -> None:
        self.turns.until()
        if pred:
            self.barrier(place).change(arrivals=1)

    def fetch(self, source: Descriptor, corner: Sequence[int], place: Shared, into: Shared) -> None:
        self.turns.until()
        assert list(into.shape) == source.shape
        into.numbers.fill_(SPOILT)

        def copy() -> None:
            rows, columns = source.inside(corner)
            found = source.whole[rows, columns]
            into.numbers.zero_()
            into.numbers[: found.shape[0], : found.shape[1]] = found
            self.barrier(place).change(new_bytes=-into.numbers.nbytes)

        self.copies.append(copy)

    def write(self, target: Descriptor, corner: Sequence[int], source: Shared) -> None:
        self.turns.until()
        assert not source.unfenced, "the copy engine may not see what was stored"
        me = self.turns.me

        def copy() -> None:
            rows, columns = target.inside(corner)
            found = target.whole[rows, columns]
            found.copy_(source.numbers[: found.shape[0], : found.shape[1]])
            self.going_out[me] -= 1

        self.going_out[me] = self.going_out.get(me, 0) + 1
        self.copies.append(copy)

    def store_wait(self, pending: int) -> None:
        me = self.turns.me
        self.turns.until(lambda: self.going_out.get(me, 0) <= pending)

    def fence(self) -> None:
        for each in self.unfenced:
            each.unfenced = False
        self.unfenced.clear()

    def multiply(self, x: Shared, weight: Shared, sums: Tensor, *, is_async: bool) -> Tensor:
        assert is_async
        self.turns.until()
        self.under_way.setdefault(self.turns.me, []).append((x, weight, sums))
        return sums

    def multiply_wait(self, pending: int, deps: list[Tensor]) -> Tensor:
        self.turns.until()
        waiting = self.under_way.get(self.turns.me, [])
        while len(waiting) > pending:
            x, weight, sums = waiting.pop(0)
            sums += (x.numbers.double() @ weight.numbers.double()).to(torch.int32)
        return deps[0]

    def language(self) -> SimpleNamespace:
        return SimpleNamespace(
            program_id=lambda _: self.program,
            num_programs=lambda _: self.num_programs,
            num_warps=lambda: self.num_warps,
            allocate_shared_memory=self.allocate_shared_memory,
            warp_specialize=self.warp_specialize,
            static_range=range,
            cdiv=lambda a, b: -(-a // b),
            arange=lambda start, end, **_: torch.arange(start, end),
            zeros=lambda shape, dtype, _: torch.zeros(shape, dtype=dtype).as_subclass(Sums),
            convert_layout=lambda numbers, *_, **__: numbers,
            load=_load,
            int32=torch.int32,
            int64=torch.int64,
            float32=torch.float32,
            SliceLayout=lambda *_: None,
            NVMMADistributedLayout=lambda *_: None,
        )


def _load(pointer: Pointer, mask: Tensor, other: float) -> Tensor:
    assert pointer.places is not None
    return torch.where(mask, pointer.numbers.flatten()[pointer.places * mask], other)


def launch(
    x: Quantised, weight: Quantised, bias: Tensor | None, dtype: torch.dtype, plan: Plan, seed: int
) -> Tensor:
    """The module's own launch, with this machine behind it."""
    module = int8_specialised_triton
    kernel = {name: getattr(module, name).fn for name in ("_fetch", "_multiply", "_write", "_place")}
    whole = module._product_specialised.fn

    class Kernel:
        def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
            def run(*given: Any, num_warps: int, **settings: Any) -> None:
                wrapped = [Pointer(each) if isinstance(each, Tensor) else each for each in given]
                for program in range(*grid):
                    machine = Machine(program, *grid, num_warps, seed + program)
                    for name, value in _names(machine).items():
                        patched.setattr(module, name, value)
                    whole(*wrapped, **settings)

            return run

    with pytest.MonkeyPatch.context() as patched:
        for name, function in kernel.items():
            patched.setattr(module, name, function)
        patched.setattr(module, "_product_specialised", Kernel())
        patched.setattr(module, "_tiles_of", Descriptor)
        patched.setattr(int8_product_triton, "tl", SimpleNamespace(minimum=min))
        return module.launch(x, weight, bias, dtype, plan)


def _names(machine: Machine) -> dict[str, object]:
    return {
        "gl": machine.language(),
        "mbarrier": SimpleNamespace(
            MBarrierLayout=lambda: None,
            init=machine.init,
            wait=machine.wait,
            expect=machine.expect,
            arrive=machine.arrive,
        ),
        "tma": SimpleNamespace(
            async_copy_global_to_shared=machine.fetch,
            async_copy_shared_to_global=machine.write,
            store_wait=machine.store_wait,
        ),
        "fence_async_shared": machine.fence,
        "warpgroup_mma": machine.multiply,
        "warpgroup_mma_wait": machine.multiply_wait,
    }
