"""The transformers of a UNet: places look at each other and at the prompt. Knows no other blocks."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from calotype.engine.compile.region import Region, Wrap, unwrapped
from calotype.engine.modules.fused_linear import fuse_linears
from calotype.engine.modules.ops import (
    DeferredSum,
    Operations,
    for_rows,
    image_to_tokens,
    pointwise,
    tokens_to_image,
)

_QKV = "joined_qkv"


class Layer:
    """diffusers' BasicTransformerBlock as Stable Diffusion uses it."""

    def __init__(self, block: Any, operations: Operations, *, joined_qkv: bool) -> None:
        self._block, self._do = block, operations
        own, prompt = block.attn1, block.attn2
        self._heads = own.heads
        self._joined_qkv = joined_qkv
        if joined_qkv:
            # The block's own, so that it is among the numbers whoever compiles the block asks it for.
            own.register_buffer(_QKV, fuse_linears([own.to_q, own.to_k, own.to_v])[0], persistent=False)
        self.prompt_kv, _ = fuse_linears([prompt.to_k, prompt.to_v])
        """What makes a prompt's keys and values for this layer."""

    def region(self, name: str) -> Region:
        # Of a prompt and its mask the tokens stay open.
        settings = f"{self._heads} heads, joined: {self._joined_qkv}"
        return Region(name, self._block, self, settings, open_sizes={3: 1, 4: 3})

    def __call__(
        self, x: Tensor, addend: Tensor | None, bias: Tensor | None, prompt: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Sums are left to whoever normalises next: a layer takes and returns (x, what to add, its bias).

        `prompt` holds keys and values, (rows, tokens, 2 × channels). Where it has more rows than `x`, those
        of `x` start over with it, and as many come out as prompts went in.
        """
        block, do = self._block, self._do
        normal, x = do.layer_norm(x, block.norm1, addend, bias)
        seen = self._merge(do.attention(*self._own(normal), None))
        seen = do.linear(seen, block.attn1.to_out[0].weight, None)
        normal, x = do.layer_norm(x, block.norm2, seen, block.attn1.to_out[0].bias)
        (query,) = self._split(do.linear(normal, block.attn2.to_q.weight, None), 1)
        query, x = for_rows(query, len(prompt)), for_rows(x, len(prompt))
        key, value = self._split(prompt, 2)
        seen = self._merge(do.attention(query, key, value, mask))
        seen = do.linear(seen, block.attn2.to_out[0].weight, None)
        normal, x = do.layer_norm(x, block.norm3, seen, block.attn2.to_out[0].bias)
        widen, narrow = block.ff.net[0].proj, block.ff.net[2]
        wide = do.geglu(do.linear(normal, widen.weight, widen.bias))
        return x, do.linear(wide, narrow.weight, None), narrow.bias

    def _own(self, x: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value of self-attention."""
        own = self._block.attn1
        if self._joined_qkv:
            return self._split(self._do.linear(x, getattr(own, _QKV), None), 3)
        layers = (own.to_q, own.to_k, own.to_v)
        return tuple(self._split(self._do.linear(x, each.weight, None), 1)[0] for each in layers)

    def _split(self, numbers: Tensor, parts: int) -> tuple[Tensor, ...]:
        return numbers.unflatten(-1, (parts, self._heads, -1)).permute(2, 0, 3, 1, 4).unbind()

    def _merge(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)


class Transformer:
    """diffusers' Transformer2DModel over a picture."""

    def __init__(
        self, module: Any, operations: Operations, *, joined_qkv: bool, name: str = "", wrap: Wrap = unwrapped
    ) -> None:
        self._module, self._do = module, operations
        self.layers = [Layer(block, operations, joined_qkv=joined_qkv) for block in module.transformer_blocks]
        self._runs = [
            wrap(layer.region(f"{name}.transformer_blocks.{place}"))
            for place, layer in enumerate(self.layers)
        ]

    def __call__(self, picture: DeferredSum, prompts: list[Tensor], mask: Tensor | None) -> DeferredSum:
        """`prompts` has keys and values for each layer."""
        module, do = self._module, self._do
        normal, whole = do.group_norm(picture, module.norm, silu=False)
        x = do.outer_linear(image_to_tokens(normal), pointwise(module.proj_in), module.proj_in.bias)
        addend: Tensor | None = None
        bias: Tensor | None = None
        for run, prompt in zip(self._runs, prompts, strict=True):
            x, addend, bias = run(x, addend, bias, prompt, mask)
        assert addend is not None
        out = do.outer_linear(do.add(x, addend, bias), pointwise(module.proj_out), None)
        whole = for_rows(whole, len(out))
        return DeferredSum(whole, tokens_to_image(out, whole), module.proj_out.bias)


def reason_against(module: Any) -> str | None:
    """Why a transformer of this class cannot be run here."""
    for block in module.transformer_blocks:
        own, prompt = block.attn1, block.attn2
        plain = block.norm_type == "layer_norm" and not block.only_cross_attention and prompt is not None
        if not plain or block.pos_embed is not None:
            return "a transformer normalises or attends in an unusual way"
        if type(block.ff.net[0]).__name__ != "GEGLU":
            return "a transformer's feed-forward layer is not GEGLU"
        for attention in (own, prompt):
            unusual = (attention.group_norm, attention.spatial_norm, attention.norm_q, attention.to_q.bias)
            if any(part is not None for part in unusual) or attention.rescale_output_factor != 1:
                return "an attention has parts of its own"
    return None
