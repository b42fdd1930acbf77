"""Formats a quality record as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from calotype.spec.records.quality import Accuracy, QualityRecord, Spread
from calotype.spec.records.train_benchmark import markdown

_PARTS = {"train": "training captions", "heldout": "held-out combinations"}


def summary(record: QualityRecord, sheets: Mapping[str, Path]) -> str:
    """Format the record without single images and the machine; `sheets` maps descriptions to files."""
    model = record.model
    paragraphs = [
        f"# Quality of {model.reference}",
        f"`{record.command}`",
        f"Model sha256 {model.sha256[:16]}…, preset {record.preset}, {record.precision}, {record.device}; "
        f"data sha256 {record.data_sha256[:16]}…",
        markdown(_accuracies(record)),
        markdown(_pictures(record)),
        f"Autoencoder on held-out images: {_range(record.reconstruction_psnr_db)} dB PSNR.",
    ]
    if model.random:
        paragraphs.insert(3, "The weights are random, so expect chance level.")
    if record.comparison:
        other = record.comparison
        paragraphs.append(
            f"Against preset {other.preset}, same prompts and seeds, {other.pictures} images: PSNR "
            f"{_range(other.psnr_db)} dB, worst {other.worst_psnr_db:.1f} dB; SSIM {_range(other.ssim, 4)}, "
            f"worst {other.worst_ssim:.4f}."
        )
    paragraphs.append("\n".join(f"- [{what}]({path.name})" for what, path in sheets.items()))
    return "\n\n".join(paragraphs) + "\n"


def _accuracies(record: QualityRecord) -> list[dict[str, str]]:
    rows = []
    for name, part in record.parts.items():
        kinds = {
            "": part.all,
            ", usual wording": part.full,
            ", other wording": part.free,
            ", real pictures": part.real,
        }
        rows += [_row(_PARTS[name] + kind, figure) for kind, figure in kinds.items() if figure]
    return rows + [_row(f"the recogniser itself, {way}", one) for way, one in record.recogniser_exam.items()]


def _row(what: str, figure: Accuracy) -> dict[str, str]:
    return {
        "pictures of": what,
        "number": str(figure.pictures),
        "emoji": f"{figure.emoji_top1:.1%}",
        "emoji in top 5": f"{figure.emoji_top5:.1%}",
        "style": _percent(figure.style),
        "background": _percent(figure.background),
    }


def _pictures(record: QualityRecord) -> list[dict[str, str]]:
    rows = [
        {
            "pictures": f"made for {_PARTS[name]}",
            "edge energy, share of the real picture's": _range(part.sharpness, 2),
            "distance to the nearest trained on": _range(part.nearest),
            "near copies": f"{part.near_copies:.1%}",
            "nearest shows the same emoji and style": f"{part.nearest_is_asked:.1%}",
        }
        for name, part in record.parts.items()
    ]
    real = dict.fromkeys(rows[0], "")
    real["pictures"] = "real, held out"
    real["distance to the nearest trained on"] = _range(record.real_nearest)
    real["near copies"] = f"{record.real_near_copies:.1%}"
    return [*rows, real]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _range(values: Spread, digits: int = 1) -> str:
    """Format the median with the 5th and 95th percentile."""
    return f"{values.median:.{digits}f} ({values.p5:.{digits}f} to {values.p95:.{digits}f})"
