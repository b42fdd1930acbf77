"""Small pictures, folders and shards for the tests; every sample can be told from every other."""

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from calotype.spec.recipe_sections import DataConfig
from calotype.train.data.dataloader import DataLoader, build_dataloader
from calotype.train.data.requirements import DataRequirements
from calotype.train.data.sources.webdataset_writer import Packed, write_shards
from calotype.train.data.types import Batch

SIDE = 16


def needs(**changes: Any) -> DataRequirements:
    """A model so small that tests are quick."""
    values: dict[str, Any] = {
        "resolution": SIDE,
        "latent_channels": 4,
        "vae_factor": 8,
        "context_tokens": 5,
        "context_width": 6,
        "pooled_width": None,
        "device": torch.device("cpu"),
    }
    return DataRequirements(**(values | changes))


def picture(number: int = 0, *, height: int = SIDE, width: int = SIDE, kind: str = "PNG") -> bytes:
    """A picture file whose colour tells its number."""
    buffer = io.BytesIO()
    colour = (number % 256, number // 256 % 256, 77)
    Image.new("RGB", (width, height), colour).save(buffer, kind)
    return buffer.getvalue()


def fill_folder(folder: Path, count: int, sizes: Sequence[tuple[int, int]] = ((SIDE, SIDE),)) -> Path:
    """Pictures p000.png and following, each with a caption; sizes in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        height, width = sizes[number % len(sizes)]
        (folder / f"p{number:03d}.png").write_bytes(picture(number, height=height, width=width))
        (folder / f"p{number:03d}.txt").write_text(f"picture {number}")
    return folder


def packed(count: int) -> Iterator[Packed]:
    for number in range(count):
        yield Packed(f"s{number:03d}", {"png": picture(number), "txt": f"picture {number}"})


def fill_shards(folder: Path, count: int, per_shard: int) -> list[Path]:
    return write_shards(folder, packed(count), per_shard)


def part(kind: str, path: Path | str | None = None, **changes: Any) -> DataConfig:
    values = {"kind": kind, "path": None if path is None else str(path), "num_workers": 0}
    return DataConfig.model_validate(values | changes)


def feed_of(
    data: DataConfig, wanted: DataRequirements | None = None, *, micro: int = 4, **place: Any
) -> DataLoader:
    return build_dataloader(data, wanted or needs(), micro_batch_size=micro, **place)


def batches_of(data: DataConfig, count: int, *, micro: int = 4, **place: Any) -> list[Batch]:
    """The first `count` batches of a feed that is closed afterwards, where they are used."""
    with build_dataloader(data, needs(), micro_batch_size=micro, **place) as feed:
        return [batch.to("cpu") for batch in islice(feed, count)]


def keys_of(batches: Sequence[Batch]) -> list[str]:
    return [key for batch in batches for key in batch.keys]


def same(first: Batch, second: Batch) -> bool:
    """Equal to the bit, in everything."""
    if (first.captions, first.keys, first.positions) != (second.captions, second.keys, second.positions):
        return False
    for name in ("pixels", "latents", "context", "pooled", "sizes"):
        a, b = getattr(first, name), getattr(second, name)
        if (a is None) != (b is None) or (a is not None and not torch.equal(a, b)):
            return False
    return True
