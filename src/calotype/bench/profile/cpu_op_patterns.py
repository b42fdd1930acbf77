"""Patterns of the names that torch's operations have on the host; the first that matches counts.

On a machine without a GPU they are where the time goes. Knows nothing of times.
"""

from __future__ import annotations

from typing import Final

from calotype.spec.records.profile import Group

HOST_KINDS: Final[list[tuple[str, Group, str]]] = [
    (r"^calotype::compiled$", "other", "compiled code, without the calls that it leaves to torch"),
    (r"scaled_dot_product|flash_attention", "attention", "fused attention on the processor"),
    (r"softmax", "attention", "a softmax by itself: attention that is not fused"),
    (r"convolution|conv[123]d|slow_conv|mkldnn_conv", "convolution", "a convolution (oneDNN where it can)"),
    (
        r"aten::(mm|addmm|bmm|baddbmm|matmul|linear|addmv|mv|dot|_int_mm|_scaled_mm|einsum)$|mkldnn(_|::_)linear|mkl_linear",
        "matmul",
        "a matrix product (MKL or oneDNN)",
    ),
    (r"group_norm|layer_norm|batch_norm|rms_norm|_norm_backward", "normalisation", "normalisation"),
    (r"nccl|c10d|gloo|all_?reduce|all_?gather", "memory", "numbers exchanged between processes"),
    (
        r"aten::(copy_|_to_copy|to|clone|contiguous|cat|stack|pad|constant_pad_nd|fill_|zero_|zeros|zeros_like)$",
        "memory",
        "numbers copied, cast, put together or set",
    ),
    (
        r"aten::(empty|resize_|new_|set_|arange|linspace|eye|full|ones|scalar_tensor|lift)",
        "memory",
        "memory taken",
    ),
    (
        r"upsample|aten::(index|gather|scatter|embedding|repeat|roll|flip|masked|where|_local_scalar|item|sort|nonzero)",
        "memory",
        "numbers looked up, repeated or put elsewhere",
    ),
    (
        r"aten::(view|_unsafe_view|reshape|_reshape_alias|expand|permute|transpose|t|slice|select|unsqueeze|squeeze"
        r"|as_strided|split|chunk|detach|alias|narrow|unbind|flatten|detach_|result_type|is_)",
        "other",
        "a tensor seen another way: no work, only the time it takes to say so",
    ),
    (r"^autograd::|Backward\d*$|AccumulateGrad", "other", "autograd finding out what to do next"),
    (r"^Optimizer|_fused_adam|_foreach", "elementwise", "the optimizer, or one step over a list of tensors"),
    (
        r"aten::(sum|mean|var|std|amax|amin|max|min|norm|linalg|cumsum|any|all|prod)",
        "elementwise",
        "sums, means or other reductions",
    ),
    (r"aten::(normal|randn|rand|uniform|bernoulli|random)", "elementwise", "random numbers drawn"),
    (r"aten::.*pool", "elementwise", "pooling"),
    (r"^aten::", "elementwise", "number by number"),
    (
        r"Torch-Compiled|CompiledFunction|graph_\d+_|cpp_fused|inductor",
        "elementwise",
        "code made by torch.compile",
    ),
]
