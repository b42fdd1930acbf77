"""The whole evaluation compiled.

A compiler joins what stands between the matrix products into few passes over memory, here across blocks too.
A new shape runs uncompiled at once; what was compiled takes its place when another process has made it.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def _apply(assembly: NetworkBuilder) -> None:
    assembly.compiled, assembly.compiled_behind = "whole", True


COMPILE_WHOLE = Pass(
    "compile_whole",
    "rounding",
    no_requirements,
    _apply,
    after=(NATIVE_UNET.name,),
    excludes=("compile_blocks", "compiled_ahead"),
)
