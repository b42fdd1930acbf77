"""The whole evaluation as `calotype engine build` has compiled it; other shapes run as they are.

Unlike `compile_whole` it compiles nothing by itself: a picture that takes two seconds is no reason for two
minutes of compiling.
"""

from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.native_unet import OWN_FORWARD, nothing_more


def _apply(assembly: Assembly) -> None:
    assembly.compiled = "whole"


COMPILED_AHEAD = Pass(
    "compiled_ahead",
    "rounding",
    nothing_more,
    _apply,
    after=(OWN_FORWARD.name,),
    excludes=("compile_blocks", "compile_whole"),
)
