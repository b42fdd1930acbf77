"""A model's folder as diffusers runs it, and what was exported of it as onnxruntime does. Knows no test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from transformers import CLIPTokenizer

Array = NDArray[Any]
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}


@dataclass(frozen=True)
class Exported:
    """Both sides, and what the command said."""

    source: Path
    folder: Path
    said: str
    close: float
    """Share of the largest number that an output may be off by."""

    @cached_property
    def theirs(self) -> Any:
        """diffusers' own reading of the source."""
        pipeline = diffusers.DiffusionPipeline.from_pretrained(str(self.source), torch_dtype=torch.float32)
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    def run(self, part: str, **inputs: Array) -> dict[str, Array]:
        """One part's outputs by name, in full precision; inputs in the precision the file takes."""
        session = _session(self.folder / part / "model.onnx")
        taken = {value.name: TYPES[value.type] for value in session.get_inputs()}
        names = [output.name for output in session.get_outputs()]
        outputs = session.run(names, {name: values.astype(taken[name]) for name, values in inputs.items()})
        return {name: values.astype(np.float32) for name, values in zip(names, outputs, strict=True)}

    def ids(self, tokenizer: str, texts: list[str]) -> Array:
        made = CLIPTokenizer.from_pretrained(str(self.folder / tokenizer))
        return made(texts, padding="max_length", max_length=77, return_tensors="np").input_ids


@cache
def _session(file: Path) -> Any:
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def farthest(found: Array, expected: Array) -> float:
    """The largest difference, as a share of the largest number."""
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())
