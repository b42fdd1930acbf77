"""Parses workload requests: `3×sd15@4, 1×sdxl`, `2g.20gb×3,1g.10gb+me`, `2×24gb/0.4`, `14,14,14,20`.

Reports every problem at once.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from calotype.core.errors import CalotypeError, Problem, RequestError
from calotype.mig.performance_model import PerformanceModel
from calotype.mig.profiles import GIB, GpuModel, Profile

HOW_TO = "write for instance 3×sd15@4, 1×sdxl — or 2g.20gb×3,1g.10gb+me — or 2×24gb/0.4 (memory/speed share)"

_COUNT_FIRST = re.compile(r"(\*|\d+)\s*[x×]\s*(.+)")
_COUNT_LAST = re.compile(r"(.+?)\s*[x×]\s*(\d+)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(gib|gb)(?:\s*/\s*(\d*\.?\d+))?(\+me)?")
_PROFILE = re.compile(r"(mig )?\d+(g\..*)?|\d+c\..*")
_MODEL = re.compile(r"([\w:.-]+?)(?:\s*@\s*(\d+)|\s+at\s+batch\s+(\d+))?\s*(\+me)?")


@dataclass(frozen=True)
class WorkloadRequest:
    """One requested slice: a profile, or a workload's needs."""

    label: str
    profile: Profile | None = None
    memory_bytes: int = 0
    least_share: float = 0.0
    needs_media: bool = False
    model: str | None = None
    batch: int = 1
    source: str = "asked for"

    def satisfied_by(self, profile: Profile) -> bool:
        """Whether the profile has the memory and engines; the planner checks the speed."""
        if self.profile is not None:
            return self.profile == profile
        return profile.memory_bytes >= self.memory_bytes and (profile.has_media or not self.needs_media)


@dataclass(frozen=True)
class WorkloadRequests:
    """All requested slices, and the request that fills the rest of the GPU, if any."""

    fixed: tuple[WorkloadRequest, ...]
    filling: WorkloadRequest | None = None


def parse_requests(text: str, gpu: GpuModel, figures: PerformanceModel) -> WorkloadRequests:
    """Parse the requests for this GPU."""
    fixed: list[WorkloadRequest] = []
    filling: list[WorkloadRequest] = []
    problems: list[Problem] = []
    for item in filter(None, (part.strip() for part in re.split(r"[,;]| and ", text.lower()))):
        try:
            count, what = _split(item, gpu)
            want = _want(what, gpu, figures)
        except RequestError as error:
            problems += [Problem(item, problem.message, item) for problem in error.problems]
        except CalotypeError as error:
            problems.append(Problem(item, str(error), item))
        else:
            filling += [want] if count is None else []
            fixed += [want] * (count or 0)
    if not fixed and not filling and not problems:
        problems.append(Problem("wants", f"the request is empty; {HOW_TO}", text))
    if len(filling) > 1:
        problems.append(Problem("wants", "only one item can be '*' (as many as fit)", text))
    if problems:
        raise RequestError(problems)
    return WorkloadRequests(tuple(fixed), filling[0] if filling else None)


def requested_profiles(text: str, gpu: GpuModel, figures: PerformanceModel) -> Sequence[Profile] | None:
    """The profiles, if the text names only profiles."""
    wants = parse_requests(text, gpu, figures)
    if wants.filling or any(want.profile is None for want in wants.fixed):
        return None
    return [want.profile for want in wants.fixed if want.profile]


def _split(item: str, gpu: GpuModel) -> tuple[int | None, str]:
    """Count (None: as many as fit) and item."""
    if match := _COUNT_FIRST.fullmatch(item):
        number, what = match.groups()
    elif match := _COUNT_LAST.fullmatch(item):
        what, number = match.groups()
    else:
        number, what = "1", item
    if number == "*":
        return None, what
    most = gpu.compute_slices
    if not 1 <= int(number) <= most:
        rule = f"{number} is out of range; {gpu.name} has room for 1 to {most} slices"
        raise RequestError([Problem("count", rule, number)])
    return int(number), what


def _want(what: str, gpu: GpuModel, figures: PerformanceModel) -> WorkloadRequest:
    if match := _MEMORY.fullmatch(what):
        return _by_figures(what, *match.groups())
    if _PROFILE.fullmatch(what):
        return WorkloadRequest(gpu.profile(what).name, profile=gpu.profile(what))
    match = _MODEL.fullmatch(what)
    if match is None:
        raise RequestError([Problem("wants", f"{what!r} is not a valid request; {HOW_TO}", what)])
    model, short, long, media = match.groups()
    batch = int(short or long or 1)
    if not 1 <= batch <= 4096:
        raise RequestError([Problem("batch", f"{batch} is out of range; it must be 1 to 4096", batch)])
    needed, source = figures.needed(model, batch)
    label = f"{model}@{batch}{media or ''}"
    return WorkloadRequest(label, None, needed, 0.0, bool(media), model, batch, source)


def _by_figures(what: str, amount: str, unit: str, share: str | None, media: str | None) -> WorkloadRequest:
    size = float(amount) * (GIB if unit == "gib" else 1e9)
    least = float(share or 0)
    if size <= 0 or not 0 <= least <= 1:
        rule = f"{what!r}: memory must be more than 0 and the share of the GPU's speed 0 to 1"
        raise RequestError([Problem("wants", rule, what)])
    return WorkloadRequest(what, None, int(size), least, bool(media))
