"""Build the source, the buckets and the batch sampler from a recipe's data section."""

import logging
import os
from pathlib import Path

import torch

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.core.paths import cache_dir
from calotype.spec.recipe_sections import SYNTHETIC_KINDS, DataConfig
from calotype.train.data.aspect_buckets import Bucket, bucket_sizes, sorted_into
from calotype.train.data.bad_samples import DataError
from calotype.train.data.batch_sampler import BatchSampler, BucketBatchSampler, SequentialBatchSampler
from calotype.train.data.collate import shape_mismatch
from calotype.train.data.image_sizes import image_sizes
from calotype.train.data.precomputed.source import PrecomputedSource
from calotype.train.data.requirements import DataRequirements
from calotype.train.data.sampler import EpochSampler, RankShard
from calotype.train.data.sharded_sampler import Mixing, ShardedSampler
from calotype.train.data.sources.folder import FolderSource
from calotype.train.data.sources.http_download import is_url
from calotype.train.data.sources.mds_streaming import open_mds
from calotype.train.data.sources.node_cache import GB, NodeCache
from calotype.train.data.sources.remote_index import remote_mds_shards, remote_tar_shards
from calotype.train.data.sources.remote_shards import HELD_OPEN, StreamedSource
from calotype.train.data.sources.shard_urls import local_shards
from calotype.train.data.sources.webdataset import WebDatasetSource
from calotype.train.data.types import Source

_log = logging.getLogger(__name__)

SYNTHETIC = SYNTHETIC_KINDS
_IMAGE_SETTINGS = ("crop", "random_flip", "default_caption", "in_memory")
STREAMED = ("shards", "mds")
_STREAMING_SETTINGS = ("shuffle_shards", "lanes")
_IGNORED = {
    "synthetic": (*_IMAGE_SETTINGS, "path", "buckets"),
    "synthetic_latents": (*_IMAGE_SETTINGS, "path", "buckets"),
    "precomputed": _IMAGE_SETTINGS,
}
_FIX_BY_KIND = {
    "folder": "name one with pictures",
    "mds": "an MDS data set is one with an index.json",
    "precomputed": "make one with `calotype train precompute`",
}


def check_place(part: DataConfig) -> None:
    """Refuse a path that does not exist on this disk, before anything is loaded. Opens nothing."""
    if part.kind in SYNTHETIC:
        return
    path = _path_of(part)
    if "://" in path:
        return
    if part.kind == "shards":
        local_shards(path)
    elif not Path(path).expanduser().is_dir():
        raise NotFoundError(f"data.path: {path} is not a folder; {_FIX_BY_KIND[part.kind]}")


def _path_of(part: DataConfig) -> str:
    if not part.path:
        # Quoted, since shells expand such braces too.
        example = {"shards": '"data.path=data/name-{000..099}.tar"'}.get(part.kind, "data.path=data/pictures")
        rule = f"data.kind={part.kind} needs one, for instance {example}"
        raise RequestError([Problem("data.path", rule, part.path)])
    return part.path


def build_source(part: DataConfig, needs: DataRequirements) -> Source:
    """The source of the samples that `part` describes."""
    if part.kind in SYNTHETIC:
        raise RequestError(
            [Problem("data.kind", f"{part.kind} samples are generated, so there is nothing to open")]
        )
    path = _path_of(part)
    warn_of_ignored(part)
    if part.cache_gb is not None and part.kind in STREAMED and is_url(path):
        return _build_streaming_source(part, part.cache_gb)
    if part.kind == "shards":
        return WebDatasetSource(local_shards(path))
    if part.kind == "mds":
        return open_mds(path)
    folder = Path(path).expanduser()
    if part.kind == "precomputed":
        return _check_first_sample(PrecomputedSource(folder, needs), folder, needs)
    return FolderSource(folder, captions_needed=part.default_caption is None)


def build_batch_sampler(
    source: Source, part: DataConfig, needs: DataRequirements, share: RankShard
) -> BatchSampler:
    """The batch sampler that groups the samples into micro-batches."""
    if isinstance(source, StreamedSource):
        return _build_streaming_sampler(source, part, needs, share)
    if part.buckets:
        buckets = buckets_of(source, part, needs, least=share.micro_batch_size)
        return BucketBatchSampler(buckets, share, part.seed, shuffle=part.shuffle)
    [only] = buckets_of(source, part, needs, least=1)
    return SequentialBatchSampler(EpochSampler(len(source), part.seed, part.shuffle), share, only.size)


