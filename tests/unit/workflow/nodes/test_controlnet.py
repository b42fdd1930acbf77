"""ControlNets: read from folders and files of either naming, added up, heard only while they may speak."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.workflow.nodes.value_types import ControlNetValue
from tests.engines import relative
from tests.workflows import Host

FOLDER, ORIGINAL = "folder/diffusion_pytorch_model.safetensors", "original.safetensors"


@pytest.fixture(scope="module")
def prompts(host: Host) -> dict[str, Any]:
    _, clip, _ = host.node("CheckpointLoaderSimple", ckpt_name="sd15")
    texts = {"positive": "an apple", "negative": "dark"}
    return {side: host.node("CLIPTextEncode", text=text, clip=clip) for side, text in texts.items()}


def _image(seed: int = 1, side: int = 64) -> Tensor:
    return torch.rand(1, side, side, 3, generator=torch.Generator().manual_seed(seed))


def _applied(host: Host, prompts: dict[str, Any], name: str = FOLDER, **how: Any) -> dict[str, Any]:
    net = host.node("ControlNetLoader", control_net_name=name)
    made = host.node("ControlNetApplyAdvanced", **prompts, control_net=net, **{"image": _image(), **how})
    return dict(zip(("positive", "negative"), made, strict=True))


def _sampled(host: Host, prompts: dict[str, Any], steps: int = 2, preset: str = "baseline") -> Tensor:
    loaded, _, _ = host.node("CheckpointLoaderSimple", ckpt_name="sd15")
    model = host.node("CalotypePreset", model=loaded, preset=preset)
    usual = {"steps": steps, "cfg": 4.0, "sampler_name": "euler", "scheduler": "normal", "seed": 5}
    latent = host.node("EmptyLatentImage", width=64, height=64)
    made: Tensor = host.node("KSampler", model=model, latent_image=latent, **usual, **prompts)["samples"]
    return made


def test_the_original_naming_is_the_same_net(host: Host, prompts: dict[str, Any]) -> None:
    one, other = (_sampled(host, _applied(host, prompts, name)) for name in (FOLDER, ORIGINAL))
    assert torch.equal(one, other)
    assert relative(one, _sampled(host, prompts)) > 0.01


def test_it_is_heard_whatever_the_preset(host: Host, prompts: dict[str, Any]) -> None:
    """Our own forward pass has laid the weights out anew, and does not listen."""
    controlled = _applied(host, prompts)
    made = _sampled(host, controlled, preset="low-memory")
    torch.testing.assert_close(made, _sampled(host, controlled), atol=1e-3, rtol=1e-3)


def test_a_picture_of_another_size_is_fitted(host: Host, prompts: dict[str, Any]) -> None:
    large = _image().repeat_interleave(3, 1).repeat_interleave(3, 2)
    one, other = (_sampled(host, _applied(host, prompts, image=image)) for image in (_image(), large))
    assert torch.equal(one, other)


def test_two_say_what_each_says_together(host: Host, prompts: dict[str, Any]) -> None:
    """The same twice, each half as loud, is the same once."""
    half = _applied(host, _applied(host, prompts, strength=0.5), strength=0.5)
    torch.testing.assert_close(
        _sampled(host, half), _sampled(host, _applied(host, prompts)), atol=1e-3, rtol=1e-3
    )


def test_one_that_has_nothing_to_say_changes_nothing(host: Host, prompts: dict[str, Any]) -> None:
    assert _applied(host, prompts, strength=0.0) == prompts
    # Two steps begin at the shares 0 and 1 of the sampling.
    between = _applied(host, prompts, start_percent=0.2, end_percent=0.8)
    torch.testing.assert_close(_sampled(host, between), _sampled(host, prompts), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("start", "end"), [(0.0, 0.3), (0.7, 1.0)])
def test_it_is_heard_while_it_may_speak(
    host: Host, prompts: dict[str, Any], start: float, end: float
) -> None:
    always, never = _sampled(host, _applied(host, prompts)), _sampled(host, prompts)
    made = _sampled(host, _applied(host, prompts, start_percent=start, end_percent=end))
    assert min(relative(made, always), relative(made, never)) > 1e-4


def test_it_works_beside_prompts_for_areas(host: Host, prompts: dict[str, Any]) -> None:
    controlled = _applied(host, prompts)
    area = host.node("ConditioningSetArea", conditioning=prompts["positive"], width=32, height=64, x=32, y=0)
    both = host.node("ConditioningCombine", conditioning_1=controlled["positive"], conditioning_2=area)
    made = _sampled(host, {**controlled, "positive": both})
    whole = _sampled(host, controlled)
    assert relative(made[..., 4:], whole[..., 4:]) > 1e-3
    assert torch.isfinite(made).all()


def test_a_folder_with_the_half_precision_variant_alone_is_read(host: Host, tmp_path: Path) -> None:
    file = host.folder / "controlnet" / FOLDER
    shutil.copytree(file.parent, tmp_path / "net")
    (tmp_path / "net" / file.name).rename(tmp_path / "net" / "diffusion_pytorch_model.fp16.safetensors")
    model, _, _ = host.node("CheckpointLoaderSimple", ckpt_name="sd15")
    engine = host.models.for_unet(model)
    one, other = (
        host.models.control_net(ControlNetValue(str(path)), engine).state_dict()
        for path in (file, tmp_path / "net")
    )
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_one_for_another_model_is_refused(host: Host) -> None:
    lora = str(host.folder / "loras" / "style1.safetensors")
    model, _, _ = host.node("CheckpointLoaderSimple", ckpt_name="sd15")
    engine = host.models.for_unet(model)
    with pytest.raises(ModelFileError, match=r"lacks .* tensors of a ControlNet for this model"):
        host.models.control_net(ControlNetValue(lora), engine)
    other, _, _ = host.node("CheckpointLoaderSimple", ckpt_name="sdxl")
    value = host.node("ControlNetLoader", control_net_name=ORIGINAL)
    with pytest.raises(ModelFileError, match=r"lacks .* tensors|is for another base model"):
        host.models.control_net(value, host.models.for_unet(other))
