"""LoRAs and separate VAEs named in a request: applied, switched, removed without a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from calotype.core.errors import ModelFileError, NotFoundError, RequestError
from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs
from calotype.models.save import write_vae_folder
from calotype.models.weights import RandomWeights
from tests.engines import begun, difference, latents_of, relative, small_engine, to_the_end
from tests.small_models import shrunk

SIZE: dict[str, Any] = {"width": 32, "height": 32, "steps": 2}


def lora(seed: int, layers: list[str]) -> dict[str, Tensor]:
    """A rank-2 LoRA in peft's naming, strong enough to be seen."""
    shapes = {
        f"{part}.{name}".removesuffix(".weight"): shape
        for part in ("unet", "text_encoder")
        for name, shape in shrunk("emoji").tensor_shapes(part).items()
    }
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in layers:
        out, inputs = shapes[layer][0], shapes[layer][1]
        tensors[f"{layer}.lora_A.weight"] = torch.randn(2, inputs, generator=generator) * 0.5
        tensors[f"{layer}.lora_B.weight"] = torch.randn(out, 2, generator=generator) * 0.5
    return tensors


UNET = [
    "unet.mid_block.attentions.0.transformer_blocks.0.attn2.to_v",
    "unet.mid_block.resnets.0.time_emb_proj",
]
TEXT = ["text_encoder.text_model.encoder.layers.0.mlp.fc1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for kind in ("loras", "vae"):
        (place / kind).mkdir()
    save_file(lora(1, UNET), place / "loras" / "one.safetensors")
    save_file(lora(2, UNET), place / "loras" / "two.safetensors")
    save_file(lora(3, TEXT), place / "loras" / "words.safetensors")
    save_file({"x.lora_A.weight": torch.ones(1, 1)}, place / "loras" / "foreign.safetensors")
    weights = RandomWeights(shrunk("emoji"), seed=9)
    vae = {name: weights.read("vae", name) for name in weights.specs("vae")}
    save_file(vae, place / "vae" / "warm.safetensors")
    save_file(lora(1, UNET), place / "outside.safetensors")
    (place / "loras" / "link.safetensors").symlink_to(place / "outside.safetensors")
    return place


@pytest.fixture(scope="module")
def own(folder: Path) -> Engine:
    """An engine of this module alone: its weights are changed here."""
    return small_engine("emoji", models_folder=folder)


def weights_of(engine: Engine) -> dict[str, Tensor]:
    return {
        f"{part}.{name}": value.clone()
        for part, module in engine.model.parts().items()
        for name, value in module.state_dict().items()
    }


def test_applied_switched_and_removed_without_a_trace(own: Engine) -> None:
    before, base = weights_of(own), own.generate("an apple", **SIZE).images[0]
    one = own.generate("an apple", **SIZE, loras=[{"name": "one"}]).images[0]
    two = own.generate("an apple", **SIZE, loras=[{"name": "two.safetensors"}]).images[0]
    again = own.generate("an apple", **SIZE, loras=[{"name": "one"}]).images[0]
    assert difference(one, base) > 3
    assert difference(two, one) > 3
    assert difference(again, one) == 0
    assert difference(own.generate("an apple", **SIZE).images[0], base) == 0
    after = weights_of(own)
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_strength_scales_and_zero_is_nothing(own: Engine) -> None:
    base = latents_of(own, **SIZE)
    half, whole, none = (
        latents_of(own, **SIZE, loras=[{"name": "one", "strength": strength}]) for strength in (0.5, 1.0, 0.0)
    )
    assert torch.equal(none, base)
    assert 0 < relative(half, base) < relative(whole, base)


def test_several_add_up_in_any_order(own: Engine) -> None:
    both = [{"name": "one"}, {"name": "two", "strength": -0.5}]
    forwards, backwards = (latents_of(own, **SIZE, loras=loras) for loras in (both, both[::-1]))
    assert relative(forwards, backwards) < 1e-4
    assert relative(forwards, latents_of(own, **SIZE, loras=both[:1])) > 1e-3


def test_one_for_the_words_alone_makes_the_prompt_heard_anew(own: Engine) -> None:
    """The prompt was encoded before the LoRA came; remembering that would leave the LoRA without effect."""
    base = latents_of(own, **SIZE, prompt="an apple")
    assert relative(latents_of(own, **SIZE, prompt="an apple", loras=[{"name": "words"}]), base) > 1e-3
    silent = [{"name": "words", "text_strength": 0.0}]
    assert torch.equal(latents_of(own, **SIZE, prompt="an apple", loras=silent), base)
    assert torch.equal(latents_of(own, **SIZE, prompt="an apple"), base)


def test_runs_with_different_loras_keep_their_own(own: Engine) -> None:
    knobs = [{**SIZE, "loras": [{"name": "one"}]}, {**SIZE, "loras": [{"name": "two"}]}, SIZE]
    alone = [latents_of(own, **one) for one in knobs]
    runs = [begun(own, one)[0] for one in knobs]
    with pytest.raises(ValueError, match="runs with different LoRAs cannot share an evaluation"):
        own.step(runs)
    for run in runs:
        own.step([run])
    for run, expected in zip(runs, alone, strict=True):
        assert torch.equal(to_the_end(own, run), expected)


def test_a_separate_vae_is_used_and_put_away(own: Engine) -> None:
    base = own.generate("an apple", **SIZE).images[0]
    other = own.generate("an apple", **SIZE, vae="warm")
    assert difference(other.images[0], base) > 10
    assert difference(own.generate("an apple", **SIZE).images[0], base) == 0
    assert other.records[0].request["vae"] == "warm"


def test_a_separate_vae_in_a_folder_brings_its_own_scale(own: Engine, folder: Path) -> None:
    described = shrunk("emoji")
    for name, scale in (("plain", 1.0), ("scaled", 0.5)):
        changed = replace(described, vae={**described.vae, "scaling_factor": scale})
        write_vae_folder(RandomWeights(changed, seed=9), folder / "vae" / name)
    as_file, plain, scaled = (
        own.generate("an apple", **SIZE, vae=name).images[0] for name in ("warm", "plain", "scaled")
    )
    assert difference(as_file, plain) == 0
    assert difference(plain, scaled) > 5


def test_a_separate_vae_of_another_kind_is_decoded_as_usual(folder: Path) -> None:
    """Our own decoder knows one attention in the middle; others are not refused for that."""
    small = shrunk("emoji")
    unusual = replace(small, vae={**small.vae, "mid_block_add_attention": False})
    write_vae_folder(RandomWeights(unusual, seed=3), folder / "vae" / "unusual")
    plain, fast = (small_engine("emoji", models_folder=folder, preset=name) for name in ("baseline", "fast"))
    for vae in ("unusual", None, "unusual"):
        wanted, found = (each.generate("an apple", **SIZE, vae=vae).images[0] for each in (plain, fast))
        assert difference(found, wanted) <= 1


def test_a_run_is_decoded_with_its_own_vae_whoever_began_since(own: Engine) -> None:
    expected = own.generate("an apple", **SIZE, vae="warm").images[0]
    run, request = begun(own, {**SIZE, "prompt": "an apple", "vae": "warm"})
    begun(own, SIZE)
    to_the_end(own, run)
    assert difference(own.finish(run, request, Inputs())[0], expected) == 0


def test_the_record_says_which_files_were_used(own: Engine, folder: Path) -> None:
    from hashlib import sha256

    made = own.generate("an apple", **SIZE, loras=[{"name": "one"}, {"name": "words"}], vae="warm")
    expected = {
        f"{kind}/{name}": sha256((folder / kind / f"{name}.safetensors").read_bytes()).hexdigest()
        for kind, name in (("loras", "one"), ("loras", "words"), ("vae", "warm"))
    }
    assert made.records[0].files == expected


def test_the_record_tells_folders_apart_that_differ_in_their_settings_alone(
    own: Engine, folder: Path
) -> None:
    described, told = shrunk("emoji"), []
    for name, number in (("half", 0.5), ("full", 1.0)):
        changed = replace(described, vae={**described.vae, "scaling_factor": number})
        write_vae_folder(RandomWeights(changed, seed=9), folder / "vae" / name)
        (folder / "loras" / name).mkdir()
        (folder / "loras" / name / "adapter_config.json").write_text(f'{{"lora_alpha": {number}}}')
        save_file(lora(1, UNET), folder / "loras" / name / "adapter_model.safetensors")
        told.append(own.generate("an apple", **SIZE, loras=[{"name": name}], vae=name).records[0].files)
    half, full = told
    assert half["loras/half"] != full["loras/full"]
    assert half["vae/half"] != full["vae/full"]


@pytest.mark.parametrize("preset", ["baseline", "fast", "int8"])
def test_a_lora_written_anew_is_read_anew(preset: str, folder: Path) -> None:
    """Also while it is in use: the picture is the one its record tells of."""
    own = small_engine("emoji", models_folder=folder, preset=preset)
    file, asked = folder / "loras" / "changing.safetensors", {**SIZE, "loras": [{"name": "changing"}]}
    save_file(lora(2, UNET), file)
    second = latents_of(own, **asked)
    for between in ([], [SIZE]):
        save_file(lora(1, UNET), file)
        first = latents_of(own, **asked)
        assert relative(first, second) > 1e-3
        for knobs in between:
            latents_of(own, **knobs)
        save_file(lora(2, UNET), file)
        assert torch.equal(latents_of(own, **asked), second)


def test_a_folder_whose_files_were_written_over_is_read_anew(own: Engine, folder: Path) -> None:
    """The folder's own time stays what it was then."""
    adapter, asked = folder / "loras" / "adapter", {**SIZE, "loras": [{"name": "adapter"}]}
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"lora_alpha": 2}')
    weights = adapter / "adapter_model.safetensors"
    save_file(lora(1, UNET), weights)
    first = latents_of(own, **asked)
    save_file(lora(2, UNET), folder / "other.safetensors")
    weights.write_bytes((folder / "other.safetensors").read_bytes())
    second = latents_of(own, **asked)
    assert relative(second, first) > 1e-3
    assert torch.equal(second, latents_of(own, **SIZE, loras=[{"name": "two"}]))
    (adapter / "adapter_config.json").write_text('{"lora_alpha": 1}')
    assert torch.equal(
        latents_of(own, **asked), latents_of(own, **SIZE, loras=[{"name": "two", "strength": 0.5}])
    )


