"""NaN and infinite weights are reported by name."""

import math
from pathlib import Path

import torch
from safetensors.torch import save_file

from calotype.models.files.finite_check import find_non_finite
from calotype.models.files.safetensors_reader import open_safetensors


def test_tensors_with_nan_or_infinity_are_named(tmp_path: Path) -> None:
    good = torch.zeros(2, 3)
    tensors = {
        "fine": good,
        "half.nan": torch.tensor([1, math.nan]).half(),
        "bf16.inf": torch.tensor([-math.inf]).bfloat16(),
        "f8.nan": torch.tensor([0.5, math.nan]).to(torch.float8_e4m3fn),
        "f8.fine": torch.tensor([0.5]).to(torch.float8_e5m2),
        "complex.nan": torch.tensor([complex(0, math.nan)]).to(torch.complex64),
        "integers": torch.tensor([2**31 - 1], dtype=torch.int32),
        "empty": torch.empty(0),
    }
    save_file(tensors, tmp_path / "m.safetensors")
    with open_safetensors(tmp_path / "m.safetensors") as reader:
        assert sorted(find_non_finite(reader)) == ["bf16.inf", "complex.nan", "f8.nan", "half.nan"]
