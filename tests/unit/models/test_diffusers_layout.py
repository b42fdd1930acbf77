"""Diffusers folders: ours in diffusers, theirs in ours, old ones, and broken ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers import DiffusionPipeline
from safetensors.torch import load_file, save_file
from torch import Tensor

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.engine.load import load
from calotype.models.diffusers_layout import read_architecture
from calotype.models.resolve import resolve_model
from calotype.models.save import write_folder, write_single_file
from calotype.models.weights import FolderWeights, RandomWeights
from tests.small_models import shrunk
from tests.unit.models.conftest import FolderOf
from tests.unit.models.on_disk import assert_same_parts, assert_same_tensors, folder_tensors, read_weights

NAMES = ["sd15", "sd2-base", "sdxl", "emoji"]
TINY_SHARD_BYTES = 4 * 2**20


@pytest.fixture(autouse=True)
def quiet() -> None:
    diffusers.utils.logging.disable_progress_bar()


def _pipeline(folder: Path) -> Any:
    pipeline = DiffusionPipeline.from_pretrained(folder, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _state(pipeline: Any, part: str) -> dict[str, Tensor]:
    """Under published names: newer transformers have no `text_model.` level in the plain encoder."""
    state: dict[str, Tensor] = getattr(pipeline, part).state_dict()
    plain = part.startswith("text_encoder") and not any(name.startswith("text_model.") for name in state)
    return {f"text_model.{name}": tensor for name, tensor in state.items()} if plain else state


@pytest.mark.parametrize("name", NAMES)
def test_diffusers_loads_and_runs_a_folder_we_wrote(name: str, folder_of: FolderOf) -> None:
    pipeline = _pipeline(folder_of(name))
    assert type(pipeline).__name__ == shrunk(name).pipeline
    for part, expected in read_weights(RandomWeights(shrunk(name))).items():
        assert_same_tensors(_state(pipeline, part), expected)
    image = pipeline("a red apple", num_inference_steps=2, output_type="np").images
    assert image.shape == (1, 64, 64, 3)
    assert image.std() > 0.01


@pytest.mark.parametrize("name", [*NAMES, "sdxl-refiner"])
def test_architecture_is_read_as_it_was_written(name: str, folder_of: FolderOf) -> None:
    read, written = read_architecture(folder_of(name)).as_dict(), shrunk(name).as_dict()
    about = {"name", "title", "hub_id", "licence"}
    assert {k: v for k, v in read.items() if k not in about} == {
        k: v for k, v in written.items() if k not in about
    }


@pytest.mark.parametrize("name", ["sd15", "sdxl"])
def test_folder_that_diffusers_saved_is_read(name: str, folder_of: FolderOf, tmp_path: Path) -> None:
    _pipeline(folder_of(name)).save_pretrained(tmp_path / "saved")
    with FolderWeights(tmp_path / "saved", read_architecture(tmp_path / "saved")) as weights:
        assert_same_parts(read_weights(weights), read_weights(RandomWeights(shrunk(name))))
    assert read_architecture(tmp_path / "saved").tokenizers == shrunk(name).tokenizers


@pytest.mark.parametrize("form", ["folder", "single.safetensors", "single.ckpt"])
def test_a_word_that_the_model_was_taught_is_kept(form: str, folder_of: FolderOf, tmp_path: Path) -> None:
    pipeline = _pipeline(folder_of("sd15"))
    pipeline.tokenizer.add_tokens(["<cat-toy>"])
    pipeline.text_encoder.resize_token_embeddings(49409, mean_resizing=False)
    pipeline.save_pretrained(tmp_path / "taught")
    with resolve_model(str(tmp_path / "taught")).weights as weights:
        if form == "folder":
            write_folder(weights, tmp_path / form)
        else:
            write_single_file(weights, tmp_path / form)
    engine = load(str(tmp_path / form), device="cpu")
    assert engine.model.tokenizers[0]("a <cat-toy>").input_ids == [49406, 320, 49408, 49407]
    expected, _ = pipeline.encode_prompt("a <cat-toy>", "cpu", 1, do_classifier_free_guidance=False)
    assert torch.allclose(engine.encode("a <cat-toy>").context, expected, atol=1e-5)


def test_sharded_folder_loads_in_ours_and_in_diffusers(tmp_path: Path) -> None:
    source = RandomWeights(shrunk("sdxl"), seed=3)
    write_folder(source, tmp_path / "shards", max_shard_bytes=TINY_SHARD_BYTES)
    assert len(list((tmp_path / "shards" / "unet").glob("*-of-*.safetensors"))) > 2
    assert len(list((tmp_path / "shards" / "text_encoder").glob("*-of-*.safetensors"))) > 1
    expected = read_weights(source)
    with FolderWeights(tmp_path / "shards", read_architecture(tmp_path / "shards")) as weights:
        assert_same_parts(read_weights(weights), expected)
    pipeline = _pipeline(tmp_path / "shards")
    for part, tensors in expected.items():
        assert_same_tensors(_state(pipeline, part), tensors)


@pytest.fixture
def sd15(folder_of: FolderOf, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(folder_of("sd15"), tmp_path / "sd15"))


def _read(folder: Path) -> dict[str, dict[str, Tensor]]:
    with FolderWeights(folder, read_architecture(folder)) as weights:
        return read_weights(weights)


def test_folder_with_the_half_precision_variant_alone_is_read(sd15: Path) -> None:
    expected = folder_tensors(sd15)
    for file in [*sd15.glob("*/*.safetensors")]:
        file.rename(file.with_name(file.name.replace(".safetensors", ".fp16.safetensors")))
    assert_same_parts(_read(sd15), expected)


def test_a_variant_in_several_files_is_read_as_diffusers_saves_it(sd15: Path) -> None:
    """Text encoders of such a size have one file, and the names of it are the same in transformers."""
    expected = folder_tensors(sd15)
    pipeline = DiffusionPipeline.from_pretrained(sd15, local_files_only=True)
    for part in ("unet", "vae", "text_encoder"):
        for file in sd15.glob(f"{part}/*.safetensors"):
            file.unlink()
        getattr(pipeline, part).save_pretrained(sd15 / part, variant="fp16", max_shard_size="200KB")
        assert [*sd15.glob(f"{part}/*.safetensors.index.fp16.json")]
    assert_same_parts(_read(sd15), expected)


def test_full_precision_is_chosen_over_the_variant(sd15: Path) -> None:
    expected = folder_tensors(sd15)
    file = sd15 / "unet" / "diffusion_pytorch_model.safetensors"
    zeros = {name: torch.zeros_like(tensor, dtype=torch.float16) for name, tensor in load_file(file).items()}
    save_file(zeros, file.with_name("diffusion_pytorch_model.fp16.safetensors"))
    assert_same_parts(_read(sd15), expected)


def test_old_pickles_are_read(sd15: Path) -> None:
    """As folders of 2022 have them: .bin files, and position ids among the text encoder's tensors."""
    expected = folder_tensors(sd15)
    for part, tensors in expected.items():
        stem = "pytorch_model" if part == "text_encoder" else "diffusion_pytorch_model"
        kept = dict(tensors)
        if part == "text_encoder":
            kept["text_model.embeddings.position_ids"] = torch.arange(77)[None]
        torch.save(kept, sd15 / part / f"{stem}.bin")
    for file in [*sd15.glob("*/*.safetensors")]:
        file.unlink()
    assert_same_parts(_read(sd15), expected)


