"""Evaluations leave out the deep part of the UNet as long as the noise is nearly that of its last picture.

About twice as fast with twenty steps, and a slightly different picture: see what it costs with `calotype
compare`.
"""

from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.native_unet import OWN_FORWARD, nothing_more


def _apply(assembly: Assembly) -> None:
    assembly.step_cached = True


# What is compiled as a whole cannot leave out a part.
STEP_CACHE = Pass(
    "step_cache",
    "lossy",
    nothing_more,
    _apply,
    after=(OWN_FORWARD.name,),
    excludes=("compile_whole", "compiled_ahead"),
)
