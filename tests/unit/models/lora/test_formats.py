"""A LoRA in each dialect gives what diffusers' own loader, or peft itself, gives with the same file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers import DiffusionPipeline
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.architecture import Architecture
from calotype.models.lora import LoraMerger, read_adapter
from calotype.models.lora.merge import Use
from calotype.models.model import Model, load_model
from calotype.models.resolve import random_identity
from calotype.models.weights import RandomWeights
from tests.small_models import shrunk
from tests.unit.models.conftest import FolderOf
from tests.unit.models.lora_files import (
    TODAY,
    Update,
    layers_of,
    random_updates,
    write_attention_processors,
    write_comfyui,
    write_diffusers,
    write_kohya,
)

# The middle of SDXL's ten equal blocks, for time; and the layer whose updates diffusers loses when kohya
# wrote them, because it reads the 1 and 2 of its name as a block's number.
LEFT_OUT = re.compile(r"transformer_blocks\.[3-8]\.|^add_embedding")
ATTENTION = (".attn1.", ".attn2.", ".self_attn.")
HALVES = ("down", "up")
LAYER_OF_TEXT = "text_model.encoder.layers.0.mlp.fc1"
Write = Callable[[Path, Sequence[Update], Architecture], Path]


@pytest.fixture(autouse=True)
def quiet() -> None:
    diffusers.utils.logging.disable_progress_bar()


def live(name: str) -> Model:
    """Our own model with the weights of `folder_of(name)`."""
    architecture = shrunk(name)
    identity = random_identity("random", architecture, 0)
    return load_model(RandomWeights(architecture), identity, dtype=torch.float32, device=torch.device("cpu"))


def pipeline_of(folder: Path) -> Any:
    return DiffusionPipeline.from_pretrained(folder, local_files_only=True)


@torch.no_grad()
def outputs(architecture: Architecture, unet: Any, text_encoders: Iterable[Any]) -> list[Tensor]:
    """What the UNet and each text encoder make of fixed inputs."""
    numbers = torch.Generator().manual_seed(0)
    sample = torch.randn(2, 4, 8, 8, generator=numbers)
    context = torch.randn(2, 77, architecture.unet["cross_attention_dim"], generator=numbers)
    added = None
    if architecture.family == "sdxl":
        pooled = torch.randn(2, architecture.text_encoders[1]["projection_dim"], generator=numbers)
        added = {"text_embeds": pooled, "time_ids": 64 * torch.rand(2, 6, generator=numbers)}
    times = torch.tensor([3.0, 700.0])
    made = [unet(sample, times, encoder_hidden_states=context, added_cond_kwargs=added).sample]
    for config, encoder in zip(architecture.text_encoders, text_encoders, strict=True):
        ids = torch.randint(0, config["vocab_size"] - 2, (2, 77), generator=numbers)
        ids[:, 40] = config["vocab_size"] - 1
        encoded = encoder(input_ids=ids, output_hidden_states=True)
        made += [encoded.hidden_states[-1], *([encoded.text_embeds] if "text_embeds" in encoded else [])]
    return made


def model_outputs(model: Model) -> list[Tensor]:
    return outputs(model.architecture, model.unet, model.text_encoders)


def pipeline_outputs(architecture: Architecture, pipeline: Any) -> list[Tensor]:
    parts = [part for part in architecture.parts() if part.startswith("text_encoder")]
    return outputs(architecture, pipeline.unet, [getattr(pipeline, part) for part in parts])


def our_outputs(name: str, uses: Sequence[Use]) -> list[Tensor]:
    model = live(name)
    LoraMerger(model.parts()).use(uses)
    return model_outputs(model)


def assert_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def assert_far(found: Sequence[Tensor], other: Sequence[Tensor]) -> None:
    """Every output was changed, and by much more than the tolerance above."""
    for one, another in zip(found, other, strict=True):
        assert (one - another).abs().max() > 1e-2


def _kohya(alpha: float | None) -> Write:
    return lambda path, updates, a: write_kohya(path, updates, alpha, one_encoder=len(a.text_encoders) == 1)


def _kohya_original(path: Path, updates: Sequence[Update], architecture: Architecture) -> Path:
    return write_kohya(path, updates, 2.0, original=architecture)


def _kohya_linear_where_convolution(
    path: Path, updates: Sequence[Update], architecture: Architecture
) -> Path:
    """1×1 convolutions written as matrices, as trainers do that treat them so."""
    write_kohya(path, updates, 2.0, one_encoder=True)
    tensors = load_file(path)
    flat = {k: t.flatten(1) if t.dim() == 4 and t.shape[2:] == (1, 1) else t for k, t in tensors.items()}
    save_file({k: t.contiguous() for k, t in flat.items()}, path)
    return path


def _old_diffusers(path: Path, updates: Sequence[Update], _: Architecture) -> Path:
    return write_attention_processors(
        path, [u for u in updates if any(mark in u.layer for mark in ATTENTION)]
    )


def _diffusers(late_2023: bool) -> Write:
    return lambda path, updates, _: write_diffusers(path, updates, late_2023=late_2023)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        pytest.param("sd15", _kohya(2.0), id="sd15-kohya"),
        pytest.param("sd15", _kohya(None), id="sd15-kohya-without-alpha"),
        pytest.param("sd15", _diffusers(False), id="sd15-diffusers"),
        pytest.param("sd15", _diffusers(True), id="sd15-diffusers-2023"),
        pytest.param("sd15", _old_diffusers, id="sd15-attention-processors"),
        pytest.param("sd2-base", _kohya(2.0), id="sd2-kohya"),
        pytest.param("sd2-base", _diffusers(False), id="sd2-diffusers"),
        pytest.param("sdxl", _kohya(2.0), id="sdxl-kohya"),
        pytest.param("sdxl", _kohya_original, id="sdxl-kohya-original-names"),
        pytest.param("sdxl", _diffusers(False), id="sdxl-diffusers"),
    ],
)
def test_same_as_diffusers_loader(name: str, write: Write, folder_of: FolderOf, tmp_path: Path) -> None:
    """Every kind of linear and convolution layer of the UNet and all text encoders has an update."""
    architecture = shrunk(name)
    parts = [part for part in architecture.parts() if part != "vae"]
    layers = [pair for pair in layers_of(architecture, parts) if not LEFT_OUT.search(pair[1])]
    file = write(tmp_path / "lora.safetensors", random_updates(architecture, layers, seed=1), architecture)
    pipeline = pipeline_of(folder_of(name))
    before = pipeline_outputs(architecture, pipeline)
    pipeline.load_lora_weights(file)
    expected = pipeline_outputs(architecture, pipeline)
    assert_far(expected, before)
    assert_close(our_outputs(name, [(read_adapter(file, architecture), 1.0, 1.0)]), expected)


@pytest.mark.parametrize("name", ["sd15", "sd2-base", "sdxl"])
@pytest.mark.parametrize("ending", [(".lora_down.weight", ".lora_up.weight"), TODAY])
def test_as_comfyui_saves_it_and_as_kohya_does(name: str, ending: tuple[str, str], tmp_path: Path) -> None:
    """Every layer has an update, and each is read as the same one."""
    architecture = shrunk(name)
    layers = layers_of(architecture, [part for part in architecture.parts() if part != "vae"])
    updates = random_updates(architecture, layers, seed=1)
    one = read_adapter(write_kohya(tmp_path / "kohya.safetensors", updates, None), architecture)
    file = write_comfyui(tmp_path / "comfyui.safetensors", updates, architecture, ending=ending)
    other = read_adapter(file, architecture)
    assert one.layers.keys() == other.layers.keys() == set(layers)
    for target, update in one.layers.items():
        found = other.layers[target]
        assert torch.equal(update.down, found.down)
        assert torch.equal(update.up, found.up)
        assert update.alpha == found.alpha


def test_what_comfyui_saves_of_layers_that_did_not_change(tmp_path: Path) -> None:
    architecture = shrunk("sd15")
    updates = random_updates(architecture, [("text_encoder", LAYER_OF_TEXT)], seed=1)
    file = write_comfyui(tmp_path / "lora.safetensors", updates, architecture)
    table = "text_encoders.clip_l.transformer.text_model.embeddings.token_embedding"
    unused = "text_encoders.clip_l.transformer.text_projection"
    zeros = {f"{name}.lora_{half}.weight": torch.zeros(4, 4) for name in (table, unused) for half in HALVES}
    tensors = load_file(file) | zeros
    save_file(tensors, file)
    assert set(read_adapter(file, architecture).layers) == {("text_encoder", LAYER_OF_TEXT)}
    save_file(tensors | {f"{table}.lora_up.weight": torch.ones(4, 4)}, file)
    with pytest.raises(ModelFileError, match=r"token_embedding\.lora_up.weight' names no layer"):
        read_adapter(file, architecture)


def test_added_embedding_is_updated(tmp_path: Path) -> None:
    """The layer that diffusers loses, by the definition: W + alpha / rank · up · down."""
    architecture = shrunk("sdxl")
    (update,) = random_updates(architecture, [("unet", "add_embedding.linear_1")], seed=1)
    file = write_kohya(tmp_path / "lora.safetensors", [update], 2.0)
    model = live("sdxl")
    before = model.unet.add_embedding.linear_1.weight.clone()
    LoraMerger(model.parts()).use([(read_adapter(file, architecture), 1.0, 1.0)])
    expected = before + 0.5 * update.up @ update.down
    torch.testing.assert_close(model.unet.add_embedding.linear_1.weight, expected, rtol=1e-5, atol=1e-6)


def test_pointwise_convolution_may_be_written_as_a_matrix(tmp_path: Path) -> None:
    architecture = shrunk("sd15")
    layers = [
        pair for pair in layers_of(architecture, ["unet"]) if pair[1].endswith(("proj_in", "conv_shortcut"))
    ]
    updates = random_updates(architecture, layers, seed=1)
    one = _kohya(2.0)(tmp_path / "one.safetensors", updates, architecture)
    other = _kohya_linear_where_convolution(tmp_path / "other.safetensors", updates, architecture)
    first = our_outputs("sd15", [(read_adapter(one, architecture), 1.0, 1.0)])
    second = our_outputs("sd15", [(read_adapter(other, architecture), 1.0, 1.0)])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_tucker_core_of_a_convolution(tmp_path: Path) -> None:
    """Three convolutions one after the other are one: compared on an input, not on the weight."""
    architecture = shrunk("sd15")
    layer = "down_blocks.0.resnets.0.conv1"
    numbers = torch.Generator().manual_seed(0)
    down, core, up = (
        torch.randn(shape, generator=numbers) for shape in ((4, 32, 1, 1), (4, 4, 3, 3), (32, 4, 1, 1))
    )
    key = f"lora_unet_{layer.replace('.', '_')}"
    tensors = {
        "lora_down.weight": down,
        "lora_mid.weight": core,
        "lora_up.weight": up,
        "alpha": torch.tensor(2.0),
    }
    save_file({f"{key}.{name}": tensor for name, tensor in tensors.items()}, tmp_path / "lora.safetensors")
    model = live("sd15")
    convolution = model.unet.down_blocks[0].resnets[0].conv1
    x = torch.randn(1, 32, 8, 8, generator=numbers)
    conv2d = torch.nn.functional.conv2d
    expected = convolution(x) + 0.5 * conv2d(conv2d(conv2d(x, down), core, padding=1), up)
    LoraMerger(model.parts()).use([(read_adapter(tmp_path / "lora.safetensors", architecture), 1.0, 1.0)])
    torch.testing.assert_close(convolution(x), expected, rtol=1e-4, atol=1e-4)


TARGETS = ["to_q", "to_k", "to_v", "to_out.0", "proj_in", "conv1", "conv_shortcut", "ff.net.2"]
PEFT = {"r": 4, "lora_alpha": 6, "init_lora_weights": False}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="plain"),
        pytest.param({"use_rslora": True}, id="rank-stabilised"),
        pytest.param({"rank_pattern": {"to_k": 2}, "alpha_pattern": {"attn2.to_k": 1.5}}, id="patterns"),
    ],
)
def test_peft_folder_same_as_peft(settings: dict[str, Any], folder_of: FolderOf, tmp_path: Path) -> None:
    architecture = shrunk("sd15")
    pipeline = pipeline_of(folder_of("sd15"))
    before = pipeline_outputs(architecture, pipeline)
    torch.manual_seed(0)
    adapted = get_peft_model(pipeline.unet, LoraConfig(target_modules=TARGETS, **PEFT, **settings))
    _tame(adapted)
    adapted.save_pretrained(tmp_path / "adapter")
    expected = outputs(architecture, adapted, [pipeline.text_encoder])
    assert (expected[0] - before[0]).abs().max() > 1e-2
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    for path in (tmp_path / "adapter", tmp_path / "adapter" / "adapter_model.safetensors"):
        assert_close(our_outputs("sd15", [(read_adapter(path, architecture), 1.0, 1.0)]), expected)


@pytest.mark.parametrize("part", ["text_encoder", "text_encoder_2"])
def test_peft_folder_of_a_text_encoder(part: str, folder_of: FolderOf, tmp_path: Path) -> None:
    architecture = shrunk("sdxl")
    pipeline = pipeline_of(folder_of("sdxl"))
    torch.manual_seed(0)
    config = LoraConfig(target_modules=["q_proj", "fc1"], **PEFT)
    adapted = get_peft_model(getattr(pipeline, part), config)
    _tame(adapted)
    adapted.save_pretrained(tmp_path / "adapter")
    setattr(pipeline, part, adapted)
    expected = pipeline_outputs(architecture, pipeline)
    adapter = read_adapter(tmp_path / "adapter", architecture)
    assert {target[0] for target in adapter.layers} == {part}
    assert_close(our_outputs("sdxl", [(adapter, 1.0, 1.0)]), expected)


def test_alpha_in_the_metadata_that_diffusers_leaves(folder_of: FolderOf, tmp_path: Path) -> None:
    """Today's diffusers keeps the alphas of each part as a note in the file."""
    architecture = shrunk("sd15")
    pipeline = pipeline_of(folder_of("sd15"))
    torch.manual_seed(0)
    unet = LoraConfig(target_modules=["to_q", "to_k"], **PEFT)
    text = LoraConfig(target_modules=["q_proj"], r=2, lora_alpha=5, init_lora_weights=False)
    pipeline.unet.add_adapter(unet)
    pipeline.text_encoder.add_adapter(text)
    pipeline.save_lora_weights(
        tmp_path,
        unet_lora_layers=get_peft_model_state_dict(pipeline.unet),
        text_encoder_lora_layers=get_peft_model_state_dict(pipeline.text_encoder, adapter_name="default"),
        unet_lora_adapter_metadata=unet.to_dict(),
        text_encoder_lora_adapter_metadata=text.to_dict(),
    )
    (file,) = tmp_path.glob("*.safetensors")
    fresh = pipeline_of(folder_of("sd15"))
    fresh.load_lora_weights(file)
    expected = pipeline_outputs(architecture, fresh)
    assert_close(our_outputs("sd15", [(read_adapter(file, architecture), 1.0, 1.0)]), expected)


def _tame(adapted: torch.nn.Module) -> None:
    """peft's random start is large enough to make a deep network explode, and rounding with it."""
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.mul_(0.3)
