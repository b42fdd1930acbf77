"""The whole evaluation as `calotype engine build` has compiled it; other shapes run as they are.

Unlike `compile_whole` it compiles nothing by itself: a picture that takes two seconds is no reason for two
minutes of compiling.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def _apply(assembly: NetworkBuilder) -> None:
    assembly.compiled = "whole"


AOT_COMPILED = Pass(
    "compiled_ahead",
    "rounding",
    no_requirements,
    _apply,
    after=(NATIVE_UNET.name,),
    excludes=("compile_blocks", "compile_whole"),
)