def buckets_of(source: Source, part: DataConfig, needs: DataRequirements, least: int) -> list[Bucket]:
    """The samples by training size; one square bucket unless the recipe uses buckets."""
    square = (needs.resolution, needs.resolution)
    if isinstance(source, PrecomputedSource):
        return _buckets_of_latents(source, part)
    if not part.buckets:
        return [Bucket(square, torch.arange(len(source)))]
    buckets = sorted_into(image_sizes(source), bucket_sizes(needs.resolution), least)
    counts = ", ".join(f"{bucket.size[0]}×{bucket.size[1]}: {len(bucket.members)}" for bucket in buckets)
    _log.info("images by bucket (height×width): %s", counts)
    return buckets


def _build_streaming_source(part: DataConfig, cache_gb: float) -> StreamedSource:
    assert part.path is not None
    shards = remote_tar_shards(part.path) if part.kind == "shards" else remote_mds_shards(part.path)
    limit, largest = int(cache_gb * GB), max(shard.file.size_bytes for shard in shards)
    readers = max(1, part.num_workers) * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    least = min((readers * HELD_OPEN + 1) * largest, sum(shard.file.size_bytes for shard in shards))
    if limit < least:
        rule = f"{cache_gb:g} is too small: this node's {readers} workers hold up to {HELD_OPEN} shards each "
        rule += f"of {largest / GB:.3g} GB; set {least / GB:.3g} or more, or lower data.num_workers"
        raise RequestError([Problem("data.cache_gb", rule, cache_gb)])
    return StreamedSource(shards, NodeCache(cache_dir() / "shards", limit))


def _build_streaming_sampler(
    source: StreamedSource, part: DataConfig, needs: DataRequirements, share: RankShard
) -> BatchSampler:
    if part.buckets:
        rule = "needs the size of every image, and so every shard, in advance; remove data.cache_gb"
        raise RequestError([Problem("data.buckets", rule, part.buckets)])
    mixing = Mixing(part.seed, part.shuffle, part.shuffle_shards, part.lanes, share.micro_batch_size)
    target = (needs.resolution, needs.resolution)
    return SequentialBatchSampler(ShardedSampler(source.shard_sizes, mixing), share, target)


def warn_of_ignored(part: DataConfig) -> None:
    """Warn of settings that have no effect."""
    defaults = DataConfig()
    without_effect: tuple[str, ...] = (
        () if part.cache_gb is not None and part.kind in STREAMED else _STREAMING_SETTINGS
    )
    if part.kind in STREAMED and part.path and not is_url(part.path):
        without_effect = ("cache_gb", *_STREAMING_SETTINGS)
    for name in (*_IGNORED.get(part.kind, ()), *without_effect):
        if getattr(part, name) != getattr(defaults, name):
            _log.warning("data.%s=%s has no effect with data.kind=%s", name, getattr(part, name), part.kind)


def _check_first_sample(
    source: PrecomputedSource, folder: Path, needs: DataRequirements
) -> PrecomputedSource:
    """Check the first sample: all were made alike, so its error would be that of each."""
    first = source.read(0)
    mismatch = shape_mismatch(first, needs, source.size_of(0))
    if mismatch is not None:
        raise DataError(folder, f"{first.key}: {mismatch}; precompute again for this model")
    return source


def _buckets_of_latents(source: PrecomputedSource, part: DataConfig) -> list[Bucket]:
    """Buckets of latents by their size; latents cannot move to another bucket."""
    sizes = [(height, width) for height, width in source.sizes.unique(dim=0).tolist()]
    if len(sizes) > 1 and not part.buckets:
        listed = ", ".join(f"{height}×{width}" for height, width in sizes)
        rule = f"was made with buckets and holds {len(sizes)} sizes ({listed}); set data.buckets=true"
        raise DataError(part.path, rule)
    members = [torch.nonzero((source.sizes == torch.tensor(size)).all(dim=1)).flatten() for size in sizes]
    return [Bucket(size, found) for size, found in zip(sizes, members, strict=True)]
