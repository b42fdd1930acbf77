"""Shards and their index: loaded by diffusers, read back by us, and no hostile index leads us astray."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.models.files.sharded import open_weights, write_sharded
from tests.unit.models.files.test_safetensors_writer import declared

STEM = "diffusion_pytorch_model"
INDEX = f"{STEM}.safetensors.index.json"
WEIGHTS = {
    name: torch.randn(10, generator=torch.Generator().manual_seed(n)) for n, name in enumerate("abcde")
}


def write(folder: Path, max_shard_bytes: int) -> list[str]:
    paths = write_sharded(
        folder, STEM, declared(WEIGHTS), WEIGHTS.__getitem__, max_shard_bytes, metadata={"k": "v"}
    )
    return [path.name for path in paths]


def shards(count: int) -> list[str]:
    return [f"{STEM}-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_shards_hold_each_tensor_once_and_the_index_says_where(tmp_path: Path) -> None:
    assert write(tmp_path, 80) == [*shards(3), INDEX]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"] == {"total_size": 200}
    assert set(index["weight_map"].values()) == set(shards(3))
    for name, shard in index["weight_map"].items():
        assert torch.equal(load_file(tmp_path / shard)[name], WEIGHTS[name])
    with open_weights(tmp_path, STEM) as reader:
        assert set(reader) == set(WEIGHTS)
        assert reader.size_bytes == 200
        assert reader.metadata == {"k": "v"}
        assert reader.entry("c").shape == (10,)
        assert all(torch.equal(reader.read(name), WEIGHTS[name]) for name in reader)
        assert len(reader.sha256()) == 64
        with pytest.raises(ModelFileError, match="has no tensor 'zz'"):
            reader.read("zz")


def test_a_tensor_over_the_limit_gets_a_shard_of_its_own(tmp_path: Path) -> None:
    assert write(tmp_path, 1) == [*shards(5), INDEX]


def test_what_fits_in_one_file_is_one_file(tmp_path: Path) -> None:
    assert write(tmp_path, 200) == [f"{STEM}.safetensors"]
    with open_weights(tmp_path, STEM) as reader:
        assert torch.equal(reader.read("e"), WEIGHTS["e"])


def test_an_earlier_write_leaves_no_stale_files(tmp_path: Path) -> None:
    (tmp_path / f"{STEM}-notes.safetensors").write_text("not ours")
    (tmp_path / "config.json").write_text("{}")
    kept = ["config.json", f"{STEM}-notes.safetensors"]
    for size, expected in (
        (80, [*shards(3), INDEX]),
        (200, [f"{STEM}.safetensors"]),
        (120, [*shards(2), INDEX]),
    ):
        write(tmp_path, size)
        assert names(tmp_path) == sorted(expected + kept)


def test_an_interrupted_write_leaves_the_earlier_weights_whole(tmp_path: Path) -> None:
    write(tmp_path, 80)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def produce(name: str) -> torch.Tensor:
        if name == "e":
            raise KeyboardInterrupt
        return torch.zeros(10)

    with pytest.raises(KeyboardInterrupt):
        write_sharded(tmp_path, STEM, declared(WEIGHTS), produce, 80)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_diffusers_loads_our_shards_and_we_read_its(tmp_path: Path) -> None:
    from diffusers import UNet2DModel

    blocks = {
        "down_block_types": ("DownBlock2D",),
        "up_block_types": ("UpBlock2D",),
        "block_out_channels": (4,),
    }
    model = UNet2DModel(8, 1, 1, layers_per_block=1, norm_num_groups=2, add_attention=False, **blocks)
    weights = model.state_dict()
    model.save_pretrained(tmp_path / "theirs", max_shard_size="4KB")
    with open_weights(tmp_path / "theirs", STEM) as reader:
        assert set(reader) == set(weights)
        assert all(torch.equal(reader.read(name), weights[name]) for name in reader)
        written = write_sharded(
            tmp_path / "ours", STEM, declared(weights), reader.read, 4000, metadata={"format": "pt"}
        )
    assert len(written) > 2
    model.save_config(tmp_path / "ours")
    loaded = UNet2DModel.from_pretrained(tmp_path / "ours", local_files_only=True).state_dict()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_an_old_bin_is_read_through_the_sandbox(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / f"{STEM}.bin")
    with open_weights(tmp_path, STEM) as reader:
        assert torch.equal(reader.read("a"), WEIGHTS["a"])


def test_a_folder_without_weights_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=rf"has neither {STEM}\.safetensors nor"):
        open_weights(tmp_path, STEM)


def test_two_answers_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 80)
    save_file(WEIGHTS, tmp_path / f"{STEM}.safetensors")
    with pytest.raises(ModelFileError, match="holds both"):
        open_weights(tmp_path, STEM)


@pytest.mark.parametrize(
    ("index", "rule"),
    [
        (
            {"weight_map": {"a": "../outside.safetensors"}},
            r"'\.\./outside\.safetensors' is not a usable name",
        ),
        ({"weight_map": {"a": "/etc/passwd"}}, "absolute path"),
        ({"weight_map": {"a": "..\\x"}}, "backslash"),
        (
            {"weight_map": {"a": "gone.safetensors"}},
            r"names the shard gone\.safetensors, which does not exist",
        ),
        ({"weight_map": {"z": shards(3)[0]}}, "says 'z' is in .*, but that file does not have it"),
        ({"weight_map": {"a": 7}}, "maps 'a' to 7, which is no file name"),
        ({"weight_map": {}}, "has no weight_map"),
        ([], "is a JSON list, not an object"),
        (b'{"weight_map": {"a": "x", "a": "y"}}', "names 'a' more than once"),
        (b"\xff", "is not UTF-8"),
        (b"[" * 250_000, "nested too deeply"),
    ],
)
def test_a_bad_index_is_refused_by_name_and_rule(tmp_path: Path, index: object, rule: str) -> None:
    write(tmp_path, 80)
    content = index if isinstance(index, bytes) else json.dumps(index).encode()
    (tmp_path / INDEX).write_bytes(content)
    with pytest.raises(ModelFileError, match=rule) as caught:
        open_weights(tmp_path, STEM)
    assert INDEX in str(caught.value)


def test_a_shard_or_index_that_is_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write(folder, 80)
    outside = tmp_path / "outside"
    for name in (shards(3)[1], INDEX):
        os.replace(folder / name, outside)  # noqa: PTH105 - the system call is what is meant
        (folder / name).symlink_to(outside)
        with pytest.raises(ModelFileError, match=r"is a link to .*outside, which is outside"):
            open_weights(folder, STEM)
        with open_weights(folder, STEM, inside=tmp_path) as reader:
            assert torch.equal(reader.read("c"), WEIGHTS["c"])
        (folder / name).unlink()
        os.replace(outside, folder / name)  # noqa: PTH105


def test_an_index_that_is_too_large_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 80)
    os.truncate(tmp_path / INDEX, 65 * 1024 * 1024)
    with pytest.raises(ModelFileError, match="the limit for an index is 67108864"):
        open_weights(tmp_path, STEM)
