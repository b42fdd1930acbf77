"""The kernel of a sum with a bias, in one pass over flat memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048


def launch(x: Tensor, addend: Tensor, bias: Tensor) -> Tensor:
    x, addend = x.contiguous(), addend.contiguous()
    assert addend.shape == x.shape, (addend.shape, x.shape)
    assert bias.shape == x.shape[-1:], (bias.shape, x.shape)
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):
        _add[(triton.cdiv(x.numel(), _BLOCK),)](
            x, addend, bias.contiguous(), out, x.numel(), x.shape[-1], BLOCK=_BLOCK, num_warps=4
        )
    return out


@triton.jit(do_not_specialize=["count"])
def _add(x, addend, bias, out, count, width, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    taken = places < count
    total = tl.load(x + places, mask=taken, other=0.0).to(tl.float32)
    total += tl.load(addend + places, mask=taken, other=0.0).to(tl.float32)
    total += tl.load(bias + places % width, mask=taken, other=0.0).to(tl.float32)
    tl.store(out + places, total.to(out.dtype.element_ty), mask=taken)
