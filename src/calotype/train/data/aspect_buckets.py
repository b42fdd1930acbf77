"""Aspect-ratio buckets: sizes of about equal area, and the assignment of images to them."""

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
    """Images that are trained at one size."""

    size: Size
    members: Tensor
    """Sample indices, ascending."""


def bucket_sizes(resolution: int) -> list[Size]:
    """Sizes with at most the area of a square of `resolution`, from the widest to the tallest.

    Sides are multiples of an eighth of the resolution, at least 8 and at most 64, so that a small model has
    as many shapes as a large one, and no more to compile.
    """
    step = min(64, max(8, resolution // 8 // 8 * 8))
    area = resolution * resolution
    sizes = []
    for width in range(step, _WIDEST_RATIO * resolution + 1, step):
        height = area // width // step * step
        if height and max(height, width) <= _WIDEST_RATIO * min(height, width):
            sizes.append((height, width))
    # The square itself is always included, even if its side is not a multiple of the step.
    sizes = [size for size in sizes if size[0] != size[1]] + [(resolution, resolution)]
    return sorted(sizes, key=_log_aspect)


def sorted_into(sizes: Tensor, choices: Sequence[Size], least: int) -> list[Bucket]:
    """Assign each image of `sizes` (n, 2: height, width) to the bucket with the nearest aspect ratio.

    A bucket of fewer than `least` images cannot fill a batch without repeating itself, so it joins its
    nearest neighbor. Images of unknown size (0) go to the largest bucket: reading them will report the error,
    while a bucket of only such images would have no batch to yield.
    """
    ordered = sorted(choices, key=_log_aspect)
    shapes = [_log_aspect(size) for size in ordered]
    known = (sizes > 0).all(dim=1)
    heights, widths = sizes.double().clamp(min=1).unbind(dim=1)
    boundaries = torch.tensor([(a + b) / 2 for a, b in pairwise(shapes)], dtype=torch.float64)
    nearest = torch.bucketize((heights / widths).log(), boundaries)
    if known.any():
        nearest[~known] = nearest[known].bincount().argmax()
    counts = torch.bincount(nearest, minlength=len(ordered)).tolist()
    final = torch.tensor(_merge_small(counts, shapes, least))[nearest]
    return [Bucket(ordered[b], torch.nonzero(final == b).flatten()) for b in final.unique().tolist()]


def _merge_small(counts: list[int], shapes: list[float], least: int) -> list[int]:
    """For each bucket the index of the bucket that its images end up in."""
    assigned_to = list(range(len(counts)))
    while True:
        filled = [b for b, count in enumerate(counts) if count]
        smallest = min(filled, key=lambda b: counts[b])
        if len(filled) == 1 or counts[smallest] >= least:
            return assigned_to
        others = [b for b in filled if b != smallest]
        after = bisect(others, smallest)
        neighbors = others[max(after - 1, 0) : after + 1]
        target = min(neighbors, key=lambda b: abs(shapes[b] - shapes[smallest]))
        counts[target] += counts[smallest]
        counts[smallest] = 0
        assigned_to = [target if b == smallest else b for b in assigned_to]


def _log_aspect(size: Size) -> float:
    return log(size[0] / size[1])
