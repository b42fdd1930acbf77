"""Name patterns of kernels on NVIDIA GPUs; the first match counts.

The names come from NVIDIA's libraries, torch, Triton and this package.
"""

from __future__ import annotations

from typing import Final

from calotype.spec.records.profile import Group

_MOVES_ONLY = "_to_copy|cat|clone|constant_pad_nd|copy|expand|permute|select|slice|split|squeeze|stack|t"
_MOVES_ONLY += "|transpose|unsqueeze|view|_unsafe_view|reshape|arange|full|zeros|embedding|index"

_COPIES: Final[list[tuple[str, Group, str]]] = [
    (r"^Memcpy HtoD", "memory", "a copy from the host to the device"),
    (r"^Memcpy DtoH", "memory", "a copy from the device to the host; the host often waits for it"),
    (r"^Memcpy (DtoD|PtoP)", "memory", "a copy within the device or between two"),
    (r"^Mem(cpy|set)", "memory", "a copy or a fill"),
    (r"(?i)nccl", "memory", "NCCL: communication between devices"),
]

_OWN: Final[list[tuple[str, Group, str]]] = [
    (r"^whole_groups$", "normalisation", "ours: group norm (and SiLU) of whole groups, read once"),
    (r"^chunk_statistics$", "normalisation", "ours: sums for the group norm of a large image"),
    (r"^apply_chunks$", "normalisation", "ours: the group norm (and SiLU) of a large image, applied"),
    (
        r"^_layer_norm$",
        "normalisation",
        "ours: layer norm, fused with the preceding addition and 8-bit quantization",
    ),
    (
        r"^_geglu_quanti[sz]ed$",
        "elementwise",
        "ours: the gate of a feed-forward layer (GEGLU), quantized to 8 bits",
    ),
    (r"^_geglu$", "elementwise", "ours: the gate of a feed-forward layer (GEGLU)"),
    (
        r"^_geglu_backward$",
        "elementwise",
        "ours: the gradient of a feed-forward layer's gate, and of the bias before it",
    ),
    (r"^_quanti[sz]e$", "elementwise", "ours: quantization to 8 bits with a scale per row"),
    (r"^_rescale$", "elementwise", "ours: dequantization of an 8-bit matrix product, with its bias"),
    (
        r"^_product(_speciali[sz]ed)?$",
        "matmul",
        "ours: an 8-bit matrix product with fused dequantization",
    ),
    (
        r"^_convolution_(in_boxes|by_pointers)$",
        "convolution",
        "ours: a 3×3 FP8 convolution on the tensor cores",
    ),
    (r"^_adamw$", "elementwise", "ours: clipping, AdamW and the running average of all weights in one pass"),
    (r"^_add$", "elementwise", "ours: addition of a residual and a bias"),
    (r"^_upsample$", "memory", "ours: nearest-neighbor upsampling by 2"),
]

_ATTENTION: Final[list[tuple[str, Group, str]]] = [
    (r"sdpa.*(bprop|bwd)", "attention", "cuDNN's fused attention, backward"),
    (r"sdpa", "attention", "cuDNN's fused attention"),
    (r"compute_dot_do_o|convert_dq_to_16bits", "attention", "a helper of cuDNN's attention, backward"),
    (r"flash_bwd|flash::.*bwd|FlashAttnBwd", "attention", "FlashAttention, backward"),
    (
        r"flash_fwd|flash::|FlashAttn|pytorch_flash",
        "attention",
        "FlashAttention: no score matrix is written",
    ),
    (r"fmha_cutlassB|AttentionBackwardKernel", "attention", "torch's memory-efficient attention, backward"),
    (r"fmha|AttentionKernel", "attention", "torch's memory-efficient attention (cutlass)"),
    (r"^_attention$", "attention", "ours: self-attention, written for Hopper"),
    (r"triton_tem_fused.*flex_attention", "attention", "flex attention, compiled by Triton"),
    (r"(?i)softmax", "attention", "a softmax by itself: attention that is not fused"),
]

_CONVOLUTION: Final[list[tuple[str, Group, str]]] = [
    (r"triton_tem_fused.*convolution", "convolution", "a convolution compiled by Triton"),
    (r"(?i)wgrad", "convolution", "a convolution's gradient for its weights (cuDNN)"),
    (r"(?i)dgrad", "convolution", "a convolution's gradient for its input (cuDNN)"),
    (
        r"(?i)fprop|implicit_gemm|implicitgemm|implicit_convolve|conv2d|convolve|winograd",
        "convolution",
        "a convolution as a matrix product on the tensor cores (cuDNN)",
    ),
    (
        r"cudnn_infer|cudnn::cnn|cudnn.*conv|conv_depthwise|im2col|col2im",
        "convolution",
        "a convolution (cuDNN or torch)",
    ),
    (
        r"init_device_workspace_kernel|cutlass__5x_cudnn.*ReduceSplitK",
        "convolution",
        "a helper of cuDNN's convolutions",
    ),
    (
        r"nchwToNhwc|nhwcToNchw|nhwcAddPadding|tensorTransform|nchw2nhwc|nhwc2nchw",
        "memory",
        "cuDNN converts the memory layout; channels last avoids it",
    ),
]

