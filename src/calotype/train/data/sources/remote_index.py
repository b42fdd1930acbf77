"""What shards far away hold, by an index beside them: of tar shards as `wids` writes it, of MDS its own.

Fetched anew by every run, because an index may grow. Reads no shard.
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
        rule = (
            f"{path!r} is no index, which data.cache_gb needs to know shards by before they are here; make "
        )
        rule += f"{INDEX} by `calotype data index`, put it beside the shards and give its address"
        raise RequestError([Problem("data.path", rule, path)])
    text = _text(path)
    try:
        listed = [_tar_shard(path, entry) for entry in json.loads(text)["shardlist"]]
    except (KeyError, TypeError, ValueError) as error:
        rule = f"is no index of tar shards ({error!r}): `shardlist` has url, nsamples and filesize of each"
        raise DataError(path, f"{rule}; make one by `calotype data index`") from None
    return _some(path, listed)


def remote_mds_shards(path: str) -> list[RemoteShard]:
    """The shards of the MDS data set at `path`."""
    address = f"{path.rstrip('/')}/{INDEX}"
    with tempfile.TemporaryDirectory() as place:
        fetch_to(address, Path(place) / INDEX)
        shards = read_mds_index(Path(place))
        entries = json.loads((Path(place) / INDEX).read_text(encoding="utf-8"))["shards"]
    packed = [shard.file for shard in shards if shard.compressed]
    if packed:
        rule = f"{packed[0]} is compressed; leave data.cache_gb out to read it through mosaicml-streaming"
        raise DataError(address, rule)
    listed = []
    for shard, entry in zip(shards, entries, strict=True):
        raw = entry["raw_data"]
        hashes = {name: digest for name, digest in raw.get("hashes", {}).items() if name in ("sha256", "md5")}
        checksum = next(iter(hashes.items()), None)
        file = RemoteFile(_beside(address, shard.file), int(raw["bytes"]), checksum)
        listed.append(RemoteShard(file, shard.num_samples, partial(_mds, shard)))
    return _some(address, listed)


def write_index(shards: Sequence[Path], destination: Path) -> int:
    """List local tar shards as `remote_tar_shards` reads them, by name alone; the number of samples."""
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
    """Beside one index there is room for one file of a name."""
    first: dict[str, Path] = {}
    for path in shards:
        other = first.setdefault(path.name, path)
        if other != path:
            rule = f"{other} and {path} have one name, and an index has all its shards beside it"
            raise RequestError([Problem("shards", f"{rule}; rename one of them", str(path))])


def _text(url: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / INDEX
        fetch_to(url, file)
        return file.read_text(encoding="utf-8")


def _tar_shard(index: str, entry: Mapping[str, Any]) -> RemoteShard:
    checksum = next(((kind, entry[key]) for key, kind in _CHECKSUMS.items() if entry.get(key)), None)
    file = RemoteFile(_beside(index, entry["url"]), int(entry["filesize"]), checksum)
    return RemoteShard(file, int(entry["nsamples"]), _tar)


def _beside(index: str, url: str) -> str:
    """Where a file is that an index names; a signature in the index's own address goes for it as well."""
    if is_url(url):
        return url
    parts = urlsplit(index)
    return parts._replace(path=f"{parts.path.rpartition('/')[0]}/{url}").geturl()


def _some(place: str, shards: list[RemoteShard]) -> list[RemoteShard]:
    shards = [shard for shard in shards if shard.num_samples]
    if not shards:
        raise DataError(place, "lists no samples")
    return shards


def _tar(path: Path) -> WebDatasetSource:
    return WebDatasetSource([path])


def _mds(shard: MdsShard, path: Path) -> MdsSource:
    return MdsSource(path.parent, [replace(shard, file=path.name)])
