"""The whole evaluation compiled.

A compiler joins what stands between the matrix products into few passes over memory, here across blocks too.
A new shape runs uncompiled at once; what was compiled takes its place when another process has made it.
"""

from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.native_unet import OWN_FORWARD, nothing_more


def _apply(assembly: Assembly) -> None:
    assembly.compiled, assembly.compiled_behind = "whole", True


COMPILE_WHOLE = Pass(
    "compile_whole",
    "rounding",
    nothing_more,
    _apply,
    after=(OWN_FORWARD.name,),
    excludes=("compile_blocks", "compiled_ahead"),
)
