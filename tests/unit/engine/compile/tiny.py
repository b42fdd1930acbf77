"""A model with as few blocks as a UNet can have: compiling it takes seconds. Knows nothing of any test."""

from __future__ import annotations

from calotype.models.architecture import Architecture
from tests.engines import with_unet
from tests.small_models import shrunk


def tiny() -> Architecture:
    return with_unet(
        shrunk("emoji"),
        down_block_types=("DownBlock2D",),
        up_block_types=("UpBlock2D",),
        block_out_channels=(32,),
        attention_head_dim=(2,),
        layers_per_block=1,
    )
