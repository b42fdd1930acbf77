"""Draws contact sheets of generated images beside the real images of their prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from torch import Tensor

from calotype.bench.quality.prompts import EvalPrompt
from calotype.bench.quality.score import ImageScore
from calotype.core.paths import atomic_write
from calotype.datasets.emoji.hashing import stable_hash
from calotype.imaging.contact_sheet import Axis, contact_sheet

ACROSS = 10
ROWS_OF_RANDOM = 3


@dataclass(frozen=True)
class Case:
    """One image with its prompt and score."""

    question: EvalPrompt
    verdict: ImageScore
    made: Tensor
    real: Tensor

    def words(self, names: Mapping[str, str]) -> str:
        judged = (
            names[self.verdict.emoji],
            self.verdict.style,
            f"on {self.verdict.background or 'no single color'}",
        )
        return f"“{self.question.prompt}” looks like {', '.join(judged)}"


def write_sheets(folder: Path, split: str, cases: Sequence[Case], names: Mapping[str, str]) -> list[Path]:
    """Draw sheets of the most certain, the least certain and random images."""
    ordered = sorted(cases, key=lambda case: -case.verdict.certainty)
    by_lot = sorted(cases, key=lambda case: stable_hash("sheet", str(case.question.seed)))
    chosen = {
        "best": ordered[:ACROSS],
        "worst": ordered[::-1][:ACROSS],
        "random": by_lot[: ACROSS * ROWS_OF_RANDOM],
    }
    written = []
    for kind, some in chosen.items():
        path = folder / f"{split}-{kind}.png"
        _write(path, _sheet(some, names))
        written.append(path)
    return written


def write_restored(path: Path, originals: Tensor, back: Tensor, near: Sequence[float]) -> None:
    """Draw real images above their reconstructions by the autoencoder."""
    shown = list(range(min(ACROSS, len(originals))))
    rows = [[_image(pictures[number]) for number in shown] for pictures in (originals, back)]
    across = Axis("PSNR", tuple(f"{near[number]:.1f} dB" for number in shown))
    _write(path, contact_sheet(rows, across, Axis("", ("real", "restored")), "held-out images"))


def _sheet(cases: Sequence[Case], names: Mapping[str, str]) -> Image.Image:
    rows, labels = [], []
    for start in range(0, len(cases), ACROSS):
        some = cases[start : start + ACROSS]
        rows += [[_image(case.real) for case in some], [_image(case.made) for case in some]]
        labels += [f"{start + 1} to {start + len(some)} real", "made"]
    words = " · ".join(f"{number} {case.words(names)}" for number, case in enumerate(cases, 1))
    across = Axis("", tuple(range(1, min(ACROSS, len(cases)) + 1)))
    return contact_sheet(rows, across, Axis("", tuple(labels)), words)


def _image(pixels: Tensor) -> Image.Image:
    return Image.fromarray(pixels.permute(1, 2, 0).numpy())


def _write(path: Path, image: Image.Image) -> None:
    with atomic_write(path) as file:
        image.save(file, "PNG")
