"""Layouts in a file, places and all: what `mig export` writes, what a change saves first, what a boot
restores.

Slices are written by name, so that the file can be read, and resolved on the GPU it is applied to. Knows
nothing of mig-parted's format, which has no places.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.core.paths import atomic_write
from calotype.mig.driver import GpuState
from calotype.mig.layout import ComputePart, Layout, Slice, check
from calotype.spec.validation_errors import problems_of

FORMAT: Literal["calotype.mig-layout.1"] = "calotype.mig-layout.1"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class SavedPart(_Frozen):
    """A compute instance inside a slice."""

    start: int
    profile_id: int
    size: int


class SavedSlice(_Frozen):
    """A slice at its place."""

    profile: str
    start: int
    """Memory slice it begins at."""
    parts: list[SavedPart] | None = None
    """Its compute instances, where they are not the usual single one."""


class SavedGpu(_Frozen):
    """One GPU."""

    index: int
    uuid: str | None = None
    """Which card it is; without it, the one with this index."""
    name: str = ""
    mig_enabled: bool
    slices: list[SavedSlice] = []


class LayoutFile(_Frozen):
    """The layouts of a machine's GPUs."""

    format: Literal["calotype.mig-layout.1"] = FORMAT
    gpus: list[SavedGpu]

    def text(self) -> str:
        """As it is written."""
        return self.model_dump_json(indent=2, exclude_none=True) + "\n"


def saved(states: Iterable[GpuState]) -> LayoutFile:
    """What these GPUs are cut into now."""
    return LayoutFile(gpus=[_saved_gpu(state, state.layout) for state in states])


def described(wanted: Iterable[tuple[GpuState, Layout]]) -> LayoutFile:
    """What these GPUs should be cut into."""
    return LayoutFile(gpus=[_saved_gpu(state, layout) for state, layout in wanted])


def with_others(file: LayoutFile, former: LayoutFile | None) -> LayoutFile:
    """The same, and of a former file the GPUs that this one does not speak of."""
    spoken = {gpu.uuid or gpu.index for gpu in file.gpus}
    others = [gpu for gpu in (former.gpus if former else ()) if (gpu.uuid or gpu.index) not in spoken]
    return LayoutFile(gpus=sorted([*file.gpus, *others], key=lambda gpu: gpu.index))


def write_layouts(path: Path, states: Iterable[GpuState]) -> None:
    with atomic_write(path, "w") as file:
        file.write(saved(states).text())


def parse_layouts(text: str, source: str) -> LayoutFile:
    """The file's content, or every problem with it."""
    try:
        return LayoutFile.model_validate(json.loads(text))
    except ValidationError as error:
        problems = [
            Problem(f"{source}: {p.field}", p.message, p.value) for p in problems_of(LayoutFile, error)
        ]
        raise RequestError(problems or [Problem(source, "is no layout file")]) from None
    except ValueError as error:
        raise RequestError([Problem(source, f"is not valid JSON: {error}")]) from None


def targets(file: LayoutFile, states: Iterable[GpuState]) -> dict[int, Layout]:
    """What each GPU of this machine should be; a GPU that is not here is refused by name."""
    present = list(states)
    return {state.index: _layout(entry, state) for entry in file.gpus for state in [_match(entry, present)]}


def _match(entry: SavedGpu, present: list[GpuState]) -> GpuState:
    for state in present:
        if entry.uuid == state.uuid or (entry.uuid is None and entry.index == state.index):
            return state
    there = ", ".join(f"{state.index}: {state.name} {state.uuid}" for state in present)
    wanted = entry.uuid or f"with index {entry.index}"
    raise NotFoundError(
        f"the layout is for GPU {wanted} {entry.name}, which is not here; here are {there or 'none'}"
    )


def _layout(entry: SavedGpu, state: GpuState) -> Layout:
    slices = [
        Slice(part.start, state.model.profile(part.profile).profile_id, _parts(part)) for part in entry.slices
    ]
    return check(state.model, Layout(entry.mig_enabled, tuple(sorted(slices))))


def _parts(entry: SavedSlice) -> tuple[ComputePart, ...] | None:
    if entry.parts is None:
        return None
    return tuple(sorted(ComputePart(part.start, part.profile_id, part.size) for part in entry.parts))


def _saved_gpu(state: GpuState, layout: Layout) -> SavedGpu:
    slices = []
    for part in layout.slices:
        name = state.model.by_id(part.profile_id).name
        parts = None
        if part.parts is not None:
            parts = [SavedPart(start=p.start, profile_id=p.profile_id, size=p.size) for p in part.parts]
        slices.append(SavedSlice(profile=name, start=part.start, parts=parts))
    return SavedGpu(
        index=state.index, uuid=state.uuid, name=state.name, mig_enabled=layout.enabled, slices=slices
    )
