"""Memory needs and measured speeds of workloads, and predictions of both for a slice.

Figures come from `figures.json`, which is built from the engine's memory estimate and committed benchmarks,
and from a user's records (`measured_speeds`). Every figure names its source.
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
"""GPU memory of a process's CUDA context; an assumption on the large side."""
WORKSPACE_BYTES = 256 * 2**20
HEADROOM = 0.95
"""This and the workspace equal the engine's values; a test compares them."""
ESTIMATE = "the engine's memory estimate (preset fast, fp16, the model's own size, with guidance)"


@dataclass(frozen=True)
class ModelMemory:
    """Memory of image generation with a model."""

    model: str
    side: int
    weights_bytes: int
    resident_bytes: int
    """Tensors derived from weights and kept beside them."""
    bytes_per_picture: int
    """During sampling, including its prompts' keys and values."""
    decode_bytes: int
    """Per image: images are decoded one at a time, and CUDA graphs keep the memory of the steps."""

    def needed_bytes(self, batch: int) -> int:
        """Required memory of a slice, for one process with a batch size of `batch`."""
        peak = self.resident_bytes + batch * self.bytes_per_picture + self.decode_bytes
        return ceil((self.weights_bytes + peak + WORKSPACE_BYTES) / HEADROOM) + CONTEXT_BYTES


@dataclass(frozen=True)
class Speed:
    """A measured speed of a whole GPU."""

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
    """All known memory needs and speeds of workloads."""

    memory: tuple[ModelMemory, ...]
    speeds: tuple[Speed, ...]

    def models(self) -> list[str]:
        return sorted(
            {row.model for row in self.memory} | {row.model for row in self.speeds if row.memory_bytes}
        )

    def needed(self, model: str, batch: int) -> tuple[int, str]:
        """Bytes of a slice for this workload, and their source; measurements take precedence."""
        measured = [row for row in self.speeds if row.model == model and row.memory_bytes]
        enough = sorted(
            (row.batch, row.memory_bytes or 0, row.source) for row in measured if row.batch >= batch
        )
        known = next((row for row in self.memory if row.model == model), None)
        if known and (not enough or enough[0][0] != batch):
            return known.needed_bytes(batch), ESTIMATE
        if enough:
            # torch's peak does not include the CUDA context.
            return enough[0][1] + CONTEXT_BYTES, f"the record {enough[0][2]} at batch {enough[0][0]}"
        if measured:
            most = max(row.batch for row in measured)
            raise NotFoundError(
                f"{model} was recorded up to batch {most}, not at {batch}; provide a record of it"
            )
        raise NotFoundError(f"there are no figures for {model!r}; {did_you_mean(model, self.models())}")


@cache
def shipped() -> PerformanceModel:
    """The figures shipped with the package."""
    raw = json.loads((files(__package__) / "figures.json").read_text("utf-8"))
    return PerformanceModel(
        tuple(ModelMemory(**row) for row in raw["memory"]), tuple(Speed(**row) for row in raw["speed"])
    )


def model_of_card(name: str, memory_bytes: int | None) -> GpuModel | None:
    """The table's GPU for a full product name, such as `NVIDIA A100-SXM4-80GB`; the nearest in memory."""
    words = set(name.upper().replace("-", " ").split())

    def family_matches(gpu: GpuModel) -> bool:
        family = gpu.name.upper().replace("-", " ").split()
        sized = next(i for i, word in enumerate(family) if word.endswith("GB"))
        return set(family[:sized]) <= words

    def distance(gpu: GpuModel) -> tuple[float, int]:
        away = abs(gpu.whole.memory_bytes - memory_bytes) / memory_bytes if memory_bytes else 0.0
        shared = len(words & set(gpu.name.upper().replace("-", " ").split()))
        # GPUs of one size differ in form factor (SXM5, PCIe), which the name may include.
        return round(away, 1), -shared

    return min(filter(family_matches, table().values()), key=distance, default=None)


@dataclass(frozen=True)
class Prediction:
    """The predicted speed of a slice. Not a measurement."""

    share: float
    """Share of the whole GPU's best speed at this workload."""
    per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    unit: str | None
    basis: str


def predict(
    figures: PerformanceModel, gpu: GpuModel, profile: Profile, model: str | None, batch: int = 1
) -> Prediction:
    """Predict the speed in a slice: the GPU's best speed times the slice's share of multiprocessors.

    The range is between that share and the share of memory (and so of its bandwidth). No slice is predicted
    to be faster than the whole GPU at the same batch size, where kernel launches often dominate.
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
        no_record = f"; no record of {model} on {gpu.name}" if model else ""
        return Prediction(by_sms, None, None, None, None, f"predicted from {sms}{no_record}")
    peak, cap = max(row.per_s for row in rows), _max_speed_at(rows, batch)

    def capped(share: float) -> float:
        return min(cap, peak * share)

    sources = ", ".join(sorted({row.source for row in rows}))
    basis = f"predicted in {rows[0].unit} from {sources} and the slice's share of SMs"
    low, high = sorted((capped(by_sms), capped(by_memory)))
    return Prediction(capped(by_sms) / peak, capped(by_sms), low, high, rows[0].unit, basis)


def _sm_share(gpu: GpuModel, profile: Profile) -> float:
    if profile.sms and gpu.whole.sms:
        return profile.sms / gpu.whole.sms
    return profile.compute_slices / gpu.compute_slices


def _max_speed_at(rows: Sequence[Speed], batch: int) -> float:
    """Upper limit of the whole GPU at `batch`: its speed at larger batches, or scaled from smaller ones."""
    larger = [row.per_s for row in rows if row.batch >= batch]
    scaled = [row.per_s * batch / row.batch for row in rows if row.batch <= batch]
    return min([*larger, *scaled], default=max(row.per_s for row in rows))
