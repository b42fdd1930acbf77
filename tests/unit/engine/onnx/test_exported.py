"""Exported folders, run by onnxruntime, against diffusers on the folder they were made of."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from calotype.cli.main import run
from calotype.engine.device import DTYPES
from calotype.engine.onnx.wrappers import Sizes, kinds
from calotype.models.save import write_folder
from calotype.models.weights import RandomWeights
from tests.unit.engine.onnx.ddim import picture
from tests.unit.engine.onnx.exported import Array, Exported, farthest
from tests.unit.engine.onnx.shallow import shallow


@dataclass(frozen=True)
class Case:
    """A family, as small as shows what is its own."""

    name: str
    levels: int = 1
    dtype: str = "fp32"
    close: float = 1e-5
    """Share of the largest number that an output may be off by."""

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}"


# Two levels to see scaling down and up; half precision where it meets full precision inside the UNet. Every
# layer of Stable Diffusion 2, and so of the embedded model, is in one of them: its linear projections and
# heads are SDXL's, its autoencoder is that of 1.5, and test_command.py has its text encoder.
CASES = (Case("sd15", levels=2), Case("sdxl", dtype="fp16", close=2e-3))
SHAPES = [(1, 8, 12), (3, 7, 5)]


@pytest.fixture(scope="module", params=CASES, ids=str)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    case: Case = request.param
    place = tmp_path_factory.mktemp("portable")
    source, folder = place / case.name, place / "onnx"
    write_folder(RandomWeights(shallow(case.name, case.levels), 1, DTYPES[case.dtype]), source)
    with redirect_stdout(io.StringIO()) as said:
        assert run(["engine", "export", str(source), str(folder), "--dtype", case.dtype]) == 0
    return Exported(source, folder, said.getvalue(), case.close)


def noise(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def tensors(inputs: dict[str, Array]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(values) for name, values in inputs.items()}


@pytest.mark.parametrize(("batch", "height", "width"), SHAPES)
@torch.inference_mode()
def test_unet(model: Exported, batch: int, height: int, width: int) -> None:
    unet = model.theirs.unet
    tokens = 40 * batch
    inputs = {
        "sample": noise(0, batch, 4, height, width),
        "timestep": np.array(987.5, np.float32),
        "encoder_hidden_states": noise(1, batch, tokens, unet.config.cross_attention_dim),
    }
    added = {}
    if unet.config.addition_embed_type == "text_time":
        summary = model.theirs.text_encoder_2.config.projection_dim
        added = {"text_embeds": noise(2, batch, summary), "time_ids": 500 + 500 * noise(3, batch, 6)}
    expected = unet(**tensors(inputs), added_cond_kwargs=tensors(added)).sample.numpy()
    assert farthest(model.run("unet", **inputs, **added)["out_sample"], expected) < model.close


@pytest.mark.parametrize(("batch", "height", "width"), SHAPES)
@torch.inference_mode()
def test_autoencoder(model: Exported, batch: int, height: int, width: int) -> None:
    vae = model.theirs.vae
    latents = noise(0, batch, 4, height, width)
    decoded = vae.decode(torch.from_numpy(latents)).sample.numpy()
    assert farthest(model.run("vae_decoder", latent_sample=latents)["sample"], decoded) < model.close
    pixels = noise(1, batch, 3, 4 * height, 4 * width)
    parameters = vae.encode(torch.from_numpy(pixels)).latent_dist.parameters.numpy()
    assert farthest(model.run("vae_encoder", sample=pixels)["latent_parameters"], parameters) < model.close


@pytest.mark.parametrize(("batch", "tokens"), [(1, 77), (3, 20)])
@torch.inference_mode()
def test_text_encoders(model: Exported, batch: int, tokens: int) -> None:
    for name in ("text_encoder", "text_encoder_2"):
        encoder = getattr(model.theirs, name, None)
        if encoder is None:
            continue
        ids = np.random.default_rng(0).integers(512, size=(batch, tokens))
        expected = encoder(torch.from_numpy(ids), output_hidden_states=True)
        found = model.run(name, input_ids=ids)
        states = [found.pop(f"hidden_states.{layer}") for layer in range(len(expected.hidden_states))]
        for ours, theirs in zip(states, expected.hidden_states, strict=True):
            assert farthest(ours, theirs.numpy()) < model.close
        assert set(found) < set(expected)
        assert all(
            farthest(values, expected[output].numpy()) < model.close for output, values in found.items()
        )


def test_a_whole_picture(model: Exported) -> None:
    """Two pictures that are not square, from the exported folder alone, are diffusers' own."""
    pipeline, steps, cfg = model.theirs, 4, 5.0
    settings: dict[str, Any] = {"timestep_spacing": "leading", "steps_offset": 1}
    settings |= {"set_alpha_to_one": True, "clip_sample": False}
    pipeline.scheduler = diffusers.DDIMScheduler.from_config(pipeline.scheduler.config, **settings)
    latents = noise(7, 2, 4, 16, 24)
    expected = pipeline(
        "a red apple",
        negative_prompt="grey",
        num_inference_steps=steps,
        guidance_scale=cfg,
        num_images_per_prompt=2,
        height=16 * pipeline.vae_scale_factor,
        width=24 * pipeline.vae_scale_factor,
        latents=torch.from_numpy(latents),
        output_type="np",
    ).images
    found = picture(model, "a red apple", "grey", latents, steps=steps, cfg=cfg)
    right = farthest(found, expected)
    assert right < 5 * model.close
    other = picture(model, "a dog", "grey", latents, steps=steps, cfg=cfg)
    assert farthest(other, expected) > 5 * right


