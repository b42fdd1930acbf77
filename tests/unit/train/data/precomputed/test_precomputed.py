"""Latents and embeddings made beforehand: written is read back, and what is unfinished never counts."""

import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.core.errors import ModelFileError, NotFoundError, RequestError
from calotype.train.data.bad_samples import DataError
from calotype.train.data.precomputed.index import Provenance
from calotype.train.data.precomputed.source import PrecomputedSource
from calotype.train.data.precomputed.writer import PrecomputedWriter
from calotype.train.data.types import Batch, Text
from tests.unit.train.children import surroundings
from tests.unit.train.data.specimens import batches_of, feed_of, keys_of, needs, part
from tests.warm_python import warm_python

MADE_BY = Provenance("vae-abc", "text-def", 16)


def made_from(positions: Sequence[int], side: int = 2) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """A batch, its latents and its context; a sample's numbers tell its position."""
    keys = tuple(f"k{position}" for position in positions)
    sizes = torch.tensor([[16, 16, 0, 0, 16, 16]] * len(positions))
    batch = Batch(tuple(f"caption {key}" for key in keys), keys, tuple(positions), sizes=sizes)
    values = torch.tensor(positions, dtype=torch.float16).view(-1, 1, 1)
    return batch, values[..., None].expand(-1, 4, 2, side), values.expand(-1, 5, 6)


def write(folder: Path, count: int, per_shard: int = 3, **options: Any) -> None:
    with PrecomputedWriter(folder, MADE_BY, samples_per_shard=per_shard, **options) as writer:
        for start in range(writer.next_position or 0, count, 2):
            writer.add(*made_from(range(start, min(start + 2, count))))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    empty = Text(torch.randn(5, 6), torch.randn(7))
    write(tmp_path, 8, empty_text=empty)
    source = PrecomputedSource(tmp_path, needs(vae_hash="vae-abc", text_hash="text-def"))
    assert len(source) == 8
    assert [path.name for path in sorted(tmp_path.glob("*.safetensors"))] == [
        "empty_text.safetensors",
        *(f"shard-00000{number}.safetensors" for number in range(3)),
    ]
    for index in (7, 0, 4):
        sample = source.read(index)
        assert (sample.key, sample.caption) == (f"k{index}", f"caption k{index}")
        assert sample.latents is not None
        assert torch.equal(sample.latents, torch.full((4, 2, 2), index, dtype=torch.float16))
        assert sample.context is not None
        assert torch.equal(sample.context, torch.full((5, 6), index, dtype=torch.float16))
        assert sample.size == (16, 16, 0, 0, 16, 16)
    assert source.empty_text is not None
    assert torch.equal(source.empty_text.context, empty.context)


def test_a_feed_gives_them_in_batches(tmp_path: Path) -> None:
    write(tmp_path, 8)
    batches = batches_of(part("precomputed", tmp_path), 2)
    assert sorted(keys_of(batches)) == sorted(f"k{number}" for number in range(8))
    assert batches[0].pixels is None
    assert batches[0].latents is not None
    assert batches[0].latents.shape == (4, 4, 2, 2)
    assert [f"k{int(row[0, 0, 0])}" for row in batches[0].latents] == list(batches[0].keys)


