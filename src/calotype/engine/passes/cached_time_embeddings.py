"""What a timestep adds to every residual block, made once for each timestep.

The usual forward pass makes it again at every step, with a small matrix product in each block. Here one
product makes it for all blocks, and the next picture with the same schedule finds it made.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def _apply(assembly: NetworkBuilder) -> None:
    assembly.times_once = True


CACHED_TIME_EMBEDDINGS = Pass("times_once", "exact", no_requirements, _apply, after=(NATIVE_UNET.name,))
