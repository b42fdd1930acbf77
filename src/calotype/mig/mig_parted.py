"""Reads and writes mig-parted's configuration files.

They hold profiles and counts without placements, which the planner chooses. Unknown settings and layouts that
no GPU supports are refused.
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
    """The configuration of some GPUs."""

    device_filter: str | list[str] | None = Field(default=None, alias="device-filter")
    devices: Literal["all"] | list[Index]
    mig_enabled: bool = Field(alias="mig-enabled")
    mig_devices: dict[str, Count] = Field(default={}, alias="mig-devices")

    def concerns(self, index: int, pci_device_id: str) -> bool:
        """Whether the entry applies to this GPU."""
        return (self.devices == "all" or index in self.devices) and self.allows(pci_device_id)

    def allows(self, pci_device_id: str) -> bool:
        wanted = [self.device_filter] if isinstance(self.device_filter, str) else self.device_filter
        return not wanted or _bare(pci_device_id) in map(_bare, wanted)

    def profiles(self, gpu: GpuModel) -> list[Profile]:
        return [gpu.profile(name) for name, count in self.mig_devices.items() for _ in range(count)]


class PartedFile(_Frozen):
    """Labeled configurations."""

    version: Literal["v1"]
    mig_configs: dict[str, list[PartedEntry]] = Field(alias="mig-configs")


def parse_parted(text: str, source: str) -> PartedFile:
    """Parse a file; raises with every problem in it."""
    try:
        values = OmegaConf.to_container(OmegaConf.create(text))
        file = PartedFile.model_validate(values)
    except ValidationError as error:
        problems = [
            Problem(f"{source}: {p.field}", p.message, p.value) for p in problems_of(PartedFile, error)
        ]
        raise RequestError(problems or [Problem(source, "is not a mig-parted configuration")]) from None
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
    """The target layout of each GPU of this machine; existing slices keep their placement if possible."""
    found: dict[int, Layout] = {}
    entries = entries_of(file, label)
    for state in states:
        matching = [entry for entry in entries if entry.concerns(state.index, state.pci_device_id)]
        if len({entry.model_dump_json(include={"mig_enabled", "mig_devices"}) for entry in matching}) > 1:
            raise RequestError([Problem(label, f"has two different configurations for GPU {state.index}")])
        if matching:
            found[state.index] = _layout(matching[0], state)
    if not found:
        raise NotFoundError(
            f"{label!r} applies to no GPU of this machine: check its devices and device-filter"
        )
    return found


def _layout(entry: PartedEntry, state: GpuState) -> Layout:
    if not entry.mig_enabled:
        return OFF
    profiles = entry.profiles(state.model)
    return places_for(state.model, profiles, state.layout, state.busy_layout) if profiles else EMPTY


@dataclass(frozen=True)
class ValidationResult:
    """The result of validating one configuration against the table of GPUs."""

    suits: tuple[str, ...]
    """GPUs that support it."""
    unjudged: tuple[str, ...] = ()
    """Entries that only apply to GPUs outside of the table."""


def validated(file: PartedFile) -> dict[str, ValidationResult]:
    """Validate each label; a configuration that none of its GPUs supports is refused."""
    results: dict[str, ValidationResult] = {}
    problems: list[Problem] = []
    for label, entries in file.mig_configs.items():
        suits: dict[str, None] = {}
        unjudged: list[str] = []
        for entry in entries:
            candidates, unknown = _candidates(entry)
            supported = [gpu.name for gpu in candidates if _fit(gpu, entry.profiles(gpu))]
            suits |= dict.fromkeys(supported)
            if unknown:
                unjudged.append(unknown)
            elif not supported:
                why = (
                    why_not(candidates[0], entry.profiles(candidates[0]))
                    if candidates
                    else "no single GPU has all of these"
                )
                problems.append(Problem(label, f"{_words(entry)} is impossible: {why}"))
        results[label] = ValidationResult(tuple(suits), tuple(unjudged))
    if problems:
        raise RequestError(problems)
    return results


def _candidates(entry: PartedEntry) -> tuple[list[GpuModel], str | None]:
    """The GPUs of the table with these profiles that pass the filter, or why the table has no answer."""
    allowed = [gpu for gpu in table().values() if any(map(entry.allows, gpu.pci_device_ids or ("",)))]
    if not allowed:
        return [], f"{_words(entry)}: no GPU in the table passes its device-filter"
    known_profiles = {profile.name for gpu in table().values() for profile in gpu.profiles}
    unknown_profile = next((name for name in entry.mig_devices if name not in known_profiles), None)
    if unknown_profile:
        return (
            [],
            f"no GPU in the table has {unknown_profile!r}; {did_you_mean(unknown_profile, known_profiles)}",
        )
    return [gpu for gpu in allowed if set(entry.mig_devices) <= {p.name for p in gpu.profiles}], None


def _fit(gpu: GpuModel, profiles: Sequence[Profile]) -> bool:
    return not profiles or bool(fitting(gpu, profiles))


def _words(entry: PartedEntry) -> str:
    return f"{{{', '.join(f'{name}: {count}' for name, count in entry.mig_devices.items())}}}"


def as_parted(states: Iterable[GpuState], label: str = "current") -> str:
    """The current layouts as YAML for mig-parted, without placements."""
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