def test_old_names_of_the_autoencoders_attention_are_read(sd15: Path) -> None:
    expected = folder_tensors(sd15)
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    file = sd15 / "vae" / "diffusion_pytorch_model.safetensors"
    renamed = {}
    for name, tensor in load_file(file).items():
        for new, before in old.items():
            name = name.replace(f"attentions.0.{new}.", f"attentions.0.{before}.")  # noqa: PLW2901 - a chain
        renamed[name] = tensor
    assert "decoder.mid_block.attentions.0.proj_attn.weight" in renamed
    save_file(renamed, file)
    assert_same_parts(_read(sd15), expected)


def test_names_without_the_text_model_level_are_read(sd15: Path) -> None:
    """As the newest transformers have them in memory."""
    expected = folder_tensors(sd15)
    file = sd15 / "text_encoder" / "model.safetensors"
    save_file({name.removeprefix("text_model."): t for name, t in load_file(file).items()}, file)
    assert_same_parts(_read(sd15), expected)


def _edit(place: str, **changes: Any) -> Callable[[Path], None]:
    """Change settings of a configuration; None removes one."""

    def change(folder: Path) -> None:
        values = {**json.loads((folder / place).read_text()), **changes}
        (folder / place).write_text(json.dumps({k: v for k, v in values.items() if v is not None}))

    return change


