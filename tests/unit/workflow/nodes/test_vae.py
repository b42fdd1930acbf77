"""Between IMAGE and LATENT, in the autoencoder's own scale, against diffusers' VAE."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate, max_pool2d

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.engine.vae import RawVae
from calotype.workflow.nodes.value_types import ModelValue, VaeValue
from tests.engines import relative
from tests.workflows import Host


@pytest.fixture(scope="module")
def vae(host: Host) -> VaeValue:
    made: VaeValue = host.node("CheckpointLoaderSimple", ckpt_name="sd15")[2]
    return made


def _module(host: Host, vae: VaeValue) -> Any:
    return host.models.for_unet(ModelValue(vae.reference)).model.vae


def _image(height: int, width: int, batch: int = 1) -> Tensor:
    return torch.rand(batch, height, width, 3, generator=torch.Generator().manual_seed(2))


def test_latents_are_in_the_autoencoders_own_scale(host: Host, vae: VaeValue) -> None:
    image = _image(48, 64, batch=2)
    latent = host.node("VAEEncode", pixels=image, vae=vae)
    module = _module(host, vae)
    with torch.inference_mode():
        expected = module.encode(image.movedim(-1, 1) * 2 - 1).latent_dist.mode()
        pixels = module.decode(expected, return_dict=False)[0]
    torch.testing.assert_close(latent["samples"], expected, atol=1e-5, rtol=1e-4)
    made = host.node("VAEDecode", samples=latent, vae=vae)
    torch.testing.assert_close(made, (pixels.movedim(1, -1) / 2 + 0.5).clamp(0, 1), atol=1e-4, rtol=1e-4)


def test_the_middle_of_a_picture_is_encoded_in_whole_latent_pixels(host: Host, vae: VaeValue) -> None:
    image = _image(53, 71)
    whole = host.node("VAEEncode", pixels=image, vae=vae)["samples"]
    assert torch.equal(whole, host.node("VAEEncode", pixels=image[:, 2:50, 3:67], vae=vae)["samples"])


def test_tiles_make_nearly_the_same(host: Host) -> None:
    """With a VAE that was trained: a random one's norms make something else of every tile."""
    vae = host.node("CheckpointLoaderSimple", ckpt_name="emoji")[2]
    image = (
        interpolate(_image(6, 8).movedim(-1, 1), size=(128, 160), mode="bicubic").movedim(1, -1).clamp(0, 1)
    )
    whole = host.node("VAEEncode", pixels=image, vae=vae)
    pixels = host.node("VAEDecode", samples=whole, vae=vae)
    for tile, most in ((64, 0.15), (96, 0.08), (256, 1e-6)):
        size = {"vae": vae, "tile_size": tile, "overlap": 16}
        tiled = host.node("VAEEncodeTiled", pixels=image, **size)
        assert relative(tiled["samples"], whole["samples"]) <= most
        assert relative(host.node("VAEDecodeTiled", samples=whole, **size), pixels) <= most / 2


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("no room"), RuntimeError("CUDA error: out of memory")]
)
def test_a_picture_too_large_for_the_device_is_decoded_in_tiles(
    host: Host, vae: VaeValue, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = RawVae.decode

    def short_of_memory(self: RawVae, latents: Tensor, *, tiled: bool) -> Tensor:
        if not tiled:
            raise error
        return decode(self, latents, tiled=tiled)

    monkeypatch.setattr(RawVae, "decode", short_of_memory)
    made = host.node("VAEDecode", samples={"samples": torch.randn(1, 4, 6, 8)}, vae=vae)
    assert made.shape == (1, 48, 64, 3)


@pytest.mark.parametrize("grow", [0, 1, 6, 7])
def test_what_is_painted_anew_is_grey_and_its_mask_grows(host: Host, vae: VaeValue, grow: int) -> None:
    image, mask = _image(48, 64), torch.zeros(1, 24, 32)
    mask[:, 8:12, 10:20] = 0.9
    latent = host.node("VAEEncodeForInpaint", pixels=image, vae=vae, mask=mask, grow_mask_by=grow)
    large = interpolate(mask[:, None], size=(48, 64), mode="bilinear").round()
    grey = torch.where(large.movedim(1, -1) > 0, torch.tensor(0.5), image)
    torch.testing.assert_close(
        latent["samples"], host.node("VAEEncode", pixels=grey, vae=vae)["samples"], atol=1e-5, rtol=1e-4
    )
    expected = large
    if grow > 1:
        # A pixel is covered if any in the square around it is; one of even side reaches further up and left.
        before, after = -(-(grow - 1) // 2), (grow - 1) // 2
        around = torch.nn.functional.pad(large, (before, after, before, after))
        expected = max_pool2d(around, grow, 1)
    assert torch.equal(latent["noise_mask"], expected)


def test_a_vae_by_itself_is_used_instead(host: Host, vae: VaeValue) -> None:
    name = "other/diffusion_pytorch_model.safetensors"
    other = host.node("VAELoader", vae_name=name)
    image = _image(32, 32)
    made, own = (host.node("VAEEncode", pixels=image, vae=one)["samples"] for one in (other, vae))
    assert relative(made, own) > 0.1
    with pytest.raises(NotFoundError, match=r"nothing\.pt.*there are other/"):
        host.node("VAELoader", vae_name="nothing.pt")


def test_a_file_that_is_no_vae_is_refused(host: Host) -> None:
    lora = VaeValue(str(host.folder / "loras" / "style1.safetensors"), alone=True)
    with pytest.raises(ModelFileError, match="is not a VAE but: LoRA"):
        host.models.autoencoder(lora)