def test_what_the_folder_holds(model: Exported) -> None:
    source = {str(path.relative_to(model.source)) for path in model.source.rglob("*.json")}
    source -= {"vae/config.json"}
    found = {str(path.relative_to(model.folder)) for path in model.folder.rglob("*") if path.is_file()}
    parts = {path.parent.name for path in model.folder.glob("*/model.onnx")}
    encoders = {part for part in ("text_encoder", "text_encoder_2") if (model.source / part).is_dir()}
    assert parts == {*encoders, "unet", "vae_decoder", "vae_encoder"}
    assert source | {f"{part}/config.json" for part in parts} <= found
    for name in source:
        there, here = (json.loads((place / name).read_text()) for place in (model.source, model.folder))
        assert there == here
    assert not [name for name in found if name.endswith(".safetensors")]


def test_what_the_command_says(model: Exported) -> None:
    lines = model.said.splitlines()
    parts = {path.parent.name for path in model.folder.glob("*/model.onnx")}
    assert {line.partition(":")[0] for line in lines[:-1]} == parts
    assert all("differs from torch by at most" in line for line in lines[:-1])
    assert lines[-1] == f"wrote {model.folder}"


def test_half_precision_is_where_it_does_no_harm(model: Exported) -> None:
    """Not in SDXL's autoencoder, which overflows, nor in timesteps and sizes."""
    halves = {
        (file.parent.name, value.name)
        for file in model.folder.glob("*/model.onnx")
        for value in onnxruntime.InferenceSession(str(file)).get_inputs()
        if value.type == "tensor(float16)"
    }
    expected = {("unet", name) for name in ("sample", "encoder_hidden_states", "text_embeds")}
    assert halves == (expected if (model.folder / "text_encoder_2").is_dir() else set())


def test_files_name_their_axes_and_nobodys_paths(model: Exported) -> None:
    session = onnxruntime.InferenceSession(str(model.folder / "unet" / "model.onnx"))
    shapes = {value.name: value.shape for value in (*session.get_inputs(), *session.get_outputs())}
    assert shapes["sample"] == shapes["out_sample"] == ["batch_size", 4, "height", "width"]
    assert shapes["encoder_hidden_states"][:2] == ["batch_size", "sequence_length"]
    assert shapes["timestep"] == []
    for file in model.folder.glob("*/model.onnx"):
        onnx.checker.check_model(str(file))
        assert str(Path(torch.__file__).parents[2]).encode() not in file.read_bytes()


def test_the_refiner_reads_five_numbers_and_its_own_summary() -> None:
    architecture = shallow("sdxl-refiner")
    _, kind = kinds(architecture)["unet"]
    unet = kind(diffusers.UNet2DConditionModel.from_config(architecture.unet))
    given = unet.example(Sizes(2, 8, 8, 7), torch.Generator().manual_seed(0))
    assert given["time_ids"].shape == (2, 5)
    assert given["text_embeds"].shape == (2, architecture.text_encoders[-1]["projection_dim"])
    assert unet(**given).shape == given["sample"].shape
