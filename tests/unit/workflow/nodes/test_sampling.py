"""What samplers of workflows make: the engine's own pictures, in parts, from pictures, and behind masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.engine.denoiser import DenoiseInput
from calotype.engine.engine import Engine
from calotype.sampling import DenoiseQuery, sigmas_of_run
from calotype.spec.generate_request import GenerateRequest
from calotype.workflow.node_api import Step
from calotype.workflow.nodes.impl.tensor_image import to_pictures
from tests.engines import difference, relative
from tests.workflows import Host, ended

STEPS = 4


@dataclass(frozen=True)
class Loaded:
    """A checkpoint and two prompts."""

    host: Host
    model: Any
    clip: Any
    vae: Any
    positive: Any
    negative: Any

    @property
    def engine(self) -> Engine:
        return self.host.models.for_unet(self.model)

    def sampled(self, latent: Any, node: str = "KSampler", **inputs: Any) -> Any:
        usual = {
            "model": self.model,
            "steps": STEPS,
            "cfg": 4.0,
            "sampler_name": "euler",
            "scheduler": "normal",
            "positive": self.positive,
            "negative": self.negative,
            "latent_image": latent,
        }
        return self.host.node(node, **{**usual, **inputs})


@pytest.fixture(scope="module")
def sd15(host: Host) -> Loaded:
    model, clip, vae = host.node("CheckpointLoaderSimple", ckpt_name="sd15")
    prompts = [host.node("CLIPTextEncode", text=text, clip=clip) for text in ("a (red:1.3) apple", "dark")]
    return Loaded(host, model, clip, vae, *prompts)


def _empty(host: Host, batch: int = 1) -> Any:
    return host.node("EmptyLatentImage", width=64, height=48, batch_size=batch)


def _raw(loaded: Loaded, samples: Tensor) -> Tensor:
    return samples * loaded.engine.model.vae.config.scaling_factor


@pytest.mark.parametrize("sampler", ["euler", "euler_ancestral", "dpm_2", "dpmpp_2m"])
def test_a_picture_is_the_engines_own(sd15: Loaded, sampler: str) -> None:
    """But for the noise on the way, which ComfyUI draws from another stream than ours."""
    latent = sd15.sampled(_empty(sd15.host), seed=7, sampler_name=sampler, scheduler="karras")
    image = sd15.host.node("VAEDecode", samples=latent, vae=sd15.vae)
    knobs: Any = {"negative_prompt": "dark", "width": 64, "height": 48, "steps": STEPS, "cfg": 4.0, "seed": 7}
    own = sd15.engine.generate("a (red:1.3) apple", sampler=sampler, schedule="karras", **knobs).images[0]
    apart = difference(to_pictures(image)[0], own)
    assert apart > 5 if sampler == "euler_ancestral" else apart <= 1


def test_a_seed_makes_the_same_picture_again_and_another_one_another(sd15: Loaded) -> None:
    for sampler in ("euler_ancestral", "dpmpp_sde"):
        once, again, other = (
            sd15.sampled(_empty(sd15.host), seed=seed, sampler_name=sampler)["samples"] for seed in (3, 3, 4)
        )
        assert torch.equal(once, again)
        assert relative(once, other) > 0.1


@pytest.mark.parametrize(("name", "same"), [("dpmpp_2m_sde_gpu", "dpmpp_2m_sde"), ("uni_pc_bh2", "uni_pc")])
def test_other_names_of_samplers_are_known(sd15: Loaded, name: str, same: str) -> None:
    one, other = (
        sd15.sampled(_empty(sd15.host), seed=3, sampler_name=sampler)["samples"] for sampler in (name, same)
    )
    assert torch.equal(one, other) == name.endswith("_gpu")
    assert relative(one, other) < 0.2


def test_a_part_of_a_batch_is_made_as_in_the_whole(sd15: Loaded) -> None:
    whole = sd15.sampled(_empty(sd15.host, 3), seed=5)["samples"]
    part = sd15.host.node("LatentFromBatch", samples=_empty(sd15.host, 3), batch_index=1, length=2)
    alone = sd15.sampled(part, seed=5)
    torch.testing.assert_close(alone["samples"], whole[1:], atol=1e-4, rtol=1e-4)
    assert alone["batch_index"] == [1, 2]


@pytest.mark.parametrize(
    ("sampler", "scheduler"), [("euler", "normal"), ("ddim", "karras"), ("heun", "simple")]
)
def test_two_halves_with_what_is_left_of_the_noise_are_the_whole(
    sd15: Loaded, sampler: str, scheduler: str
) -> None:
    how = {"sampler_name": sampler, "scheduler": scheduler}
    whole = sd15.sampled(_empty(sd15.host), seed=5, **how)["samples"]
    first = sd15.sampled(
        _empty(sd15.host),
        "KSamplerAdvanced",
        noise_seed=5,
        end_at_step=2,
        return_with_leftover_noise="enable",
        **how,
    )
    second = sd15.sampled(first, "KSamplerAdvanced", add_noise="disable", start_at_step=2, **how)["samples"]
    torch.testing.assert_close(second, whole, atol=1e-4, rtol=1e-4)
    assert relative(first["samples"], whole) > 0.005


def test_without_leftover_noise_the_last_step_goes_to_the_end(sd15: Loaded) -> None:
    answer = sd15.engine._denoiser.denoise
    early = sd15.sampled(_empty(sd15.host), "KSamplerAdvanced", noise_seed=5, end_at_step=2)["samples"]
    sigmas = sigmas_of_run("normal", sd15.engine.schedule, STEPS)
    x = torch.randn(1, 4, 6, 8, generator=torch.Generator().manual_seed(5)) * (1 + sigmas[0] ** 2) ** 0.5
    guidance = sd15.engine._guidance(
        sd15.engine.resolve_defaults(_request("a (red:1.3) apple", negative_prompt="dark", cfg=4.0))
    )
    for sigma, following in ((sigmas[0], sigmas[1]), (sigmas[1], 0.0)):
        (clean,) = answer([DenoiseInput(DenoiseQuery(x, sigma, 0), guidance)])
        x = clean + (x - clean) * following / sigma
    torch.testing.assert_close(_raw(sd15, early), x, atol=1e-4, rtol=1e-4)


def _request(prompt: str, **knobs: Any) -> Any:
    return GenerateRequest.parse({"prompt": prompt, "width": 64, "height": 48, **knobs})


def test_beginning_after_the_end_changes_nothing(sd15: Loaded) -> None:
    latent = {"samples": torch.randn(1, 4, 6, 8)}
    for knobs in ({"start_at_step": STEPS}, {"start_at_step": 3, "end_at_step": 3}):
        made = sd15.sampled(latent, "KSamplerAdvanced", noise_seed=5, **knobs)
        assert torch.equal(made["samples"], latent["samples"])
    assert torch.equal(sd15.sampled(latent, seed=5, denoise=0.0)["samples"], latent["samples"])


def test_a_picture_is_left_as_far_as_denoise_says(sd15: Loaded) -> None:
    latent = {"samples": torch.randn(1, 4, 6, 8) * 3}
    apart = [
        relative(sd15.sampled(latent, seed=5, denoise=denoise)["samples"], latent["samples"])
        for denoise in (0.1, 0.5)
    ]
    assert 0 < apart[0] < apart[1]


def test_the_noise_added_to_a_picture_is_the_first_levels(sd15: Loaded) -> None:
    """One step from half-way: undone by hand it is the picture and the noise again."""
    clean = torch.randn(1, 4, 6, 8)
    made = sd15.sampled(
        {"samples": clean},
        "KSamplerAdvanced",
        noise_seed=5,
        steps=10,
        start_at_step=5,
        end_at_step=5,
        return_with_leftover_noise="enable",
    )
    assert torch.equal(made["samples"], clean)
    seen: list[Tensor] = []
    unet = sd15.engine.model.unet
    hook = unet.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    try:
        sd15.sampled({"samples": clean}, "KSamplerAdvanced", noise_seed=5, steps=10, start_at_step=5)
    finally:
        hook.remove()
    sigma = sigmas_of_run("normal", sd15.engine.schedule, 10)[5]
    noise = torch.randn(1, 4, 6, 8, generator=torch.Generator().manual_seed(5))
    expected = (clean * 0.18215 + noise * sigma) / (sigma**2 + 1) ** 0.5
    torch.testing.assert_close(seen[0][:1], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("sampler", ["ddim", "dpmpp_2m_sde"])
def test_what_a_mask_leaves_alone_stays(sd15: Loaded, sampler: str) -> None:
    latent = {"samples": torch.randn(2, 4, 6, 8)}
    mask = torch.zeros(1, 48, 64)
    mask[:, :, 32:] = 1
    masked = sd15.host.node("SetLatentNoiseMask", samples=latent, mask=mask)
    made = sd15.sampled(masked, seed=5, sampler_name=sampler)
    torch.testing.assert_close(made["samples"][..., :4], latent["samples"][..., :4], atol=1e-5, rtol=1e-5)
    assert relative(made["samples"][..., 4:], latent["samples"][..., 4:]) > 0.3
    assert "noise_mask" in made


def test_each_step_is_told_with_a_glimpse_and_closing_cancels(sd15: Loaded) -> None:
    declared = sd15.host.registry["KSampler"]
    inputs = {
        "model": sd15.model,
        "seed": 5,
        "steps": 4,
        "cfg": 4.0,
        "sampler_name": "heun",
        "scheduler": "normal",
        "positive": sd15.positive,
        "negative": sd15.negative,
        "latent_image": _empty(sd15.host),
    }
    steps: list[Step] = list(declared.run(sd15.host, **inputs))  # type: ignore[arg-type]
    assert [(step.value, step.maximum) for step in steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert steps[0].preview is not None
    assert steps[0].preview.startswith(b"\xff\xd8")
    work: Any = declared.run(sd15.host, **inputs)
    next(work)
    work.close()
    with pytest.raises(StopIteration):
        next(work)


def test_other_work_between_two_steps_does_not_show(sd15: Loaded, host: Host) -> None:
    """A server makes other pictures of the model meanwhile, with LoRAs of their own."""
    expected = sd15.sampled(_empty(host), seed=5)["samples"]
    declared = host.registry["KSampler"]
    work: Any = declared.run(
        host,
        model=sd15.model,
        seed=5,
        steps=STEPS,
        cfg=4.0,
        sampler_name="euler",
        scheduler="normal",
        positive=sd15.positive,
        negative=sd15.negative,
        latent_image=_empty(host),
    )
    next(work)
    other, _ = host.node("LoraLoader", model=sd15.model, clip=sd15.clip, lora_name="style1.safetensors")
    assert relative(sd15.sampled(_empty(host), seed=5, model=other)["samples"], expected) > 0.02
    assert torch.equal(ended(work)[0]["samples"], expected)


def test_stacked_loras_are_the_engines_and_leave_the_base_alone(sd15: Loaded, host: Host) -> None:
    base = sd15.sampled(_empty(host), seed=5)["samples"]
    model, clip = host.node(
        "LoraLoader", model=sd15.model, clip=sd15.clip, lora_name="style1.safetensors", strength_clip=0.5
    )
    model, clip = host.node(
        "LoraLoader", model=model, clip=clip, lora_name="style2.safetensors", strength_model=-0.7
    )
    texts = {
        side: host.node("CLIPTextEncode", text=text, clip=clip)
        for side, text in (("positive", "a (red:1.3) apple"), ("negative", "dark"))
    }
    made = sd15.sampled(_empty(host), seed=5, model=model, **texts)["samples"]
    loras = [
        {"name": "style1.safetensors", "strength": 1.0, "text_strength": 0.5},
        {"name": "style2.safetensors", "strength": -0.7, "text_strength": 1.0},
    ]
    request = _request(
        "a (red:1.3) apple", negative_prompt="dark", cfg=4.0, steps=STEPS, sampler="euler", schedule="normal",
        seed=5, loras=loras,
    )  # fmt: skip
    own = sd15.engine.generate(request).images[0]
    image = host.node("VAEDecode", samples={"samples": made}, vae=sd15.vae)
    assert difference(to_pictures(image)[0], own) <= 1
    assert torch.equal(sd15.sampled(_empty(host), seed=5)["samples"], base)


def test_presets_of_two_branches_do_not_disturb_each_other(sd15: Loaded, host: Host) -> None:
    exact = sd15.sampled(_empty(host), seed=5)["samples"]
    quick = host.node("CalotypePreset", model=sd15.model, preset="low-memory")
    made = sd15.sampled(_empty(host), seed=5, model=quick)["samples"]
    assert host.models.for_unet(quick).preset == "low-memory"
    torch.testing.assert_close(made, exact, atol=1e-3, rtol=1e-3)
    assert torch.equal(sd15.sampled(_empty(host), seed=5)["samples"], exact)
