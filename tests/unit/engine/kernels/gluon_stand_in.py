"""Runs the kernels written in Gluon, which has no interpreter, as threads over torch's tensors on a CPU.

What is asked of a GPU there is done as late as it may be, and spoils at once what it may spoil: where a copy
goes to is overwritten when it is asked for and filled later, in any order; a product is there when it is
waited for, and its factors must be the same from when it was asked for until then. So a wait that is missing
shows in the numbers or is refused, one too many shows as threads that are stuck. It says nothing of layouts,
registers and instructions: `compiled.py` has those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.engine.kernels import attention, attention_hopper, int8_matmul_hopper, int8_matmul_triton
from calotype.engine.kernels.int8_tile_config import Plan
from calotype.engine.kernels.quantize import Quantized
from tests.unit.engine.kernels.thread_interleaving import Turns

SPOILT = 77
Function = Callable[..., Any]


@dataclass
class Descriptor:
    """Of a whole tensor, in tiles."""

    whole: Tensor
    shape: list[int]
    layout: None = None

    @property
    def dtype(self) -> torch.dtype:
        return self.whole.dtype

    def inside(self, corner: Sequence[int]) -> Tensor:
        """What of the whole is in the tile at this corner."""
        return self.whole[
            tuple(
                slice(start, max(start, min(start + size, limit)))
                for start, size, limit in zip(corner, self.shape, self.whole.shape, strict=True)
            )
        ]


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
    parts: dict[int, Shared] = field(default_factory=dict)

    @property
    def shape(self) -> torch.Size:
        return self.numbers.shape

    def index(self, place: int) -> Shared:
        assert 0 <= place < len(self.numbers)
        return self.parts.setdefault(place, Shared(self.numbers[place], self.machine))

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.numbers.permute(*order), self.machine)

    def reshape(self, shape: Sequence[int]) -> Shared:
        return Shared(self.numbers.view(*shape), self.machine)

    def store(self, numbers: Tensor) -> None:
        self.machine.turns.until()
        self.numbers.copy_(numbers)
        self.machine.unfenced[self.numbers.data_ptr()] = self.machine.turns.me


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


@dataclass
class Product:
    """Under way."""

    factors: tuple[Tensor, ...]
    then: tuple[Tensor, ...]
    """The factors as they were when it was asked for."""
    sums: Tensor
    add: bool

    def end(self) -> None:
        same = all(torch.equal(*pair) for pair in zip(self.factors, self.then, strict=True))
        assert same, "a factor came or went while its product was under way"
        x, weight = (each.double() for each in self.then)
        found = (x @ weight).to(self.sums.dtype)
        self.sums.copy_(self.sums + found if self.add else found)


class Machine:
    """One program: its warps, its copy engine, its shared memory."""

    def __init__(self, program: int, num_programs: int, num_warps: int, seed: int) -> None:
        self.program, self.num_programs, self.num_warps = program, num_programs, num_warps
        self.turns = Turns(seed)
        self.barriers: dict[int, Barrier] = {}
        self.copies: list[Callable[[], None]] = []
        self.going_out: dict[int, list[Callable[[], None]]] = {}
        """By whom it was asked for: read when it is waited for."""
        self.unfenced: dict[int, int] = {}
        """Where something was stored that the copy engine may not see yet, and by whom."""
        self.under_way: dict[int, list[Product]] = {}
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
            assert not self.going_out.get(self.turns.me), "shared memory may be gone before it is read"
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
            found = source.inside(corner)
            into.numbers.zero_()
            into.numbers[tuple(map(slice, found.shape))] = found
            self.barrier(place).change(new_bytes=-into.numbers.nbytes)

        self.copies.append(copy)

    def write(self, target: Descriptor, corner: Sequence[int], source: Shared) -> None:
        self.turns.until()
        assert source.numbers.data_ptr() not in self.unfenced, "the copy engine may not see what was stored"

        def copy() -> None:
            found = target.inside(corner)
            found.copy_(source.numbers[tuple(map(slice, found.shape))])

        self.going_out.setdefault(self.turns.me, []).append(copy)

    def store_wait(self, pending: int) -> None:
        self.turns.until()
        waiting = self.going_out.get(self.turns.me, [])
        while len(waiting) > pending:
            waiting.pop(0)()

    def fence(self) -> None:
        """Of the one who asks; before anyone runs there is nothing to be seen."""
        if self.unfenced:
            me = self.turns.me
            self.unfenced = {place: who for place, who in self.unfenced.items() if who != me}

    def multiply(
        self, x: Shared | Tensor, weight: Shared, sums: Tensor, *, use_acc: bool = True, is_async: bool
    ) -> Tensor:
        assert is_async
        self.turns.until()
        factors = (x.numbers if isinstance(x, Shared) else x, weight.numbers)
        if not use_acc:
            sums.fill_(SPOILT)
        product = Product(factors, tuple(each.clone() for each in factors), sums, use_acc)
        self.under_way.setdefault(self.turns.me, []).append(product)
        return sums

    def multiply_wait(self, pending: int, deps: list[Tensor]) -> Any:
        self.turns.until()
        waiting = self.under_way.get(self.turns.me, [])
        while len(waiting) > pending:
            waiting.pop(0).end()
        return deps[0] if len(deps) == 1 else tuple(deps)

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
            full=lambda shape, number, dtype, _: torch.full(shape, number, dtype=dtype),
            max=torch.amax,
            sum=torch.sum,
            maximum=torch.maximum,
            exp2=torch.exp2,
            convert_layout=lambda numbers, *_, **__: numbers,
            load=_load,
            int32=torch.int32,
            int64=torch.int64,
            float32=torch.float32,
            SliceLayout=lambda *_: None,
            NVMMADistributedLayout=lambda *_: None,
            DotOperandLayout=lambda *_: None,
        )


def _load(pointer: Pointer, mask: Tensor, other: float) -> Tensor:
    assert pointer.places is not None
    return torch.where(mask, pointer.numbers.flatten()[pointer.places * mask], other)


@contextmanager
def standing_in(
    module: ModuleType, whole: str, seed: int, changed: Mapping[str, Function]
) -> Iterator[pytest.MonkeyPatch]:
    """The module with this machine behind its kernel `whole`, and with some of its functions changed."""
    functions = {name: each.fn for name, each in vars(module).items() if hasattr(each, "fn")} | {**changed}

    class Kernel:
        def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
            def run(*given: Any, num_warps: int, **settings: Any) -> None:
                wrapped = [Pointer(each) if isinstance(each, Tensor) else each for each in given]
                for program in range(*grid):
                    machine = Machine(program, *grid, num_warps, seed + program)
                    for name, value in _names(machine).items():
                        patched.setattr(module, name, value)
                    functions[whole](*wrapped, **settings)

            return run

    with pytest.MonkeyPatch.context() as patched:
        for name, function in functions.items():
            patched.setattr(module, name, function)
        patched.setattr(module, whole, Kernel())
        yield patched


def launch(
    x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype, plan: Plan, seed: int
) -> Tensor:
    """The product's own launch, on this machine."""
    module = int8_matmul_hopper
    with standing_in(module, "_product_specialized", seed, {}) as patched:
        patched.setattr(module, "_tiles_of", Descriptor)
        patched.setattr(int8_matmul_triton, "tl", SimpleNamespace(minimum=min))
        return module.launch(x, weight, bias, dtype, plan)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    plan: attention.Plan,
    seed: int,
    changed: Mapping[str, Function] | None = None,
) -> Tensor:
    """Attention's own launch, on this machine."""

    def tiles_of(x: Tensor, size: int, width: int) -> Descriptor:
        return Descriptor(x.transpose(1, 2), [1, size, 1, width])

    with standing_in(attention_hopper, "_attention", seed, changed or {}) as patched:
        patched.setattr(attention_hopper, "_tiles_of", tiles_of)
        return attention_hopper.launch(query, key, value, plan)


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
