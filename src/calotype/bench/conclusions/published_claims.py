"""Recomputes the sources' conclusions from their tables; a conclusion without figures stays undecided."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from calotype.bench.conclusions.batch_and_guidance import guidance_spread
from calotype.bench.conclusions.gpu_ratios import best
from calotype.bench.conclusions.group_by import with_speed
from calotype.bench.conclusions.types import Verdict
from calotype.bench.references.load import by_id, distinct, entries, sources
from calotype.bench.references.types import Entry
from calotype.bench.references.units import first
from calotype.spec.published_results import Claim, Figure

Derived = tuple[float, str, bool | None]
"""A number, its arithmetic, and whether the conclusion follows; None if rounding decides it."""

A100, L20, H20 = "A100 40G NVLINK", "L20", "H20"


def verdicts() -> list[Verdict]:
    """Return one verdict for each conclusion of a source and for each ratio in its tables."""
    stated = [_verdict(source.name, claim) for source in sources() for claim in source.claims]
    return stated + [_of_ratio(entry, figure) for entry in entries() for figure in _ratios(entry)]


def rounds_to(derived: float, stated: float) -> bool:
    """Whether the derived number rounds to the stated one, at its number of digits."""
    digits = len(repr(stated).partition(".")[2]) if stated % 1 else 0
    return round(derived, digits) == stated


def _verdict(source: str, claim: Claim) -> Verdict:
    derive = _DERIVATIONS.get((source, claim.name))
    if derive is None:
        return Verdict(source, claim, None, "the source gives no figures to derive it from", None)
    value, arithmetic, follows = derive()
    if follows is None:
        assert claim.figure is not None
        follows = rounds_to(value, claim.figure.value)
    return Verdict(source, claim, value, arithmetic, follows)


def _best(gpu: str, num_gpus: int, source: str = "nemo") -> tuple[Entry, float]:
    plain = [
        entry
        for entry in distinct()
        if (entry.source, entry.settings.gpu, entry.settings.num_gpus) == (source, gpu, num_gpus)
        and not entry.settings.switches
    ]
    return best(with_speed(plain))


def _share(gpu: str, base: str, num_gpus: int, times: float) -> Callable[[], Derived]:
    def derive() -> Derived:
        (ours, value), (theirs, other) = _best(gpu, num_gpus), _best(base, num_gpus)
        total, whole = value * num_gpus, other * num_gpus
        shown = f"{total:.4g} ({ours.id}) / {whole:.4g} ({theirs.id})"
        return times * value / other, f"{shown} = {value / other:.4f}", None

    return derive


def _most(gpu: str, num_gpus: int) -> Callable[[], Derived]:
    def derive() -> Derived:
        entry, value = _best(gpu, num_gpus)
        return value * num_gpus, f"best of {num_gpus} × {gpu}: {value * num_gpus:.4g} ({entry.id})", None

    return derive


def _at_equal_batch() -> Derived:
    ours, theirs = (_throughput(by_id(name)) for name in ("nemo/l20/1", "nemo/benchmark/10"))
    return ours / theirs, f"{ours:g} / {theirs:g} = {ours / theirs:.4f} at micro-batch 16 on both", None


def _node_below_gpu() -> Derived:
    node, gpu = (_share(L20, A100, count, 100)()[0] for count in (8, 1))
    shown = f"{node:.1f} % - {gpu:.1f} % = {node - gpu:.1f} points"
    # The order holds, but the stated numbers, 56.4 for the node and 55.5 for the GPU, contradict it.
    return node - gpu, f"{shown}: the order holds, the stated numbers do not", rounds_to(node, 56.4)


def _mii() -> Derived:
    before, after = (_trials(f"deepspeed-mii/{name}") for name in ("baseline", "mii"))
    ratio = fmean(before) / fmean(after)
    return ratio, f"mean of 5 trials: {fmean(before):.4f} / {fmean(after):.4f} s = {ratio:.4f}", None


def _under_one_second() -> Derived:
    fastest = min(_trials("deepspeed-mii/mii"))
    return fastest, f"fastest of 5 trials: {fastest:g} s", fastest < 1


def _sdpa() -> Derived:
    old = by_id("aws-mosaicml/attention/1")
    new = _throughput(by_id("aws-mosaicml/single-node/7/P5 Throughput"))
    follows = old.outcome == "oom" and rounds_to(new, 385.0)
    return new, f"old processor: {old.outcome}; scaled dot-product attention: {new:g} samples/s", follows


def _cfg() -> Derived:
    spread = guidance_spread([entry for entry in entries() if entry.id.startswith("comfyui/cfg/")])
    tries = first(by_id("comfyui/steps/7/64"), "time")
    assert spread is not None
    assert tries is not None
    assert tries.high is not None
    chance = (tries.high - tries.value) / tries.value
    shown = f"{spread[1]}; five tries of one setting: ({tries.high:g} - {tries.value:g}) / {tries.value:g}"
    return spread[0], f"{shown} = {chance:.4f}", spread[0] <= chance


def _trials(table: str) -> list[float]:
    found = [first(entry, "time") for entry in entries() if entry.trial_of == table]
    return [figure.value for figure in found if figure]


def _throughput(entry: Entry) -> float:
    figure = first(entry, "throughput")
    assert figure is not None
    return figure.value


def _ratios(entry: Entry) -> list[Figure]:
    return [figure for figure in entry.figures if figure.what == "ratio" and figure.of == "P4de"]


def _of_ratio(entry: Entry, figure: Figure) -> Verdict:
    row_id = entry.id.removesuffix("Ratio")
    newer, older = (_throughput(by_id(f"{row_id}{name} Throughput")) for name in ("P5", "P4de"))
    row = entry.settings.micro_batch
    claim = Claim(
        name=f"ratio-{row}-{'ema' if entry.settings.ema else 'no-ema'}",
        line=157,
        says=f"P5 over P4de at micro-batch {row}",
        figure=figure,
        flags=entry.flags,
    )
    shown = f"{newer:g} / {older:g} = {newer / older:.4f}"
    return Verdict(entry.source, claim, newer / older, shown, rounds_to(newer / older, figure.value))


_DERIVATIONS: dict[tuple[str, str], Callable[[], Derived]] = {
    ("nemo", "l20-of-a100-per-gpu"): _share(L20, A100, 1, 100),
    ("nemo", "l20-of-a100-per-node"): _share(L20, A100, 8, 100),
    ("nemo", "node-below-gpu"): _node_below_gpu,
    ("nemo", "l20-over-emulated"): _at_equal_batch,
    ("nemo", "l20-best-per-gpu"): _most(L20, 1),
    ("nemo", "l20-best-per-node"): _most(L20, 8),
    ("nemo", "h20-over-l20-per-gpu"): _share(H20, L20, 1, 1),
    ("nemo", "h20-over-l20-per-node"): _share(H20, L20, 8, 1),
    ("aws-mosaicml", "sdpa-fits-32"): _sdpa,
    ("deepspeed-mii", "mii-over-baseline"): _mii,
    ("deepspeed-mii", "under-one-second"): _under_one_second,
    ("comfyui", "cfg-no-effect"): _cfg,
}
