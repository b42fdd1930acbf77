"""A network without numbers: its tensors have a form and no memory. Knows nothing of compilers.

A compiler needs no more, and beside a model that fills a GPU there is no room for a second one.
"""

from __future__ import annotations

import torch

from calotype.models.architecture import Architecture
from calotype.models.model import Model
from calotype.models.reference import random_identity


def hollow_model(architecture: Architecture, dtype: torch.dtype, device: torch.device) -> Model:
    """With a UNet alone, on the meta device, but for what it says of itself."""
    unet = architecture.outline("unet").to(dtype).requires_grad_(False).eval()
    identity = random_identity("hollow", architecture, 0)
    return Model(architecture, identity, unet, None, [], [], dtype, device)
