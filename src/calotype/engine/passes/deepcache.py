"""Evaluations leave out the deep part of the UNet as long as the noise is nearly that of its last picture.

About twice as fast with twenty steps, and a slightly different picture: see what it costs with `calotype
compare`.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def _apply(assembly: NetworkBuilder) -> None:
    assembly.step_cached = True


# What is compiled as a whole cannot leave out a part.
DEEPCACHE = Pass(
    "step_cache",
    "lossy",
    no_requirements,
    _apply,
    after=(NATIVE_UNET.name,),
    excludes=("compile_whole", "compiled_ahead"),
)
