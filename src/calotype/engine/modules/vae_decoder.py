"""An autoencoder's decoder over a copy of its weights, in half precision without overflow.

Some decoders' numbers outgrow fp16, so they are usually run in fp32 at many times the cost. But every picture
inside is normalised before it is read, so it may as well be kept smaller by a factor: `_shrink` takes the
factor into the weights that write it and into the epsilon of the norms that read it. Nothing else changes.
Knows nothing of latents' scale.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from calotype.engine.modules.fused_linear import fuse_linears
from calotype.engine.modules.ops import DeferredSum, Operations, apply_conv, image_to_tokens, tokens_to_image
from calotype.engine.modules.resnet import Resnet
from calotype.engine.modules.resnet import reason_against as reason_against_resnet
from calotype.models.skeleton.fallback import Skeleton

Prepare = Callable[[nn.Module], None]
Decode = Callable[[Any, Tensor], Tensor]
_SMALLER = 2.0**-6
_BLOCKS = {"UNetMidBlock2D", "UpDecoderBlock2D"}

_log = logging.getLogger(__name__)


class Decoder:
    """The decoding half of diffusers' AutoencoderKL."""

    def __init__(
        self, vae: Any, operations: Operations, dtype: torch.dtype, prepare: Sequence[Prepare] = ()
    ) -> None:
        self._do, self._dtype = operations, dtype
        self._before = deepcopy(vae.post_quant_conv)
        self._module = module = deepcopy(vae.decoder)
        if dtype == torch.float16:
            _shrink(module.float())
        for part in (self._before, module):
            if part is not None:
                part.to(dtype=dtype, memory_format=torch.channels_last)
        for each in prepare:
            each(module)
        self._middle = [Resnet(block, operations) for block in module.mid_block.resnets]
        self._attention = _Attention(module.mid_block.attentions[0], operations)
        self._up = [
            ([Resnet(each, operations) for each in block.resnets], block) for block in module.up_blocks
        ]

    @torch.inference_mode()
    def __call__(self, latents: Tensor) -> Tensor:
        """Pixels in about −1…1 of latents in the autoencoder's own scale, both fp32."""
        module, do = self._module, self._do
        given = latents.to(self._dtype, memory_format=torch.channels_last)
        if self._before is not None:
            given = do.convolution(given, self._before, self._before.bias)
        x = apply_conv(do, given, module.conv_in)
        x, _ = self._middle[0](x)
        x, _ = self._middle[1](self._attention(x))
        for resnets, block in self._up:
            for resnet in resnets:
                x, _ = resnet(x)
            for upsampler in block.upsamplers or []:
                height, width = x.x.shape[-2:]
                enlarged = do.enlarged(x.materialize(do.add), (2 * height, 2 * width))
                x = apply_conv(do, enlarged, upsampler.conv)
        normal, _ = do.group_norm(x, module.conv_norm_out, silu=True)
        return do.convolution(normal, module.conv_out, module.conv_out.bias).float()


class _Attention:
    """Every place looks at every other, with one wide head."""

    def __init__(self, block: Any, operations: Operations) -> None:
        self._block, self._do = block, operations
        self._weight, self._bias = fuse_linears([block.to_q, block.to_k, block.to_v])

    def __call__(self, picture: DeferredSum) -> DeferredSum:
        block, do = self._block, self._do
        normal, whole = do.group_norm(picture, block.group_norm, silu=False)
        query, key, value = do.outer_linear(image_to_tokens(normal), self._weight, self._bias).chunk(
            3, dim=-1
        )
        seen = do.outer_linear(do.wide_attention(query, key, value), block.to_out[0].weight, None)
        return DeferredSum(whole, tokens_to_image(seen, whole), block.to_out[0].bias)


@torch.no_grad()
def _shrink(module: Any) -> None:
    """Make every picture inside smaller by a factor; what comes out stays the same."""
    blocks = [module.mid_block, *module.up_blocks]
    resnets = [resnet for block in blocks for resnet in block.resnets]
    (attention,) = module.mid_block.attentions
    for layer in (module.conv_in, attention.to_out[0], *(c for r in resnets for c in (r.conv1, r.conv2))):
        layer.weight.mul_(_SMALLER)
        layer.bias.mul_(_SMALLER)
    upsamplers = [each for block in module.up_blocks for each in block.upsamplers or []]
    shortcuts = [resnet.conv_shortcut for resnet in resnets if resnet.conv_shortcut is not None]
    for layer in (*(each.conv for each in upsamplers), *shortcuts):
        layer.bias.mul_(_SMALLER)  # what it reads is smaller already
    norms = [module.conv_norm_out, attention.group_norm, *(n for r in resnets for n in (r.norm1, r.norm2))]
    for norm in norms:
        norm.eps *= _SMALLER**2


class NativeDecoders:
    """A decoder for whichever autoencoder is in use: a request may bring its own."""

    def __init__(
        self,
        operations: Operations,
        dtype: torch.dtype,
        prepare: Sequence[Prepare] = (),
        *,
        otherwise: Decode,
    ) -> None:
        """`prepare` is called with every network that will be walked, before it is.

        `otherwise` is for autoencoders of a kind that cannot be.
        """
        self._operations, self._dtype, self._prepare = operations, dtype, prepare
        self._otherwise = otherwise
        self._made: WeakKeyDictionary[nn.Module, Decoder | None] = WeakKeyDictionary()

    def __call__(self, vae: Any, latents: Tensor) -> Tensor:
        if vae not in self._made:
            reason = reason_against(vae)
            if reason:
                _log.info("decoded as usual, and slower: %s", reason)
            own = None if reason else Decoder(vae, self._operations, self._dtype, self._prepare)
            self._made[vae] = own
        made = self._made[vae]
        return self._otherwise(vae, latents) if made is None else made(latents)


def reason_against(vae: Any) -> str | None:
    """Why this autoencoder cannot be decoded here, in words; None if it can."""
    if isinstance(vae, Skeleton):
        return None  # of other kinds there is no outline
    decoder = vae.decoder
    for block in (decoder.mid_block, *decoder.up_blocks):
        if type(block).__name__ not in _BLOCKS:
            return f"its autoencoder has a block of the kind {type(block).__name__}"
        for each in block.resnets:
            if found := reason_against_resnet(each):
                return f"in its autoencoder {found}"
    attentions = decoder.mid_block.attentions
    if len(attentions) != 1 or attentions[0] is None or attentions[0].heads != 1:
        return "its autoencoder has no attention, or one with several heads"
    return None
