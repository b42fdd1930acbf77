"""oneDNN's products and convolutions, asked by ourselves, are torch's; who is asked is read off the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from calotype.core import hardware
from calotype.engine.modules import onednn

CPUINFO = "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {}\nmodel name\t: one\n\nprocessor\t: 1\n"


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("shape", [(2, 9, 48), (1, 48), (48,), (2, 3, 4, 48)])
@pytest.mark.parametrize("biased", [True, False])
def test_a_linear_layer(shape: tuple[int, ...], biased: bool) -> None:
    torch.manual_seed(1)
    x, layer = torch.randn(shape), nn.Linear(48, 20).requires_grad_(False)
    bias = layer.bias if biased else None
    found, wanted = onednn.linear(x, layer.weight, bias), functional.linear(x, layer.weight, bias)
    assert found.shape == wanted.shape
    assert error(found, wanted) < 2e-6


def test_a_linear_layer_in_half_precision() -> None:
    x, layer = torch.randn(2, 9, 48).bfloat16(), nn.Linear(48, 20).bfloat16().requires_grad_(False)
    assert torch.equal(onednn.linear(x, layer.weight, layer.bias), layer(x))


@pytest.mark.parametrize("whether", ["as it is", "packed"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution(stride: int, whether: str) -> None:
    torch.manual_seed(2)
    layer = nn.Conv2d(24, 40, 3, padding=1, stride=stride).requires_grad_(False)
    x = torch.randn(2, 24, 9, 14).to(memory_format=torch.channels_last)
    kernels = layer.weight
    if whether == "packed":
        kernels = onednn.pack_weight(kernels, layer.padding, layer.stride)
        assert kernels.is_mkldnn
    found = onednn.convolution(x, kernels, layer.bias, layer.padding, layer.stride)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert error(found, layer(x)) < 2e-6


@pytest.mark.parametrize("whether", ["as they are", "packed"])
def test_products_side_by_side(whether: str) -> None:
    torch.manual_seed(3)
    x, matrices = torch.randn(2, 3, 4, 5, 24), torch.randn(5, 24, 16)
    kernels = matrices.transpose(1, 2).flatten(0, 1)[:, :, None, None].contiguous()
    if whether == "packed":
        kernels = onednn.pack_weight(kernels, parts=5)
    found = onednn.concat_weights(x.flatten(3), kernels, 5)
    assert error(found.unflatten(3, (5, 16)), torch.einsum("nhwpi,pio->nhwpo", x, matrices)) < 2e-6


@pytest.mark.parametrize(
    ("vendor", "family", "instructions", "worth_it"),
    [
        ("AuthenticAMD", 26, "AVX512", True),  # Zen 5
        ("AuthenticAMD", 26, "AVX2", False),
        ("AuthenticAMD", 25, "AVX512", False),  # Zen 4: 512 bits in two turns
        ("GenuineIntel", 6, "AVX512", False),
        ("GenuineIntel", 26, "AVX512", False),
    ],
)
def test_it_is_worth_it_where_mkl_leaves_half_of_a_processor_idle(
    vendor: str,
    family: int,
    instructions: str,
    worth_it: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(vendor, family))
    monkeypatch.setattr(onednn, "read_family", lambda: hardware.read_family(tmp_path))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    assert onednn.is_faster_here.__wrapped__() == worth_it


def test_a_processor_that_does_not_say_what_it_is(tmp_path: Path) -> None:
    assert hardware.read_family(tmp_path) == ("", 0)
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nCPU implementer\t: 0x41\n")
    assert hardware.read_family(tmp_path) == ("", 0)
