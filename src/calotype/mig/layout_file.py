"""Layout files with placements: written by `mig export` and before a change, restored at boot.

Slices are stored by profile name, for readability, and resolved on the GPU they are applied to.
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
    """First memory slice."""
    parts: list[SavedPart] | None = None
    """Its compute instances, if they are not the default single one."""


class SavedGpu(_Frozen):
    """One GPU."""

    index: int
    uuid: str | None = None
    """Identifies the GPU; without it, the index does."""
    name: str = ""
    mig_enabled: bool
    slices: list[SavedSlice] = []


class LayoutFile(_Frozen):
    """The layouts of a machine's GPUs."""

    format: Literal["calotype.mig-layout.1"] = FORMAT
    gpus: list[SavedGpu]

    def text(self) -> str:
        """The file's text."""
        return self.model_dump_json(indent=2, exclude_none=True) + "\n"


def saved(states: Iterable[GpuState]) -> LayoutFile:
    """The current layouts of these GPUs."""
    return LayoutFile(gpus=[_saved_gpu(state, state.layout) for state in states])


def described(wanted: Iterable[tuple[GpuState, Layout]]) -> LayoutFile:
    """The given layouts of these GPUs."""
    return LayoutFile(gpus=[_saved_gpu(state, layout) for state, layout in wanted])


def with_others(file: LayoutFile, former: LayoutFile | None) -> LayoutFile:
    """The file plus a former file's GPUs that it does not include."""
    included = {gpu.uuid or gpu.index for gpu in file.gpus}
    others = [gpu for gpu in (former.gpus if former else ()) if (gpu.uuid or gpu.index) not in included]
    return LayoutFile(gpus=sorted([*file.gpus, *others], key=lambda gpu: gpu.index))


def write_layouts(path: Path, states: Iterable[GpuState]) -> None:
    with atomic_write(path, "w") as file:
        file.write(saved(states).text())


def parse_layouts(text: str, source: str) -> LayoutFile:
    """Parse a layout file; raises with every problem in it."""
    try:
        return LayoutFile.model_validate(json.loads(text))
    except ValidationError as error:
        problems = [
            Problem(f"{source}: {p.field}", p.message, p.value) for p in problems_of(LayoutFile, error)
        ]
        raise RequestError(problems or [Problem(source, "is not a layout file")]) from None
    except ValueError as error:
        raise RequestError([Problem(source, f"is not valid JSON: {error}")]) from None


def targets(file: LayoutFile, states: Iterable[GpuState]) -> dict[int, Layout]:
    """The target layout of each GPU of this machine; an entry for a missing GPU is refused."""
    present = list(states)
    return {state.index: _layout(entry, state) for entry in file.gpus for state in [_match(entry, present)]}


def _match(entry: SavedGpu, present: list[GpuState]) -> GpuState:
    for state in present:
        if entry.uuid == state.uuid or (entry.uuid is None and entry.index == state.index):
            return state
    available = ", ".join(f"{state.index}: {state.name} {state.uuid}" for state in present)
    expected = entry.uuid or f"with index {entry.index}"
    raise NotFoundError(
        f"the layout is for GPU {expected} {entry.name}, which this machine does not have; "
        f"it has {available or 'none'}"
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
