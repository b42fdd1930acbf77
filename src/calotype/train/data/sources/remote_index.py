"""Indexes of remote shards: of tar shards in the format of `wids`, of MDS its own.

Every run downloads the index anew, because it may grow. No shard is read.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from calotype.core.errors import Problem, RequestError
from calotype.core.paths import atomic_write
from calotype.train.data.bad_samples import DataError
from calotype.train.data.sources.http_download import fetch_to, is_url
from calotype.train.data.sources.mds import MdsShard, MdsSource, read_mds_index
from calotype.train.data.sources.node_cache import RemoteFile
from calotype.train.data.sources.remote_shards import RemoteShard
from calotype.train.data.sources.webdataset import WebDatasetSource

INDEX = "index.json"
KIND = "wids-shard-index-v1"
_CHECKSUMS = {"sha256": "sha256", "md5sum": "md5"}


def remote_tar_shards(path: str) -> list[RemoteShard]:
    """The shards that the index at `path` lists, relative to it."""
    if not urlsplit(path).path.endswith(".json"):
        rule = f"{path!r} is not an index, which data.cache_gb needs to know the shards in advance; make "
        rule += f"{INDEX} with `calotype data index`, put it beside the shards and give its URL"
        raise RequestError([Problem("data.path", rule, path)])
    text = _text(path)
    try:
        listed = [_tar_shard(path, entry) for entry in json.loads(text)["shardlist"]]
    except (KeyError, TypeError, ValueError) as error:
        rule = (
            f"is not an index of tar shards ({error!r}): `shardlist` has url, nsamples and filesize of each"
        )
        raise DataError(path, f"{rule}; make one with `calotype data index`") from None
    return _require_samples(path, listed)


def remote_mds_shards(path: str) -> list[RemoteShard]:
    """The shards of the MDS dataset at `path`."""
    address = f"{path.rstrip('/')}/{INDEX}"
    with tempfile.TemporaryDirectory() as place:
        fetch_to(address, Path(place) / INDEX)
        shards = read_mds_index(Path(place))
        entries = json.loads((Path(place) / INDEX).read_text(encoding="utf-8"))["shards"]
    packed = [shard.file for shard in shards if shard.compressed]
    if packed:
        rule = f"{packed[0]} is compressed; remove data.cache_gb to read it through mosaicml-streaming"
        raise DataError(address, rule)
    listed = []
    for shard, entry in zip(shards, entries, strict=True):
        raw = entry["raw_data"]
        hashes = {name: digest for name, digest in raw.get("hashes", {}).items() if name in ("sha256", "md5")}
        checksum = next(iter(hashes.items()), None)
        file = RemoteFile(_resolve_url(address, shard.file), int(raw["bytes"]), checksum)
        listed.append(RemoteShard(file, shard.num_samples, partial(_open_mds, shard)))
    return _require_samples(address, listed)


def write_index(shards: Sequence[Path], destination: Path) -> int:
    """Write an index of local tar shards, by file name, for `remote_tar_shards`; returns the sample count."""
    _refuse_namesakes(shards)
    listed: list[dict[str, Any]] = []
    for path in shards:
        source = WebDatasetSource([path])
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = path.stat().st_size
        listed.append({"url": path.name, "nsamples": len(source), "filesize": size, "sha256": digest})
        source.close()
    values = {"__kind__": KIND, "wids_version": 1, "shardlist": listed}
    with atomic_write(destination, "w") as out:
        out.write(json.dumps(values, indent=1) + "\n")
    return sum(entry["nsamples"] for entry in listed)


def _refuse_namesakes(shards: Sequence[Path]) -> None:
    """Refuse shards of the same file name, since all shards lie beside the index."""
    first: dict[str, Path] = {}
    for path in shards:
        other = first.setdefault(path.name, path)
        if other != path:
            rule = f"{other} and {path} have the same name, and all shards of an index are beside it"
            raise RequestError([Problem("shards", f"{rule}; rename one of them", str(path))])


def _text(url: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / INDEX
        fetch_to(url, file)
        return file.read_text(encoding="utf-8")


def _tar_shard(index: str, entry: Mapping[str, Any]) -> RemoteShard:
    checksum = next(((kind, entry[key]) for key, kind in _CHECKSUMS.items() if entry.get(key)), None)
    file = RemoteFile(_resolve_url(index, entry["url"]), int(entry["filesize"]), checksum)
    return RemoteShard(file, int(entry["nsamples"]), _open_tar)


def _resolve_url(index: str, url: str) -> str:
    """The URL of a file that an index names; the query of the index's URL (a signature) applies to it too."""
    if is_url(url):
        return url
    parts = urlsplit(index)
    return parts._replace(path=f"{parts.path.rpartition('/')[0]}/{url}").geturl()


def _require_samples(place: str, shards: list[RemoteShard]) -> list[RemoteShard]:
    shards = [shard for shard in shards if shard.num_samples]
    if not shards:
        raise DataError(place, "lists no samples")
    return shards


def _open_tar(path: Path) -> WebDatasetSource:
    return WebDatasetSource([path])


def _open_mds(shard: MdsShard, path: Path) -> MdsSource:
    return MdsSource(path.parent, [replace(shard, file=path.name)])
