"""Aspect-ratio buckets: sizes of about equal area, and which pictures go to which. Knows only sizes."""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import torch
from torch import Tensor

from calotype.train.data.image_transforms import Size

_WIDEST_RATIO = 4


@dataclass(frozen=True)
class Bucket:
    """Pictures that are trained at one size."""

    size: Size
    members: Tensor
    """Numbers of the samples, ascending."""


def bucket_sizes(resolution: int) -> list[Size]:
    """Sizes with at most the area of a square of `resolution`, from flattest to tallest.

    Sides are multiples of an eighth of the resolution, at least 8 and at most 64, so that a small model has
    as many shapes to choose from as a large one, and no more for its compiler to meet.
    """
    step = min(64, max(8, resolution // 8 // 8 * 8))
    area = resolution * resolution
    sizes = []
    for width in range(step, _WIDEST_RATIO * resolution + 1, step):
        height = area // width // step * step
        if height and max(height, width) <= _WIDEST_RATIO * min(height, width):
            sizes.append((height, width))
    # The square is what was asked for, even where its side is no multiple of the step.
    sizes = [size for size in sizes if size[0] != size[1]] + [(resolution, resolution)]
    return sorted(sizes, key=_tallness)


def sorted_into(sizes: Tensor, choices: Sequence[Size], least: int) -> list[Bucket]:
    """Each picture of `sizes` (n, 2: height, width) in the bucket nearest in shape.

    A bucket of fewer than `least` pictures could not fill a batch without repeating itself, so it joins its
    nearest neighbour. Pictures of unknown size (0) go where most are: reading them will tell what is wrong,
    and a bucket of nothing else would have no batch to give.
    """
    ordered = sorted(choices, key=_tallness)
    shapes = [_tallness(size) for size in ordered]
    known = (sizes > 0).all(dim=1)
    heights, widths = sizes.double().clamp(min=1).unbind(dim=1)
    borders = torch.tensor([(a + b) / 2 for a, b in pairwise(shapes)], dtype=torch.float64)
    nearest = torch.bucketize((heights / widths).log(), borders)
    if known.any():
        nearest[~known] = nearest[known].bincount().argmax()
    counts = torch.bincount(nearest, minlength=len(ordered)).tolist()
    final = torch.tensor(_merged(counts, shapes, least))[nearest]
    return [Bucket(ordered[b], torch.nonzero(final == b).flatten()) for b in final.unique().tolist()]


def _merged(counts: list[int], shapes: list[float], least: int) -> list[int]:
    """For each bucket the one its pictures end up in."""
    goes_to = list(range(len(counts)))
    while True:
        filled = [b for b, count in enumerate(counts) if count]
        smallest = min(filled, key=lambda b: counts[b])
        if len(filled) == 1 or counts[smallest] >= least:
            return goes_to
        others = [b for b in filled if b != smallest]
        after = bisect(others, smallest)
        neighbours = others[max(after - 1, 0) : after + 1]
        target = min(neighbours, key=lambda b: abs(shapes[b] - shapes[smallest]))
        counts[target] += counts[smallest]
        counts[smallest] = 0
        goes_to = [target if b == smallest else b for b in goes_to]


def _tallness(size: Size) -> float:
    return log(size[0] / size[1])