def _remove(place: str) -> Callable[[Path], None]:
    return lambda folder: (
        shutil.rmtree(folder / place) if (folder / place).is_dir() else (folder / place).unlink()
    )


def _write(place: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / place).write_text(text)

    return write


def _link(place: str, target: str) -> Callable[[Path], None]:
    def link(folder: Path) -> None:
        outside = folder.parent / "outside"
        (folder / place).rename(outside)
        (folder / place).symlink_to(target.format(outside=outside))

    return link


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_write("model_index.json", "{"), "model_index.json: it is not JSON"),
        (_write("model_index.json", "[]"), "model_index.json: it is a JSON list"),
        (_remove("unet/config.json"), "unet/config.json: is missing; the model folder is incomplete"),
        (_write("unet/config.json", "{}" * 2), "unet/config.json: it is not JSON"),
        (_write("unet/config.json", '{"a": NaN}'), "unet/config.json: it is not JSON: NaN"),
        (_write("vae/config.json", "[" * 100_000), "vae/config.json: it is nested too deeply"),
        (_edit("vae/config.json", block_out_channels=None), "its configuration cannot be used.*block_out"),
        (_edit("unet/config.json", sample_size="large"), "its configuration cannot be used"),
        (_edit("unet/config.json", layers_per_block=None), "the unet configuration lacks layers_per_block"),
        (_edit("text_encoder/config.json", architectures=["T5EncoderModel"]), "is a T5EncoderModel"),
        (_remove("scheduler"), "scheduler_config.json: is missing"),
        (_remove("tokenizer"), "no tokenizer here"),
        (_remove("text_encoder"), "is a StableDiffusionPipeline without a text_encoder folder"),
        (_remove("unet"), "is a StableDiffusionPipeline without a unet folder"),
        (_link("unet/config.json", "{outside}"), "unet/config.json: is a link to .*outside"),
    ],
)
def test_broken_folder_names_what_is_broken(sd15: Path, damage: Callable[[Path], None], reason: str) -> None:
    damage(sd15)
    with pytest.raises(ModelFileError, match=reason):
        read_architecture(sd15)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_what_is_no_model_folder_says_so(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "empty")
    with pytest.raises(NotFoundError, match=r"is not a diffusers model folder: it has no model_index.json"):
        read_architecture(tmp_path / "empty")


UNET_FILE = "unet/diffusion_pytorch_model.safetensors"


def _tensors(changes: dict[str, Tensor | None]) -> Callable[[Path], None]:
    """Change tensors of the UNet; None removes one."""

    def apply(folder: Path) -> None:
        tensors = {**load_file(folder / UNET_FILE), **changes}
        save_file({name: t for name, t in tensors.items() if t is not None}, folder / UNET_FILE)

    return apply


@pytest.mark.parametrize(
    ("damage", "error", "reason"),
    [
        (_tensors({"conv_in.bias": None}), ModelFileError, "1 of .* missing, the first is 'conv_in.bias'"),
        (
            _tensors({"conv_in.bias": torch.zeros(3)}),
            ModelFileError,
            r"'conv_in.bias' has shape \[3\] where this architecture has \[32\]",
        ),
        (_tensors({"odd": torch.zeros(3)}), ModelFileError, "1 tensors are not of .* 'odd'"),
        (_remove(UNET_FILE), NotFoundError, "has neither diffusion_pytorch_model.safetensors"),
        (_write(UNET_FILE, ""), ModelFileError, "is empty"),
        (_link(UNET_FILE, "{outside}"), ModelFileError, "is a link to .*outside, which is outside"),
        (_edit("unet/config.json", block_out_channels=[16, 64, 96, 96]), ModelFileError, r"has shape \[32"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    sd15: Path, damage: Callable[[Path], None], error: type[Exception], reason: str
) -> None:
    damage(sd15)
    with pytest.raises(error, match=reason):
        FolderWeights(sd15, read_architecture(sd15))
