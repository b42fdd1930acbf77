"""What work needs and how fast it was measured, and what follows for a slice: memory figures and
predictions.

Figures come from `figures.json`, which is fed by the engine's memory estimate and committed benchmarks, and
from records that a user hands in (`records`). Every figure says where it is from. Knows nothing of layouts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import ceil

from calotype.core.errors import NotFoundError, did_you_mean
from calotype.mig.profiles import GIB, GpuModel, Profile, table

CONTEXT_BYTES = GIB // 2
"""What a process takes on the GPU before it has done anything; an assumption on the large side."""
WORKSPACE_BYTES = 256 * 2**20
HEADROOM = 0.95
"""This and the workspace are the engine's, which a test compares."""
ESTIMATE = "the engine's memory estimate (preset fast, fp16, the model's own size, with guidance)"


@dataclass(frozen=True)
class ModelMemory:
    """What making pictures with a model takes."""

    model: str
    side: int
    weights_bytes: int
    resident_bytes: int
    """Made of weights and kept beside them."""
    bytes_per_picture: int
    """While steps are made, its prompts' keys and values included."""
    decode_bytes: int
    """Of one picture: one is decoded at a time, and CUDA graphs keep what the steps took."""

    def needed_bytes(self, batch: int) -> int:
        """Of a slice, for one process that makes `batch` pictures at once."""
        peak = self.resident_bytes + batch * self.bytes_per_picture + self.decode_bytes
        return ceil((self.weights_bytes + peak + WORKSPACE_BYTES) / HEADROOM) + CONTEXT_BYTES


@dataclass(frozen=True)
class Speed:
    """How fast a whole card did some work."""

    model: str
    """`train:NAME` for training."""
    batch: int
    gpu: str
    sms: int
    per_s: float
    source: str
    unit: str = "pictures × steps a second"
    memory_bytes: int | None = None


@dataclass(frozen=True)
class PerformanceModel:
    """Everything that is known of work."""

    memory: tuple[ModelMemory, ...]
    speeds: tuple[Speed, ...]

    def models(self) -> list[str]:
        return sorted(
            {row.model for row in self.memory} | {row.model for row in self.speeds if row.memory_bytes}
        )

    def needed(self, model: str, batch: int) -> tuple[int, str]:
        """Bytes of a slice for this work, and where that figure is from: what was measured comes first."""
        measured = [row for row in self.speeds if row.model == model and row.memory_bytes]
        enough = sorted(
            (row.batch, row.memory_bytes or 0, row.source) for row in measured if row.batch >= batch
        )
        known = next((row for row in self.memory if row.model == model), None)
        if known and (not enough or enough[0][0] != batch):
            return known.needed_bytes(batch), ESTIMATE
        if enough:
            # torch's peak is without the process's own context.
            return enough[0][1] + CONTEXT_BYTES, f"the record {enough[0][2]} at batch {enough[0][0]}"
        if measured:
            most = max(row.batch for row in measured)
            raise NotFoundError(
                f"{model} was recorded up to batch {most}, not at {batch}; give a record of it"
            )
        raise NotFoundError(f"nothing is known of {model!r}; {did_you_mean(model, self.models())}")


@cache
def shipped() -> PerformanceModel:
    """The figures that come with the package."""
    raw = json.loads((files(__package__) / "figures.json").read_text("utf-8"))
    return PerformanceModel(
        tuple(ModelMemory(**row) for row in raw["memory"]), tuple(Speed(**row) for row in raw["speed"])
    )


def model_of_card(name: str, memory_bytes: int | None) -> GpuModel | None:
    """The table's GPU for a card's full name, such as `NVIDIA A100-SXM4-80GB`; the nearest in memory."""
    words = set(name.upper().replace("-", " ").split())

    def family_matches(gpu: GpuModel) -> bool:
        family = gpu.name.upper().replace("-", " ").split()
        sized = next(i for i, word in enumerate(family) if word.endswith("GB"))
        return set(family[:sized]) <= words

    def distance(gpu: GpuModel) -> tuple[float, int]:
        away = abs(gpu.whole.memory_bytes - memory_bytes) / memory_bytes if memory_bytes else 0.0
        shared = len(words & set(gpu.name.upper().replace("-", " ").split()))
        # Cards of one size differ in their form (SXM5, PCIe), which the name may tell.
        return round(away, 1), -shared

    return min(filter(family_matches, table().values()), key=distance, default=None)


@dataclass(frozen=True)
class Prediction:
    """What a slice is expected to do. Not a measurement."""

    share: float
    """Of the whole card's best speed at this work."""
    per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    unit: str | None
    basis: str


def predict(
    figures: PerformanceModel, gpu: GpuModel, profile: Profile, model: str | None, batch: int = 1
) -> Prediction:
    """The speed of work in a slice: the card's best speed times the slice's share of multiprocessors.

    The range is that share against the share of memory (and so of its bandwidth). No slice is taken to be
    faster than the whole card was at the same batch, where launching kernels often takes the time.
    """
    by_sms = _sm_share(gpu, profile)
    by_memory = profile.memory_slices / gpu.memory_slices
    rows = [row for row in figures.speeds if row.model == model and row.gpu == gpu.name]
    if not rows:
        sms = (
            f"{profile.sms} of {gpu.whole.sms} SMs"
            if profile.sms
            else f"{profile.compute_slices} compute slices"
        )
        nothing = f"; no record of {model} on {gpu.name}" if model else ""
        return Prediction(by_sms, None, None, None, None, f"predicted from {sms}{nothing}")
    peak, cap = max(row.per_s for row in rows), _most_at(rows, batch)

    def reached(share: float) -> float:
        return min(cap, peak * share)

    sources = ", ".join(sorted({row.source for row in rows}))
    basis = f"predicted in {rows[0].unit} from {sources} and the slice's share of SMs"
    low, high = sorted((reached(by_sms), reached(by_memory)))
    return Prediction(reached(by_sms) / peak, reached(by_sms), low, high, rows[0].unit, basis)


def _sm_share(gpu: GpuModel, profile: Profile) -> float:
    if profile.sms and gpu.whole.sms:
        return profile.sms / gpu.whole.sms
    return profile.compute_slices / gpu.compute_slices


def _most_at(rows: Sequence[Speed], batch: int) -> float:
    """The most the whole card can do at `batch`: no more than at larger ones or smaller ones scaled."""
    larger = [row.per_s for row in rows if row.batch >= batch]
    scaled = [row.per_s * batch / row.batch for row in rows if row.batch <= batch]
    return min([*larger, *scaled], default=max(row.per_s for row in rows))
