"""A comparison in tables and words. Measures nothing."""

from __future__ import annotations

from dataclasses import dataclass

from calotype.spec.benchmark_record import markdown
from calotype.spec.compare_record import CompareRecord, Figures, PresetRow
from calotype.spec.quality_record import Accuracy, Spread

_MIB = 2**20
_ON_A_CPU = (
    "Only quality counts here. This was made on a CPU, where eight-bit presets compute with wider numbers; "
    "the seconds are in `results.json` and say nothing about a GPU."
)
_LEGEND = """\
- PSNR, SSIM and feature distance are to the reference's picture of the same prompt and seed. Equal pictures
  have 106 dB, 1 and 0.
- Feature distance: how differently a recogniser of emoji sees two pictures. It has the form of LPIPS
  (features scaled to length 1, squared distances, the mean over places and layers), but the features learned
  emoji alone and LPIPS's learned weights are left out: its numbers are not LPIPS's. It goes from 0 to 2.
- Recognised: emoji, style and background are what the prompt asks for; of prompts in the usual wording. As
  the reference: they are what is seen in the reference's picture; of all other prompts.
- Ranges are the median and what nine in ten lie between. One picture at a time, after one not counted."""


def rows(record: CompareRecord, *, seconds: bool = True, ranges: bool = True) -> list[dict[str, str]]:
    """A row for each preset, the reference first; columns that would be empty are left out.

    Without `ranges` it is narrow enough for a terminal.
    """
    how = _How(seconds=seconds, ranges=ranges)
    all_ = [how.row(record.reference, f"{record.reference.preset} (reference)")]
    all_ += [how.row(row, row.preset) for row in record.presets]
    used = [column for column in all_[0] if any(row[column] for row in all_)]
    return [{column: row[column] for column in used} for row in all_]


def summary(record: CompareRecord, sheet: str) -> str:
    """The whole record but for single pictures and the machine."""
    model, on_cpu = record.model, record.device == "cpu"
    knobs = ", ".join(f"{knob} {record.request[knob]}" for knob in ("steps", "cfg", "sampler", "schedule"))
    asked = [f"- {one.prompt} (seed {one.seed})" for one in record.reference.pictures]
    paragraphs = [
        f"# Presets of {model.reference} side by side",
        f"`{record.command}`",
        f"Model sha256 {model.sha256[:16]}…, {record.device}; {knobs}; {len(asked)} pictures a preset.",
        "Random weights: the pictures show nothing." if model.random else "",
        markdown(rows(record, seconds=not on_cpu)),
        _ON_A_CPU if on_cpu else "",
        _LEGEND,
        f"![the pictures side by side]({sheet})",
        "## Pictures",
        "\n".join(asked),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


@dataclass(frozen=True)
class _How:
    """How much a row says."""

    seconds: bool
    ranges: bool

    def row(self, row: PresetRow, name: str) -> dict[str, str]:
        cells = {"preset": name, "precision": row.precision, **self._costs(row.figures)}
        cells |= self._quality(row.figures)
        return cells | {"outcome": f"{row.outcome}: {row.message}" if row.message else ""}

    def _costs(self, figures: Figures | None) -> dict[str, str]:
        clock = figures if self.seconds else None
        detailed = figures if self.ranges else None
        return {
            "s a picture": self._range(clock.wall_s if clock else None, 3),
            "GPU s": self._range(clock.device_s if clock else None, 3),
            "peak MiB": _mebibytes(figures.peak_bytes if figures else None),
            "staying MiB": _mebibytes(detailed.resident_bytes if detailed else None),
            "weights MiB": _mebibytes(figures.weights_bytes if figures else None),
            "PNG bytes": self._range(detailed.png_bytes if detailed else None, 0),
        }

    def _quality(self, figures: Figures | None) -> dict[str, str]:
        near = figures.likeness if figures else None
        return {
            "PSNR dB": self._and_worst(near.psnr_db, near.worst_psnr_db, 1) if near else "",
            "SSIM": self._and_worst(near.ssim, near.worst_ssim, 4) if near else "",
            "feature distance": self._range(figures.feature_distance if figures else None, 4),
            "recognised": _shares(figures.recognised if figures else None),
            "as the reference": _shares(figures.agreeing if figures else None),
        }

    def _range(self, values: Spread | None, digits: int) -> str:
        """The median, and what nine in ten lie between."""
        if values is None:
            return ""
        between = f" ({values.p5:.{digits}f} to {values.p95:.{digits}f})" if self.ranges else ""
        return f"{values.median:.{digits}f}{between}"

    def _and_worst(self, values: Spread, worst: float, digits: int) -> str:
        return f"{values.median:.{digits}f}" + (f", worst {worst:.{digits}f}" if self.ranges else "")


def _mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / _MIB:.1f}"


def _shares(figure: Accuracy | None) -> str:
    if figure is None:
        return ""
    parts = {"emoji": figure.emoji_top1, "style": figure.style, "background": figure.background}
    return ", ".join(f"{what} {share:.0%}" for what, share in parts.items() if share is not None)
