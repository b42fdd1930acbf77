"""INT8 with scales known beforehand: what is calibrated, kept and refused, and how near its products are."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from calotype.bench.quality.image_metrics import psnr
from calotype.core.errors import CalotypeError, ExitCode, NotFoundError
from calotype.engine.engine import Engine
from calotype.engine.kernels.layer_norm import layer_norm_quantized
from calotype.engine.load import load
from calotype.engine.modules.int8_linear import Int8Linear
from calotype.engine.passes import int8_static
from calotype.engine.passes.int8_static import Fixed
from calotype.engine.quantization import calibration_data
from calotype.engine.quantization.calibrate import calibrate
from tests.engines import latents_of, relative, small_engine
from tests.unit.cli.conftest import Calotype, calotype

__all__ = ["calotype"]

SIZE: dict[str, Any] = {"width": 64, "height": 64, "steps": 2}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def calibrated(engine: Engine) -> Path:
    return calibrate(engine.model, prompts=["a cat", "a red apple"], steps=2, size=64)


class TestProducts:
    """One norm and the layer that reads it, against the same in fp32."""

    @staticmethod
    def error(*, evened: bool) -> float:
        generator = torch.Generator().manual_seed(0)
        norm, reader = nn.LayerNorm(64), nn.Linear(64, 48, bias=False).requires_grad_(requires_grad=False)
        with torch.no_grad():
            norm.weight[5] = 60.0  # the channel that would set a scale for all others
            norm.bias.normal_(generator=generator)
            reader.weight.normal_(generator=generator)
            reader.weight[:, 5] /= 60
        x = torch.randn(3, 40, 64, generator=generator)
        normal = norm(x).detach()
        largest = normal.flatten(0, 1).abs().amax(0)
        known = int8_static.fixed_scales(norm, [reader], largest)
        if not evened:
            plain = (norm.weight.detach(), norm.bias.detach())
            known = Fixed(norm, torch.ones(64), float(largest.max()) / 127, *plain)
        made = layer_norm_quantized(x, known.weight, known.bias, norm.eps, "int8", scale=known.scale)
        product = Int8Linear("int8", torch.float32, [(reader, known.divisors)])
        return relative(product(made, reader.weight, None), linear(normal, reader.weight))

    def test_a_large_channel_costs_the_others_nothing(self) -> None:
        assert self.error(evened=True) < 0.02
        assert self.error(evened=False) > 0.1


def test_what_is_kept_is_what_the_norms_write() -> None:
    engine = small_engine("emoji")
    seen: dict[str, Tensor] = {}

    def look(name: str, normal: Tensor) -> None:
        largest = normal.flatten(0, 1).abs().amax(0)
        seen[name] = largest.maximum(seen.get(name, largest))

    for name, norm, _ in calibration_data.norms_of(engine.model.unet):
        norm.register_forward_hook(lambda _, __, out, name=name: look(name, out))
    for seed, prompt in enumerate(["a cat", "a red apple"]):
        engine.generate(prompt, seed=seed, **SIZE)
    other = small_engine("emoji")
    calibrated(other)
    found = calibration_data.load_ranges(other.model)
    assert set(found) == set(seen)
    assert len(found) % 3 == 0
    for name, largest in seen.items():
        assert torch.allclose(found[name], largest, rtol=1e-3, atol=1e-4), name


def test_the_preset_wants_a_calibration_of_these_weights() -> None:
    engine = small_engine("emoji")
    with pytest.raises(
        NotFoundError, match="has not been calibrated; run `calotype engine calibrate random:"
    ):
        Engine(engine.model, preset="int8-static")
    place = calibrated(engine)
    Engine(engine.model, preset="int8-static")
    other = replace(engine.model, identity=engine.model.identity.model_copy(update={"sha256": "0" * 64}))
    with pytest.raises(NotFoundError, match="has not been calibrated"):
        Engine(other, preset="int8-static")
    shutil.copy(place, calibration_data.calibration_file(other))
    with pytest.raises(CalotypeError, match="belongs to other weights than"):
        Engine(other, preset="int8-static")
    place.write_bytes(place.read_bytes()[:100])
    with pytest.raises(CalotypeError, match="cannot be read"):
        Engine(engine.model, preset="int8-static")


def test_a_calibration_that_does_not_fit_is_refused() -> None:
    model = small_engine("emoji").model
    calibration_data.save_ranges(model, {"norm": torch.ones(3)}, {})
    with pytest.raises(CalotypeError, match="does not fit the norms of"):
        calibration_data.load_ranges(model)


def test_the_latents_come_near_and_follow_a_lora(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    engine = small_engine("sdxl", models_folder=tmp_path)
    layer = "mid_block.attentions.0.transformer_blocks.0.ff.net.0.proj"
    out, inputs = engine.model.unet.get_submodule(layer).weight.shape
    generator = torch.Generator().manual_seed(1)
    (tmp_path / "loras").mkdir()
    tensors = {
        f"unet.{layer}.lora_A.weight": torch.randn(2, inputs, generator=generator),
        f"unet.{layer}.lora_B.weight": torch.randn(out, 2, generator=generator),
    }
    save_file(tensors, tmp_path / "loras" / "one.safetensors")
    calibrated(engine)
    knobs = {**SIZE, "cfg": 1.0}
    asked: list[dict[str, Any]] = [knobs, {**knobs, "loras": [{"name": "one"}]}]
    exact = [latents_of(engine, **each) for each in asked]
    static = small_engine("sdxl", preset="int8-static", models_folder=tmp_path)
    apart = relative(exact[0], exact[1])
    for each, wanted in zip((*asked, *asked), (*exact, *exact), strict=True):
        away = relative(latents_of(static, **each), wanted)
        assert 1e-5 < away < min(0.1, apart / 3)


def test_a_picture_of_the_embedded_model_comes_near() -> None:
    """One of which a little does not make another; docs/log.md has sixteen, and how many are not so."""
    prompt = "a red heart, twemoji style, on a white background"
    model = load("emoji", device="cpu", precision="fp32").model
    calibrate(model, prompts=[prompt], steps=4)
    engines = [Engine(model, preset=preset) for preset in ("low-memory", "int8-static")]
    pictures = [engine.generate(prompt, steps=4, seed=0).images[0] for engine in engines]
    pixels = [torch.frombuffer(bytearray(each.tobytes()), dtype=torch.uint8)[None] for each in pictures]
    assert 30 < float(psnr(*pixels)) < 70


class TestCommand:
    def test_calibrates(self, calotype: Calotype, tmp_path: Path) -> None:
        prompts = tmp_path / "prompts.txt"
        prompts.write_text("a cat\n\na dog\n")
        arguments = ("engine", "calibrate", "emoji", "--device", "cpu", "--steps", 1, "--size", 64)
        seen = calotype(*arguments, "--prompts", prompts)
        assert seen.code == ExitCode.OK, seen.err
        assert "calibrated with 2 images of 1 steps: " in seen.out
        assert Path(seen.out.split(": ", 1)[1].strip()).is_file()

    def test_wants_prompts(self, calotype: Calotype, tmp_path: Path) -> None:
        prompts = tmp_path / "prompts.txt"
        prompts.write_text("\n")
        for file, rule in ((prompts, "holds no prompt"), (tmp_path / "none.txt", "cannot be read")):
            seen = calotype("engine", "calibrate", "emoji", "--prompts", file)
            assert seen.code == ExitCode.BAD_REQUEST
            assert rule in seen.err
