"""Whose modules `load` makes a model of, and what a process imports until it has a picture."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPTextModel

from calotype.core.errors import NotFoundError
from calotype.engine import load as loading
from calotype.engine.compile.region import Region
from calotype.engine.engine import Engine
from calotype.engine.load import load, load_model_for_preset
from calotype.models.model import Model
from calotype.models.save import write_folder
from calotype.models.skeleton.fallback import Skeleton
from calotype.models.weights import RandomWeights
from tests.engines import difference, with_unet
from tests.small_models import shrunk, shrunk_folder
from tests.unit.models.lora_files import layers_of, random_updates, write_kohya

OURS = "passes:own_forward+channels_last+joined_qkv+prompts_once+times_once+own_decoder"
"""Our forward passes, and nothing that is compiled behind them."""
ASKED: dict[str, Any] = {"width": 32, "height": 32, "steps": 2, "seed": 3}
HEAVY = (
    *("accelerate", "botocore", "diffusers", "huggingface_hub", "pandas", "peft", "requests", "scipy"),
    *("sklearn", "sympy", "torch._dynamo", "torch._inductor", "torchvision", "transformers", "triton"),
)
PICTURES = f"""
import sys
from PIL import Image
from calotype.engine.load import load

engine = load("emoji", preset="fast", device="cpu")
asked = dict(width=64, height=64, steps=2, seed=1)
engine.generate("a (red:1.2) apple", on_step=lambda step: step.preview(), **asked)
engine.generate("a red apple", image=Image.new("RGB", (64, 64), "red"), strength=0.5, **asked)
found = [name for name in {HEAVY!r} if name in sys.modules]
sys.exit(f"imported for a picture: {{found}}" if found else 0)
"""


def test_a_first_picture_waits_for_no_library_that_it_does_not_use(tmp_path: Path) -> None:
    """They take several times as long to import as the picture takes. Neither it, nor its preview, nor one
    from another picture needs any of them where the forward passes are ours."""
    environment = {**os.environ, "CALOTYPE_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PICTURES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, and a LoRA for both parts, a learned word and a separate autoencoder for the first."""
    place = tmp_path_factory.mktemp("models")
    for name in ("sd15", "sdxl"):
        shrunk_folder(place, name)
    for kind in ("loras", "embeddings", "vae"):
        (place / kind).mkdir()
    sd15 = shrunk("sd15")
    updates = random_updates(sd15, layers_of(sd15, ["unet", "text_encoder"])[::3], 1)
    write_kohya(place / "loras" / "style.safetensors", updates, 2.0, one_encoder=True)
    save_file({"emb_params": torch.randn(2, 32)}, place / "embeddings" / "shiny.safetensors")
    weights = RandomWeights(sd15, seed=9)
    vae = {name: weights.read("vae", name) for name in weights.specs("vae")}
    save_file(vae, place / "vae" / "warm.safetensors")
    return place


def _pair(folder: Path, name: str) -> tuple[Engine, Engine]:
    """The same engine on outlines and on the libraries' modules."""
    how: dict[str, Any] = {"device": "cpu", "precision": "fp32", "preset": OURS, "models_folder": folder}
    model = str(folder / f"{name}-0")
    return load(model, **how), load(model, outlined=False, **how)


def test_where_the_forward_passes_are_ours_the_modules_are_too(folder: Path) -> None:
    ours, theirs = _pair(folder, "sd15")
    assert ours.model.outlined
    assert isinstance(ours.model.unet, Skeleton)
    assert isinstance(ours.model.vae, Skeleton)
    plain = load(str(folder / "sd15-0"), device="cpu", precision="fp32", preset="passes:own_forward")
    for model in (theirs.model, plain.model):
        assert not model.outlined
        assert isinstance(model.unet, UNet2DConditionModel)
        assert isinstance(model.vae, AutoencoderKL)
        assert isinstance(model.text_encoders[0], CLIPTextModel)


def test_a_preset_that_nobody_named_is_fast_where_the_model_can_be_run_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(str(folder / "sd15-0"), device="cpu").preset == "fast"
    unusual = with_unet(shrunk("sd15"), act_fn="gelu")
    write_folder(RandomWeights(unusual), tmp_path / "unusual")
    with pytest.raises(NotFoundError, match="its UNet has an activation other than SiLU"):
        load(str(tmp_path / "unusual"), device="cpu", preset="fast")
    alive: WeakSet[Any] = WeakSet()

    def counted(*given: Any, **how: Any) -> Model:
        # A device may have no room for two.
        gc.collect()
        assert not alive
        live = load_model_for_preset(*given, **how)
        alive.add(live.unet)
        return live

    monkeypatch.setattr(loading, "load_model_for_preset", counted)
    plainly = load(str(tmp_path / "unusual"), device="cpu")
    assert plainly.preset == "baseline"
    assert isinstance(plainly.model.unet, UNet2DConditionModel)
    assert plainly.generate("an apple", **ASKED).images[0].size == (32, 32)


def test_pictures_are_the_same_whoever_built_the_modules(folder: Path) -> None:
    """With all that a request may bring along."""
    ours, theirs = _pair(folder, "sd15")
    picture = Image.effect_noise((32, 32), 80).convert("RGB")
    brought: list[tuple[str, dict[str, Any]]] = [
        ("a (red:1.4) apple, " * 30, {"negative_prompt": "blue"}),
        ("an embedding:shiny apple", {"clip_skip": 1}),
        ("an apple", {"loras": [{"name": "style.safetensors", "strength": 0.8}]}),
        ("an apple", {"vae": "warm.safetensors", "image": picture, "strength": 0.8}),
    ]
    for prompt, knobs in brought:
        made = [engine.generate(prompt, **ASKED, **knobs).images[0] for engine in (ours, theirs)]
        assert difference(*made) == 0, knobs
    assert isinstance(ours.model.vae, Skeleton)


def test_sdxl_too(folder: Path) -> None:
    made = [engine.generate("an apple", **ASKED).images[0] for engine in _pair(folder, "sdxl")]
    assert difference(*made) == 0


def test_an_engine_that_was_built_on_one_kind_of_module_serves_the_other() -> None:
    """What identifies compiled code is in the layers, not in who built them."""
    small = shrunk("sd15")
    signatures = set()
    for unet in (small.outline("unet"), small.build("unet")):
        block = unet.get_submodule("down_blocks.0.attentions.0.transformer_blocks.0")
        signatures.add(Region("here", block, print).signature((None,)))
        block.get_submodule("norm1").__dict__["eps"] = 1e-3
        signatures.add(Region("here", block, print).signature((None,)))
    assert len(signatures) == 2