def test_a_lora_written_anew_while_a_picture_is_made_waits_for_the_next(folder: Path) -> None:
    own = small_engine("emoji", models_folder=folder)
    file, asked = folder / "loras" / "changing.safetensors", {**SIZE, "loras": [{"name": "changing"}]}
    save_file(lora(1, UNET), file)
    whole = latents_of(own, **asked)
    run, _ = begun(own, asked)
    own.step([run])
    save_file(lora(2, UNET), file)
    assert torch.equal(to_the_end(own, run), whole)
    file.unlink()
    with pytest.raises(NotFoundError, match="no 'changing' in"):
        begun(own, asked)


@pytest.mark.parametrize("kind", ["loras", "vae"])
@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a\\b", "%2e%2e", "", "x" * 10_000, "a\0b"])
def test_names_stay_inside_the_folder(own: Engine, kind: str, name: str) -> None:
    knobs = {"loras": [{"name": name}]} if kind == "loras" else {"vae": name}
    with pytest.raises(RequestError, match=f"{kind}: .* is not a usable name"):
        own.generate("an apple", **SIZE, **knobs)


def test_a_link_out_of_the_folder_is_refused(own: Engine) -> None:
    with pytest.raises(RequestError, match=r"loras: 'link\.safetensors' is a link that leaves"):
        own.generate("an apple", **SIZE, loras=[{"name": "link.safetensors"}])


def test_a_name_that_is_not_there_is_told_the_others(own: Engine) -> None:
    with pytest.raises(NotFoundError, match=r"no 'onne' in .*loras; did you mean 'one'"):
        own.generate("an apple", **SIZE, loras=[{"name": "onne"}])


def test_a_bad_lora_leaves_the_model_as_it_was(own: Engine) -> None:
    base = latents_of(own, **SIZE)
    with pytest.raises(ModelFileError, match=r"foreign\.safetensors: 'x\.lora_A\.weight' names no layer"):
        own.generate("an apple", **SIZE, loras=[{"name": "one"}, {"name": "foreign"}])
    assert torch.equal(latents_of(own, **SIZE), base)