_MATMUL: Final[list[tuple[str, Group, str]]] = [
    (
        r"splitK_?reduce|splitKreduce|SplitK.*reduc",
        "matmul",
        "split-K reduction of a matrix product",
    ),
    (r"triton_tem_fused", "matmul", "a matrix product compiled by Triton"),
    (r"nvjet", "matmul", "a matrix product of cuBLAS, written for Hopper and later"),
    (
        r"_ffma_|simt_sgemm|_sgemm_|sgemm_\d|ampere_sgemm",
        "matmul",
        "a matrix product in fp32, without tensor cores",
    ),
    (r"i8816|i16832|i8i32|i8i8|gemm_s8|_imma|igemm", "matmul", "a matrix product of 8-bit integers"),
    (r"gemm\w*(e4m3|e5m2|fp8)|qgmma", "matmul", "a matrix product of 8-bit floats"),
    (r"(?i)gemm|wgmma|xmma", "matmul", "a matrix product on the tensor cores (cuBLAS or cutlass)"),
    (r"gemv|dot_kernel|cublas", "matmul", "a product with a vector, or a helper of cuBLAS"),
]

_INDUCTOR: Final[list[tuple[str, Group, str]]] = [
    (
        r"^triton_\w+_fused\w*?(native_group_norm|native_layer_norm|var_mean|rsqrt|group_norm|layer_norm)",
        "normalisation",
        "normalization with adjacent operations, fused by torch.compile",
    ),
    (
        r"^triton_(red|per)_fused\w*?(pow\w*_sum|silu_backward\w*_sum|native_batch_norm)",
        "normalisation",
        "sums for a normalization or its gradient, fused by torch.compile",
    ),
    (rf"^triton_poi_fused(_({_MOVES_ONLY}))+_\d+", "memory", "copies or casts, by torch.compile"),
    (
        r"^triton_(red|per)_",
        "elementwise",
        "sums over a dimension, fused with what comes before (torch.compile)",
    ),
    (r"^triton_for_", "elementwise", "one step over a list of tensors (torch.compile)"),
    (r"^triton_", "elementwise", "elementwise operations fused by torch.compile"),
]

_TORCH: Final[list[tuple[str, Group, str]]] = [
    (
        r"(?i)group_?norm|layer_?norm|RowwiseMoments|batch_norm|bn_fw|bn_bw|ComputeFusedParams|rms_?norm",
        "normalisation",
        "normalization (torch's own kernels)",
    ),
    (r"FusedAdam|FusedOptimizer|FusedSgd", "elementwise", "the optimizer's step over all tensors"),
    (r"LpNormFunctor|lpnorm_cleanup", "elementwise", "the norm of the gradient"),
    (
        r"multi_tensor_apply",
        "elementwise",
        "one step over a list of tensors: gradient clipping, averages, optimizer",
    ),
    (r"CatArrayBatchedCopy", "memory", "concatenation of tensors (cat)"),
    (
        r"direct_copy_kernel|copy_kernel|bfloat16_copy|float16_copy|float8_copy",
        "memory",
        "a copy: another layout or precision",
    ),
    (r"FillFunctor|fill_kernel", "memory", "a fill"),
    (r"(?i)upsample|interpolat", "memory", "resampling of an image"),
    (
        r"(?i)index|gather|scatter|embedding|arange|pad|flip|(?<!un)roll|sort|transpose|triu|tril",
        "memory",
        "indexing, scatter or ranges",
    ),
    (r"distribution|philox|random|normal_and_transform", "elementwise", "random number generation"),
    (r"pool", "elementwise", "pooling"),
    (r"reduce_kernel|ReduceOp|cub::|scan", "elementwise", "sums, means or other reductions"),
    (
        r"elementwise|vectorized|unrolled|pointwise|Functor",
        "elementwise",
        "elementwise operations (torch's own kernels, not fused)",
    ),
]

DEVICE_KINDS: Final = [*_COPIES, *_OWN, *_ATTENTION, *_CONVOLUTION, *_MATMUL, *_INDUCTOR, *_TORCH]
