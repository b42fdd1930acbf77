"""mig-parted's configuration files, in and out. They name shapes and counts and no places: the planner
finds those.

A setting that the format does not have is refused, as is what no GPU can be. Knows nothing of our own
layout files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from yaml import YAMLError  # type: ignore[import-untyped]  # only its error's name is wanted

from calotype.core.errors import NotFoundError, Problem, RequestError, did_you_mean
from calotype.mig.driver import GpuState
from calotype.mig.enumerate import fitting, why_not
from calotype.mig.layout import EMPTY, OFF, Layout
from calotype.mig.planner import places_for
from calotype.mig.profiles import GpuModel, Profile, table
from calotype.spec.validation_errors import problems_of

Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class PartedEntry(_Frozen):
    """What some GPUs should be."""

    device_filter: str | list[str] | None = Field(default=None, alias="device-filter")
    devices: Literal["all"] | list[Index]
    mig_enabled: bool = Field(alias="mig-enabled")
    mig_devices: dict[str, Count] = Field(default={}, alias="mig-devices")

    def concerns(self, index: int, pci_device_id: str) -> bool:
        """Whether it speaks of this GPU."""
        return (self.devices == "all" or index in self.devices) and self.allows(pci_device_id)

    def allows(self, pci_device_id: str) -> bool:
        wanted = [self.device_filter] if isinstance(self.device_filter, str) else self.device_filter
        return not wanted or _bare(pci_device_id) in map(_bare, wanted)

    def profiles(self, gpu: GpuModel) -> list[Profile]:
        return [gpu.profile(name) for name, count in self.mig_devices.items() for _ in range(count)]


class PartedFile(_Frozen):
    """Labelled configurations."""

    version: Literal["v1"]
    mig_configs: dict[str, list[PartedEntry]] = Field(alias="mig-configs")


def parse_parted(text: str, source: str) -> PartedFile:
    """The file's content, or every problem with it."""
    try:
        values = OmegaConf.to_container(OmegaConf.create(text))
        file = PartedFile.model_validate(values)
    except ValidationError as error:
        problems = [
            Problem(f"{source}: {p.field}", p.message, p.value) for p in problems_of(PartedFile, error)
        ]
        raise RequestError(problems or [Problem(source, "is no mig-parted configuration")]) from None
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise RequestError([Problem(source, f"is not valid YAML: {' '.join(str(error).split())}")]) from None
    problems = [
        Problem(f"{source}: {label}", "has mig-devices while mig-enabled is false")
        for label, entries in file.mig_configs.items()
        for entry in entries
        if entry.mig_devices and not entry.mig_enabled
    ]
    if problems:
        raise RequestError(problems)
    return file


def entries_of(file: PartedFile, label: str) -> Sequence[PartedEntry]:
    if label not in file.mig_configs:
        raise NotFoundError(f"no configuration {label!r}; {did_you_mean(label, file.mig_configs)}")
    return file.mig_configs[label]


def targets(file: PartedFile, label: str, states: Iterable[GpuState]) -> dict[int, Layout]:
    """What each GPU of this machine should be; what is there already keeps its place where it can."""
    found: dict[int, Layout] = {}
    entries = entries_of(file, label)
    for state in states:
        mine = [entry for entry in entries if entry.concerns(state.index, state.pci_device_id)]
        if len({entry.model_dump_json(include={"mig_enabled", "mig_devices"}) for entry in mine}) > 1:
            raise RequestError([Problem(label, f"says two different things of GPU {state.index}")])
        if mine:
            found[state.index] = _layout(mine[0], state)
    if not found:
        raise NotFoundError(f"{label!r} speaks of no GPU of this machine: see its devices and device-filter")
    return found


def _layout(entry: PartedEntry, state: GpuState) -> Layout:
    if not entry.mig_enabled:
        return OFF
    profiles = entry.profiles(state.model)
    return places_for(state.model, profiles, state.layout, state.busy_layout) if profiles else EMPTY


@dataclass(frozen=True)
class ValidationResult:
    """What the table of GPUs says of one configuration."""

    suits: tuple[str, ...]
    """GPUs that can be cut so."""
    unjudged: tuple[str, ...] = ()
    """What concerns only GPUs that are not in the table."""


def validated(file: PartedFile) -> dict[str, ValidationResult]:
    """A verdict for each label; what the GPUs it is meant for cannot be is refused."""
    verdicts: dict[str, ValidationResult] = {}
    problems: list[Problem] = []
    for label, entries in file.mig_configs.items():
        suits: dict[str, None] = {}
        unjudged: list[str] = []
        for entry in entries:
            meant, unknown = _meant(entry)
            able = [gpu.name for gpu in meant if _fit(gpu, entry.profiles(gpu))]
            suits |= dict.fromkeys(able)
            if unknown:
                unjudged.append(unknown)
            elif not able:
                why = why_not(meant[0], entry.profiles(meant[0])) if meant else "no one GPU has all of these"
                problems.append(Problem(label, f"{_words(entry)} cannot be: {why}"))
        verdicts[label] = ValidationResult(tuple(suits), tuple(unjudged))
    if problems:
        raise RequestError(problems)
    return verdicts


def _meant(entry: PartedEntry) -> tuple[list[GpuModel], str | None]:
    """The GPUs of the table that have these shapes and pass the filter, or why the table cannot judge."""
    allowed = [gpu for gpu in table().values() if any(map(entry.allows, gpu.pci_device_ids or ("",)))]
    if not allowed:
        return [], f"{_words(entry)}: no GPU in the table passes its device-filter"
    everywhere = {profile.name for gpu in table().values() for profile in gpu.profiles}
    strange = next((name for name in entry.mig_devices if name not in everywhere), None)
    if strange:
        return [], f"no GPU in the table has {strange!r}; {did_you_mean(strange, everywhere)}"
    return [gpu for gpu in allowed if set(entry.mig_devices) <= {p.name for p in gpu.profiles}], None


def _fit(gpu: GpuModel, profiles: Sequence[Profile]) -> bool:
    return not profiles or bool(fitting(gpu, profiles))


def _words(entry: PartedEntry) -> str:
    return f"{{{', '.join(f'{name}: {count}' for name, count in entry.mig_devices.items())}}}"


def as_parted(states: Iterable[GpuState], label: str = "current") -> str:
    """What these GPUs are now, as YAML for mig-parted; places are lost."""
    entries = []
    for state in states:
        counts: dict[str, int] = {}
        for part in state.layout.slices:
            name = state.model.by_id(part.profile_id).name
            counts[name] = counts.get(name, 0) + 1
        entries.append({"devices": [state.index], "mig-enabled": state.mode.current, "mig-devices": counts})
    return OmegaConf.to_yaml(OmegaConf.create({"version": "v1", "mig-configs": {label: entries}}))


def _bare(pci_device_id: str) -> str:
    return pci_device_id.upper().removeprefix("0X")
