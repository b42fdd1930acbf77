"""A network without numbers: tensors that have a form and no memory. Knows nothing of compilers.

A compiler needs no more, and beside a model that fills a GPU there is no room for a second one.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from calotype.models.architecture import Architecture
from calotype.models.model import Model
from calotype.models.reference import random_identity


def hollow_model(architecture: Architecture, dtype: torch.dtype, device: torch.device) -> Model:
    """With a UNet alone. For use inside the `FakeTensorMode` it was made in."""
    unet = architecture.build("unet").to_empty(device=device).to(dtype).requires_grad_(False).eval()
    identity = random_identity("hollow", architecture, 0)
    return Model(architecture, identity, unet, None, [], [], dtype, device)


def hollow() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=True)
