"""Workflows of nodes against diffusers' pipelines: the same weights, prompts and noise, the same latents.

In fp32 on the CPU, final latents within 1e-4 relative. Latents between nodes are in the autoencoder's scale,
diffusers' in the UNet's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers import ControlNetModel
from torch import Tensor

from calotype.engine.engine import Engine
from calotype.sampling import NoiseStream
from calotype.workflow.nodes.model_provider import NodeModels
from calotype.workflow.nodes.value_types import ClipValue, ControlNetValue, ModelValue, VaeValue
from tests.engines import difference, relative, small_engine, with_unet
from tests.integration.pipelines import (
    CASES,
    STEPS,
    Case,
    Pair,
    make_pair,
    starting_scale,
    their_latents,
    their_picture,
)
from tests.integration.test_diffusers_parity_pictures import left_part, mode, photo, pixels, theirs
from tests.small_models import shrunk
from tests.workflows import Host, as_png

PROMPT, NEGATIVE = "a red apple on a wooden table", "blurry, dark"
CLOSE, FAR = 1e-4, 1e-2
EULER, DDIM, SOLVER = CASES


@dataclass(frozen=True)
class Graph:
    """Nodes over engines that are there already."""

    host: Host

    def prompts(self, model: str = "first") -> dict[str, Any]:
        clip = ClipValue(model)
        return {
            side: self.host.node("CLIPTextEncode", text=text, clip=clip)
            for side, text in (("positive", PROMPT), ("negative", NEGATIVE))
        }

    def sampled(self, latent: Any, node: str = "KSampler", model: str = "first", **inputs: Any) -> Any:
        usual = {
            "model": ModelValue(model),
            "steps": STEPS,
            "cfg": 7.5,
            "sampler_name": "euler",
            "scheduler": "normal",
            "latent_image": latent,
            **({} if "positive" in inputs else self.prompts(model)),
        }
        return self.host.node(node, **{**usual, **inputs})

    def empty(self) -> Any:
        return self.host.node("EmptyLatentImage", width=64, height=64)


def graph_of(**engines: Engine) -> Graph:
    host = Host()
    host.models = NodeModels(lambda reference, _: engines[reference])
    return Graph(host)


def in_unets_scale(pair: Pair, latent: Any) -> Tensor:
    return latent["samples"] * pair.theirs.vae.config.scaling_factor


@pytest.mark.parametrize("case", [EULER, SOLVER], ids=str)
def test_text_to_image(sd15: Pair, case: Case) -> None:
    """Not of schedules that begin below the most noise: there ComfyUI begins with a little less of it."""
    graph = graph_of(first=sd15.ours)
    expected = their_latents(sd15, case, prompt=PROMPT, negative_prompt=NEGATIVE, guidance_scale=7.5)
    made = graph.sampled(graph.empty(), seed=5, sampler_name=case.sampler, scheduler=case.schedule)
    assert relative(in_unets_scale(sd15, made), expected) < CLOSE


@pytest.mark.parametrize("case", [EULER, DDIM], ids=str)
def test_image_to_image(sd15: Pair, case: Case) -> None:
    graph = graph_of(first=sd15.ours)
    pipeline = sd15.pipeline("StableDiffusionImg2ImgPipeline")
    expected = theirs(sd15, pipeline, case, image=mode(sd15, pixels()), strength=0.5)
    graph.host.inputs["photo.png"] = as_png(photo())
    image, _ = graph.host.node("LoadImage", image="photo.png")
    latent = graph.host.node("VAEEncode", pixels=image, vae=VaeValue("first"))
    how = {"sampler_name": case.sampler, "scheduler": case.schedule}
    made = graph.sampled(latent, seed=5, denoise=0.5, **how)
    assert relative(in_unets_scale(sd15, made), expected) < CLOSE


def test_inpainting_with_an_ordinary_model(sd15: Pair) -> None:
    graph = graph_of(first=sd15.ours)
    clean = mode(sd15, pixels())
    expected = theirs(
        sd15,
        sd15.pipeline("StableDiffusionInpaintPipeline"),
        EULER,
        image=clean,
        masked_image_latents=clean,
        mask_image=left_part(),
        strength=0.5,
        width=64,
        height=64,
    )
    masked = photo().convert("RGB")
    # What a picture leaves out is what is painted anew.
    masked.putalpha(left_part().point(lambda value: 255 - value))
    graph.host.inputs["masked.png"] = as_png(masked)
    image, mask = graph.host.node("LoadImage", image="masked.png")
    latent = graph.host.node("VAEEncode", pixels=image, vae=VaeValue("first"))
    latent = graph.host.node("SetLatentNoiseMask", samples=latent, mask=mask)
    made = graph.sampled(latent, seed=5, denoise=0.5)
    assert relative(in_unets_scale(sd15, made), expected) < CLOSE


def test_a_model_that_reads_the_mask_is_given_it_and_the_rest_of_the_picture() -> None:
    engine = small_engine("sd15", architecture=with_unet(shrunk("sd15"), in_channels=9))
    graph = graph_of(first=engine)
    mask = torch.zeros(1, 64, 64)
    mask[..., :40] = 1
    image = (pixels().movedim(1, -1) + 1) / 2
    vae = VaeValue("first")
    latent = graph.host.node("VAEEncodeForInpaint", pixels=image, vae=vae, mask=mask, grow_mask_by=0)
    seen: list[Tensor] = []
    engine.model.unet.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    graph.sampled(latent, seed=5, steps=1)
    hidden = pixels()
    hidden[..., :40] = 0
    with torch.inference_mode():
        expected = engine.model.vae.encode(hidden).latent_dist.mode() * 0.18215
    assert torch.equal(seen[0][:1, 4], torch.tensor([1.0] * 5 + [0.0] * 3).expand(1, 8, 8))
    torch.testing.assert_close(seen[0][:1, 5:], expected, atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def refiner(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(shrunk("sdxl-refiner"), tmp_path_factory.mktemp("refiner") / "model")


def test_the_refiner_goes_on_where_the_base_stops(sdxl: Pair, refiner: Pair) -> None:
    base, other = sdxl.theirs, refiner.theirs
    for pair, pipeline in ((sdxl, base), (refiner, other)):
        pipeline.scheduler = pair.scheduler(EULER)
        pipeline.scheduler.set_timesteps(STEPS)
    told: Any = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "guidance_scale": 7.5}
    told |= {"num_inference_steps": STEPS, "output_type": "latent"}
    noise = NoiseStream([5], (4, 8, 8)).initial() * starting_scale(base.scheduler)
    half = base(**told, width=64, height=64, latents=noise, denoising_end=0.6).images
    expected = other(**told, image=half, denoising_start=0.6).images
    graph = graph_of(first=sdxl.ours, second=refiner.ours)
    stop: Any = {"end_at_step": 6, "return_with_leftover_noise": "enable"}
    made = graph.sampled(graph.empty(), "KSamplerAdvanced", noise_seed=5, **stop)
    assert relative(in_unets_scale(sdxl, made), half) < CLOSE
    made = graph.sampled(made, "KSamplerAdvanced", "second", add_noise="disable", start_at_step=6)
    assert relative(in_unets_scale(refiner, made), expected) < CLOSE
    assert relative(expected, half) > FAR


def test_the_refiner_makes_a_picture_of_a_picture_by_itself(refiner: Pair) -> None:
    expected = theirs(refiner, refiner.theirs, EULER, image=mode(refiner, pixels()), strength=0.5)
    made = refiner.ours.generate(
        PROMPT, image=photo(), strength=0.5, seed=5, steps=STEPS, sampler="euler", schedule="normal",
        negative_prompt=NEGATIVE, cfg=7.5,
    )  # fmt: skip
    assert difference(made.images[0], their_picture(refiner, expected)) <= 1


@pytest.fixture(scope="module")
def control_net(sd15: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(4)
    net = ControlNetModel.from_unet(sd15.ours.model.unet)
    # They begin at zero, so that at first they say nothing.
    for name, parameter in net.named_parameters():
        if name.startswith("controlnet_"):
            torch.nn.init.normal_(parameter, std=0.3)
    place = tmp_path_factory.mktemp("control") / "net"
    net.save_pretrained(place)
    return place


def test_a_control_net_says_the_same(sd15: Pair, control_net: Path) -> None:
    net = ControlNetModel.from_pretrained(control_net)
    pipeline = diffusers.StableDiffusionControlNetPipeline(**sd15.theirs.components, controlnet=net)
    pipeline.set_progress_bar_config(disable=True)
    told: Any = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "guidance_scale": 7.5, "image": photo()}
    expected = their_latents(sd15, EULER, pipeline=pipeline, **told, controlnet_conditioning_scale=0.7)
    graph = graph_of(first=sd15.ours)
    image = (pixels().movedim(1, -1) + 1) / 2
    how = {"control_net": ControlNetValue(str(control_net)), "image": image, "strength": 0.7}
    positive, negative = graph.host.node("ControlNetApplyAdvanced", **graph.prompts(), **how)
    made = graph.sampled(graph.empty(), seed=5, positive=positive, negative=negative)
    assert relative(in_unets_scale(sd15, made), expected) < CLOSE
    plain = graph.sampled(graph.empty(), seed=5)
    assert relative(in_unets_scale(sd15, plain), expected) > FAR
    # The simple node has the negative prompt listen too.
    prompts = graph.prompts()
    positive = graph.host.node("ControlNetApply", conditioning=prompts["positive"], **how)
    made = graph.sampled(graph.empty(), seed=5, positive=positive, negative=prompts["negative"])
    assert relative(in_unets_scale(sd15, made), expected) < CLOSE
