"""What a timestep adds to every residual block, made once for each timestep.

The usual forward pass makes it again at every step, with a small matrix product in each block. Here one
product makes it for all blocks, and the next picture with the same schedule finds it made.
"""

from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.native_unet import OWN_FORWARD, nothing_more


def _apply(assembly: Assembly) -> None:
    assembly.times_once = True


TIMES_ONCE = Pass("times_once", "exact", nothing_more, _apply, after=(OWN_FORWARD.name,))
