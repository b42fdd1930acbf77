"""The normal distribution in kernels, for GELU and its gradient."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def below_and_density(x):
    """The share below `x`, to 1e-8 besides rounding, and the density there; what is not used costs nothing.

    A tail is the bell curve times a smooth function, here a polynomial that was fitted to it. The error
    function of Triton's library has twice the instructions, and kernels that should wait for memory alone
    wait for them.
    """
    bell = tl.exp2(x * x * -0.7213475204444817)
    t = 1.0 / (1.0 + 0.28 * tl.abs(x))
    fitted = -0.10580873520717746 * t + 0.38987601247970294
    fitted = fitted * t - 0.23699669801330772
    fitted = fitted * t + 0.268912742817096
    fitted = fitted * t + 0.06749572759959135
    fitted = fitted * t + 0.11652094104291955
    tail = fitted * t * bell
    return tl.where(x < 0, tail, 1.0 - tail), bell * 0.3989422804014327
