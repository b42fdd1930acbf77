"""Read tensors from the bytes of a small `.npy` or safetensors file, without unpickling."""

import io
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.files.safe_open import OpenedFile
from calotype.models.files.safetensors_reader import TensorFile
from calotype.train.data.bad_samples import CorruptSampleError

_NPY_START = b"\x93NUMPY"


def tensors_in(content: bytes, name: str) -> dict[str, Tensor]:
    """The tensors by name; an `.npy` has one, which is used as latents."""
    if not content:
        raise CorruptSampleError(name, "its latents are empty (0 bytes)")
    if content.startswith(_NPY_START):
        return {"latents": _from_npy(content, name)}
    # The safetensors checks need a file; a memfd never touches the disk.
    descriptor = os.memfd_create("tensors")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        with TensorFile(OpenedFile(Path(name), descriptor)) as tensors:
            descriptor = -1
            return {key: tensors.read(key) for key in tensors}
    except ModelFileError as error:
        raise CorruptSampleError(
            name, f"its latents are neither .npy nor safetensors: {error.rule}"
        ) from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _from_npy(content: bytes, name: str) -> Tensor:
    try:
        return torch.from_numpy(np.load(io.BytesIO(content), allow_pickle=False))
    except (ValueError, TypeError, EOFError, OSError) as error:
        raise CorruptSampleError(name, f"its latents cannot be read: {error}") from None
