"""Compressed or remote MDS datasets, through the optional package `mosaicml-streaming`."""

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any

from PIL import Image

from calotype.core.errors import NotFoundError
from calotype.core.paths import cache_dir
from calotype.train.data.bad_samples import CorruptSampleError
from calotype.train.data.sources.mds import (
    CAPTION_COLUMNS,
    IMAGE_COLUMNS,
    MdsSamples,
    MdsSource,
    read_mds_index,
)
from calotype.train.data.types import Sample

# Its own pins (numpy < 2.2, transformers < 5) contradict Calotype's, so pip has to ignore its dependencies.
_INSTALL = (
    "pip install --no-deps mosaicml-streaming && "
    "pip install brotli catalogue python-snappy torchvision tqdm xxhash zstd"
)


def open_mds(path: str) -> "MdsSource | StreamedMds":
    """The samples at `path`, a folder or a URL such as s3://bucket/folder."""
    if "://" in path:
        place = cache_dir() / "mds" / hashlib.sha256(path.encode()).hexdigest()[:24]
        return StreamedMds(path, remote=path, local=str(place))
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise NotFoundError(f"data.path: {folder} is not a folder; an MDS dataset is one with an index.json")
    shards = read_mds_index(folder)
    if any(shard.compressed for shard in shards):
        return StreamedMds(path, local=str(folder))
    return MdsSource(folder, shards)


class StreamedMds(MdsSamples):
    """The package's dataset as a source."""

    def __init__(self, path: str, **where: str) -> None:
        self._path = path
        # Calotype does the ordering and sharding; the package only reads samples.
        self._dataset: Any = _streaming().StreamingDataset(**where, shuffle=False, batch_size=1)

    @property
    def identity(self) -> str:
        return hashlib.sha256(f"{self._path}\0{len(self)}".encode()).hexdigest()

    def __len__(self) -> int:
        return int(self._dataset.num_samples)

    def read(self, index: int) -> Sample:
        name = f"{self._path}:{index}"
        try:
            columns = self._dataset[index]
        # Each storage backend of the package raises exceptions of its own types.
        except Exception as error:
            raise CorruptSampleError(name, f"cannot be read: {error}") from error
        picture = next((columns[c] for c in IMAGE_COLUMNS if c in columns), None)
        caption = next((columns[c] for c in CAPTION_COLUMNS if c in columns), None)
        if not isinstance(picture, bytes | Image.Image):
            raise CorruptSampleError(name, f"has no image; its columns are {', '.join(columns)}")
        return Sample(name, picture=picture, caption=caption.strip() if isinstance(caption, str) else None)

    def close(self) -> None:
        """The package keeps nothing open between samples."""


def _streaming() -> Any:
    try:
        return import_module("streaming")
    except ImportError as error:
        missing = f"compressed and remote MDS need mosaicml-streaming, which is not usable ({error})"
        raise NotFoundError(f"{missing}: {_INSTALL}") from None
