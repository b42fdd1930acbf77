"""Writes MosaicML's MDS format, as its package does; compared with that package by hand, see `test_mds`."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_mds(
    folder: Path, columns: Mapping[str, str], samples: Sequence[Mapping[str, bytes]], per_shard: int = 3
) -> Path:
    """Shards of `per_shard` samples and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(columns)
    sizes = [8 if columns[name] == "int" else None for name in names]
    listed = []
    for number, start in enumerate(range(0, len(samples), per_shard)):
        rows = [_row(sample, names, sizes) for sample in samples[start : start + per_shard]]
        file = f"shard.{number:05d}.mds"
        (folder / file).write_bytes(_shard(rows))
        listed.append(
            {
                "column_encodings": [columns[name] for name in names],
                "column_names": names,
                "column_sizes": sizes,
                "compression": None,
                "format": "mds",
                "hashes": [],
                "raw_data": {"basename": file, "bytes": len(_shard(rows)), "hashes": {}},
                "samples": len(rows),
                "size_limit": 1000,
                "version": 2,
                "zip_data": None,
            }
        )
    (folder / "index.json").write_text(json.dumps({"shards": listed, "version": 2}))
    return folder


def _row(sample: Mapping[str, bytes], names: list[str], sizes: list[int | None]) -> bytes:
    lengths = [
        struct.pack("<I", len(sample[n])) for n, size in zip(names, sizes, strict=True) if size is None
    ]
    return b"".join(lengths) + b"".join(sample[name] for name in names)


def _shard(rows: list[bytes]) -> bytes:
    description = json.dumps({"written": "by a test"}).encode()
    position = 4 * (len(rows) + 2) + len(description)
    offsets = [position]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return struct.pack(f"<{len(rows) + 2}I", len(rows), *offsets) + description + b"".join(rows)
