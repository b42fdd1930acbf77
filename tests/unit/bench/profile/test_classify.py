"""Every kernel finds its group and a sentence, by names that real programs have."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from calotype.bench.profile.classify import Kind, device_kind, host_kind, short_name
from calotype.engine import kernels

LISTS = json.loads((Path(__file__).parent / "kernel_names.json").read_text())
NAMES = [
    (kind, name, group)
    for title, groups in LISTS.items()
    for group, names in groups.items()
    for name in names
    for kind in [host_kind if "host" in title else device_kind]
]


def test_names_find_their_group() -> None:
    assert len(NAMES) > 130
    wrong = [(name, kind(name).group, group) for kind, name, group in NAMES if kind(name).group != group]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNN", "a matrix product of cuBLAS"),
        ("cutlass_80_simt_sgemm_128x64_8x5_nn_align1", "without tensor cores"),
        (
            "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_kernel__5x_cublas",
            "8-bit floats",
        ),
        ("sm90_xmma_gemm_i8i32_i8i32_i32_tn_n_tilesize128x128x128_kernel__5x_cublas", "8-bit integers"),
        ("sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc", "gradient for its weights"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16", "cuDNN's fused attention, backward"),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80", "memory-efficient"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL"),
        ("Memcpy DtoH (Device -> Pinned)", "from the device to the host"),
        ("triton_poi_fused_gelu_mul_split_view_57", "fused by torch.compile"),
    ],
)
def test_the_sentence_says_what_it_is(name: str, words: str) -> None:
    assert words in device_kind(name).what


def test_every_kernel_of_ours_is_known() -> None:
    sources = [path.read_text() for path in Path(kernels.__path__[0]).glob("*.py")]
    launched = {name for source in sources for name in _launched(ast.parse(source))}
    assert {"_geglu", "_layer_norm", "whole_groups"} <= launched
    assert {name: device_kind(name) for name in launched if "ours" not in device_kind(name).what} == {}


def _launched(module: ast.Module) -> list[str]:
    """Kernels that are started by themselves: those whose number of rows is left open."""
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    return [
        one.name for one in functions if any("do_not_specialize" in ast.dump(d) for d in one.decorator_list)
    ]


def test_a_name_nobody_knows_says_so() -> None:
    assert device_kind("zzz") == host_kind("zzz") == Kind("other", "nothing is known of this name")


def test_names_are_short_enough_for_a_line() -> None:
    for _, name, _ in NAMES:
        assert 0 < len(short_name(name)) <= 96
    long = "void at::native::(anonymous namespace)::softmax<c10::Half, 7>(c10::Half*, int)"
    assert short_name(long) == "softmax<Half, 7>"