def test_a_writer_goes_on_after_the_last_complete_shard(tmp_path: Path) -> None:
    def interrupted() -> None:
        with PrecomputedWriter(tmp_path, MADE_BY, samples_per_shard=3) as writer:
            writer.add(*made_from(range(8)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    again = PrecomputedWriter(tmp_path, MADE_BY, samples_per_shard=3)
    assert (again.next_position, again.num_samples, again.finished) == (6, 6, False)
    write(tmp_path, 11)
    whole = PrecomputedSource(tmp_path, needs())
    assert [whole.read(index).key for index in range(len(whole))] == [f"k{number}" for number in range(11)]
    assert PrecomputedWriter(tmp_path, MADE_BY).finished


@pytest.mark.parametrize("moment", ["while waiting", "within a shard", "before the index"])
def test_a_killed_writer_loses_only_the_unfinished_shard(tmp_path: Path, moment: str) -> None:
    command = [warm_python(), "-m", "tests.unit.train.data.killed_writer", str(tmp_path), moment]
    done = subprocess.run(command, env=surroundings(), check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(DataError, match="was interrupted after 6 samples; run precompute again to finish it"):
        PrecomputedSource(tmp_path, needs())
    left = PrecomputedSource(tmp_path, needs(), unfinished=True)
    assert [left.read(index).key for index in range(len(left))] == [f"k{number}" for number in range(6)]
    write(tmp_path, 10)
    whole = PrecomputedSource(tmp_path, needs())
    assert [whole.read(index).key for index in range(len(whole))] == [f"k{number}" for number in range(10)]


def test_what_was_made_for_another_model_is_refused_with_both_values(tmp_path: Path) -> None:
    write(tmp_path, 3)
    with pytest.raises(RequestError) as refused:
        PrecomputedSource(tmp_path, needs(resolution=32, vae_hash="vae-xyz", text_hash="text-uvw"))
    for words in ("vae-abc", "vae-xyz", "text-def", "text-uvw", "made with 16, the model wants 32"):
        assert words in str(refused.value)
    with pytest.raises(DataError, match=r"holds results of other settings.*vae-abc.*vae-xyz"):
        PrecomputedWriter(tmp_path, Provenance("vae-xyz", "text-def", 16))


@pytest.mark.parametrize(
    ("wanted", "rule"),
    [
        ({"context_width": 9}, "its context are 5×6, the model needs 5×9"),
        ({"latent_channels": 16}, "its latents are 4×2×2, the model needs 16×2×2"),
        ({"pooled_width": 3}, "it has no pooled text"),
    ],
)
def test_shapes_the_model_cannot_take_are_refused_at_once(
    tmp_path: Path, wanted: dict[str, int], rule: str
) -> None:
    write(tmp_path, 3)
    with pytest.raises(DataError, match=rule):
        feed_of(part("precomputed", tmp_path), needs(**wanted))


def test_parts_of_several_processes_are_one_data_set(tmp_path: Path) -> None:
    for number in range(2):
        with PrecomputedWriter(tmp_path, MADE_BY, part=number, num_parts=2) as writer:
            writer.add(*made_from(range(number * 3, number * 3 + 3)))
        if number == 0:
            with pytest.raises(DataError, match="part 1 of 2 is missing"):
                PrecomputedSource(tmp_path, needs())
    assert len(PrecomputedSource(tmp_path, needs())) == 6
    write(tmp_path, 3)
    with pytest.raises(DataError, match="its parts do not belong together"):
        PrecomputedSource(tmp_path, needs())


def test_samples_of_several_sizes_need_buckets_and_then_never_mix(tmp_path: Path) -> None:
    with PrecomputedWriter(tmp_path, MADE_BY, samples_per_shard=4) as writer:
        writer.add(*made_from(range(4)))
        writer.add(*made_from(range(4, 10), side=3))
    with pytest.raises(DataError, match=r"holds 2 sizes \(16×16, 16×24\); set data.buckets=true"):
        feed_of(part("precomputed", tmp_path))
    batches = batches_of(part("precomputed", tmp_path, buckets=True), 5, micro=2)
    assert sorted(keys_of(batches)) == sorted(f"k{number}" for number in range(10))
    assert {tuple(b.latents.shape) for b in batches if b.latents is not None} == {(2, 4, 2, 2), (2, 4, 2, 3)}


def test_numbers_that_are_none_are_reported_by_name(tmp_path: Path) -> None:
    with PrecomputedWriter(tmp_path, MADE_BY) as writer:
        batch, latents, context = made_from(range(5))
        latents = latents.clone()
        latents[3, 0, 0, 0] = float("nan")
        writer.add(batch, latents, context)
    with feed_of(part("precomputed", tmp_path)) as feed:
        keys = keys_of([next(feed) for _ in range(3)])
    assert "k3" not in keys
    assert [str(found) for found in feed.report().unreadable] == [
        "k3: its latents hold a value that is not a finite number"
    ]


def test_folders_that_are_none_say_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="calotype train precompute"):
        PrecomputedSource(tmp_path / "nowhere", needs())
    with pytest.raises(DataError, match=r"holds no index\.json"):
        PrecomputedSource(tmp_path, needs())
    (tmp_path / "index.json").write_text('{"format": "else"}')
    with pytest.raises(DataError, match="is of format 'else'"):
        PrecomputedSource(tmp_path, needs())
    (tmp_path / "index.json").write_text("[")
    with pytest.raises(DataError, match="is not the index of a precomputed folder"):
        PrecomputedSource(tmp_path, needs())


def test_a_shard_that_disagrees_with_its_index_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", 3)
    write(tmp_path / "b", 2)
    shard = tmp_path / "a" / "shard-000000.safetensors"
    shard.write_bytes((tmp_path / "b" / shard.name).read_bytes())
    with pytest.raises(DataError, match="holds 2 samples, its index says 3"):
        PrecomputedSource(tmp_path / "a", needs())
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(ModelFileError, match="bytes are missing"):
        PrecomputedSource(tmp_path / "a", needs())
    index = tmp_path / "b" / "index.json"
    values = json.loads(index.read_text())
    index.write_text(json.dumps(values | {"made_by": values["made_by"] | {"resolution": 32}}))
    with pytest.raises(DataError, match=r"was made with .*16.*, its index says .*32"):
        PrecomputedSource(tmp_path / "b", needs(resolution=32))


def test_the_writer_wants_positions_in_order_and_samples_alike(tmp_path: Path) -> None:
    writer = PrecomputedWriter(tmp_path, MADE_BY, samples_per_shard=2)
    writer.add(*made_from([4]))
    with pytest.raises(ValueError, match="position 4 comes after 4"):
        writer.add(*made_from([4]))
    batch, latents, _ = made_from([5])
    with pytest.raises(ValueError, match="1 of 2 samples have context"):
        writer.add(batch, latents)
