"""Formats a comparison as tables and Markdown."""

from __future__ import annotations

from calotype.spec.records.preset_comparison import CompareRecord, Figures, PresetRow
from calotype.spec.records.quality import Accuracy, Spread
from calotype.spec.records.train_benchmark import markdown

_MIB = 2**20
_ON_A_CPU = (
    "Only the quality is meaningful: this comparison ran on a CPU, where 8-bit presets compute in a higher "
    "precision. The times are in `results.json`; they do not apply to a GPU."
)
_LEGEND = """\
- PSNR, SSIM and feature distance compare with the reference image of the same prompt and seed. Identical
  images have 106 dB, 1 and 0.
- Feature distance: distance between two images in the features of an emoji classifier. It has the form of
  LPIPS (features scaled to length 1, squared distances, the mean over positions and layers), but the features
  were trained on emoji only, without LPIPS's learned weights, so the numbers are not LPIPS values. The range
  is 0 to 2.
- Recognized: share of images whose emoji, style and background match the prompt, for prompts in the standard
  wording. As the reference: share that matches the reference image, for all other prompts.
- Ranges give the median and the 5th to 95th percentile. Images are generated one at a time, after a
  warm-up."""


def rows(record: CompareRecord, *, seconds: bool) -> list[dict[str, str]]:
    """Return a row for each preset, the reference first, without empty columns."""
    cells = [_row(record.reference, f"{record.reference.preset} (reference)", seconds=seconds)]
    return _without_empty(cells + [_row(row, row.preset, seconds=seconds) for row in record.presets])


def brief_rows(record: CompareRecord) -> list[dict[str, str]]:
    """Return rows with medians only, narrow enough for a terminal."""
    cells = [_brief(record.reference, "reference")]
    return _without_empty(cells + [_brief(row, row.preset) for row in record.presets])


def summary(record: CompareRecord, sheet: str) -> str:
    """Return the record as Markdown, without single images and the machine."""
    model, on_cpu = record.model, record.device == "cpu"
    knobs = ", ".join(f"{knob} {record.request[knob]}" for knob in ("steps", "cfg", "sampler", "schedule"))
    prompts = [f"- {one.prompt} (seed {one.seed})" for one in record.reference.pictures]
    paragraphs = [
        f"# Presets of {model.reference} compared",
        f"`{record.command}`",
        f"Model sha256 {model.sha256[:16]}…, {record.device}; {knobs}; {len(prompts)} images per preset.",
        "The weights are random, so the images show nothing meaningful." if model.random else "",
        markdown(rows(record, seconds=not on_cpu)),
        _ON_A_CPU if on_cpu else "",
        _LEGEND,
        f"![images side by side]({sheet})",
        "## Images",
        "\n".join(prompts),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def _without_empty(cells: list[dict[str, str]]) -> list[dict[str, str]]:
    used = [column for column in cells[0] if any(row[column] for row in cells)]
    return [{column: row[column] for column in used} for row in cells]


def _brief(row: PresetRow, name: str) -> dict[str, str]:
    figures = row.figures
    likeness = figures.likeness if figures else None
    return {
        "preset": f"{name} {row.precision}",
        "s per image": f"{figures.wall_s.median:.3f}" if figures else "failed",
        "peak MiB": _mebibytes(figures.peak_bytes if figures else None),
        "PSNR dB": f"{likeness.psnr_db.median:.1f}" if likeness else "",
        "SSIM": f"{likeness.ssim.median:.4f}" if likeness else "",
        "feature distance": _median(figures.feature_distance if figures else None),
        "recognized": _numbers(figures.recognised if figures else None),
        "as the reference": _numbers(figures.agreeing if figures else None),
    }


def _row(row: PresetRow, name: str, *, seconds: bool) -> dict[str, str]:
    cells = {"preset": name, "precision": row.precision}
    cells |= _costs(row.figures, seconds=seconds) | _quality(row.figures)
    return cells | {"outcome": f"{row.outcome}: {row.message}" if row.message else ""}


def _costs(figures: Figures | None, *, seconds: bool) -> dict[str, str]:
    clock = figures if seconds else None
    return {
        "s per image": _range(clock.wall_s if clock else None, 3),
        "GPU s": _range(clock.device_s if clock else None, 3),
        "peak MiB": _mebibytes(figures.peak_bytes if figures else None),
        "resident MiB": _mebibytes(figures.resident_bytes if figures else None),
        "weights MiB": _mebibytes(figures.weights_bytes if figures else None),
        "PNG bytes": _range(figures.png_bytes if figures else None, 0),
    }


def _quality(figures: Figures | None) -> dict[str, str]:
    likeness = figures.likeness if figures else None
    return {
        "PSNR dB": f"{likeness.psnr_db.median:.1f}, worst {likeness.worst_psnr_db:.1f}" if likeness else "",
        "SSIM": f"{likeness.ssim.median:.4f}, worst {likeness.worst_ssim:.4f}" if likeness else "",
        "feature distance": _range(figures.feature_distance if figures else None, 4),
        "recognized": _words(figures.recognised if figures else None),
        "as the reference": _words(figures.agreeing if figures else None),
    }


def _mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / _MIB:.1f}"


def _median(values: Spread | None) -> str:
    return "" if values is None else f"{values.median:.4f}"


def _range(values: Spread | None, digits: int) -> str:
    if values is None:
        return ""
    return f"{values.median:.{digits}f} ({values.p5:.{digits}f} to {values.p95:.{digits}f})"


def _shares(figure: Accuracy | None) -> dict[str, str]:
    if figure is None:
        return {}
    parts = {"emoji": figure.emoji_top1, "style": figure.style, "background": figure.background}
    return {what: "–" if share is None else f"{100 * share:.0f}" for what, share in parts.items()}


def _words(figure: Accuracy | None) -> str:
    return ", ".join(f"{what} {share}%" for what, share in _shares(figure).items())


def _numbers(figure: Accuracy | None) -> str:
    return "/".join(_shares(figure).values())
