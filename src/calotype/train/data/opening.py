"""From what a recipe says of its data to a source, and to the sizes it is trained at. Orders nothing."""

import logging
from pathlib import Path

import torch

from calotype.core.errors import Problem, RequestError
from calotype.spec.recipe_parts import DataPart
from calotype.train.data.buckets import Bucket, bucket_sizes, sorted_into
from calotype.train.data.folder import FolderSource
from calotype.train.data.mds_streamed import open_mds
from calotype.train.data.needs import Needs
from calotype.train.data.order import Order, Share
from calotype.train.data.picture_sizes import picture_sizes
from calotype.train.data.plan import BucketedPlan, OrderedPlan, Plan
from calotype.train.data.precomputed import PrecomputedSource
from calotype.train.data.preparation import shape_mismatch
from calotype.train.data.report import DataError
from calotype.train.data.sample import Source
from calotype.train.data.shard_paths import local_shards
from calotype.train.data.shards import ShardSource

_log = logging.getLogger(__name__)

SYNTHETIC = ("synthetic", "synthetic_latents")
_OF_PICTURES = ("crop", "random_flip", "default_caption", "in_memory")
_IGNORED = {
    "synthetic": (*_OF_PICTURES, "path", "buckets"),
    "synthetic_latents": (*_OF_PICTURES, "path", "buckets"),
    "precomputed": _OF_PICTURES,
}


def open_source(part: DataPart, needs: Needs) -> Source:
    """The samples `part` leads to."""
    if part.kind in SYNTHETIC:
        raise RequestError(
            [Problem("data.kind", f"{part.kind} samples are made up, there is nothing to open")]
        )
    if not part.path:
        example = {"shards": "data/name-{000..099}.tar"}.get(part.kind, "data/pictures")
        rule = f"data.kind={part.kind} needs one, for instance data.path={example}"
        raise RequestError([Problem("data.path", rule, part.path)])
    warn_of_ignored(part)
    if part.kind == "shards":
        return ShardSource(local_shards(part.path))
    if part.kind == "mds":
        return open_mds(part.path)
    folder = Path(part.path).expanduser()
    if part.kind == "precomputed":
        return _fitting(PrecomputedSource(folder, needs), folder, needs)
    return FolderSource(folder, captions_needed=part.default_caption is None)


def open_plan(source: Source, part: DataPart, needs: Needs, share: Share) -> Plan:
    """How the samples are put into micro-batches."""
    if part.buckets:
        buckets = buckets_of(source, part, needs, least=share.micro_batch_size)
        return BucketedPlan(buckets, share, part.seed, shuffle=part.shuffle)
    [only] = buckets_of(source, part, needs, least=1)
    return OrderedPlan(Order(len(source), part.seed, part.shuffle), share, only.size)


def buckets_of(source: Source, part: DataPart, needs: Needs, least: int) -> list[Bucket]:
    """Which samples are trained at which size; one square for all, unless buckets are asked for."""
    square = (needs.resolution, needs.resolution)
    if isinstance(source, PrecomputedSource):
        return _buckets_of_latents(source, part)
    if not part.buckets:
        return [Bucket(square, torch.arange(len(source)))]
    buckets = sorted_into(picture_sizes(source), bucket_sizes(needs.resolution), least)
    counts = ", ".join(f"{bucket.size[0]}×{bucket.size[1]}: {len(bucket.members)}" for bucket in buckets)
    _log.info("pictures by bucket (height×width): %s", counts)
    return buckets


def warn_of_ignored(part: DataPart) -> None:
    """A setting that does nothing says so."""
    usual = DataPart()
    for name in _IGNORED.get(part.kind, ()):
        if getattr(part, name) != getattr(usual, name):
            _log.warning("data.%s=%s has no effect with data.kind=%s", name, getattr(part, name), part.kind)


def _fitting(source: PrecomputedSource, folder: Path, needs: Needs) -> PrecomputedSource:
    """All were made alike, so the first tells at once what would otherwise be said of each."""
    first = source.read(0)
    mismatch = shape_mismatch(first, needs, source.size_of(0))
    if mismatch is not None:
        raise DataError(folder, f"{first.key}: {mismatch}; precompute again for this model")
    return source


def _buckets_of_latents(source: PrecomputedSource, part: DataPart) -> list[Bucket]:
    """Latents have the size they were made at; none can be moved to another bucket."""
    sizes = [(height, width) for height, width in source.sizes.unique(dim=0).tolist()]
    if len(sizes) > 1 and not part.buckets:
        listed = ", ".join(f"{height}×{width}" for height, width in sizes)
        rule = f"was made with buckets and holds {len(sizes)} sizes ({listed}); set data.buckets=true"
        raise DataError(part.path, rule)
    members = [torch.nonzero((source.sizes == torch.tensor(size)).all(dim=1)).flatten() for size in sizes]
    return [Bucket(size, found) for size, found in zip(sizes, members, strict=True)]
