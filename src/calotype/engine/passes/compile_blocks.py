"""Residual blocks and transformer layers compiled, each form once and used wherever it repeats.

A compiler joins what stands between the matrix products into few passes over memory. A UNet repeats a dozen
forms of blocks, so this takes a fraction of the time that the whole takes. A new shape runs uncompiled at
once; compiled blocks take their places when another process has made them.

In no preset: on an H200 our kernels are faster. The six forms of blocks that an evaluation of SD 1.5 at batch
16 spends most on take 37.5 ms of it compiled and 34.6 by them (`benchmarks/compiled_blocks.py`).
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def _apply(assembly: NetworkBuilder) -> None:
    assembly.compiled, assembly.compiled_behind = "blocks", True


COMPILE_BLOCKS = Pass("compile_blocks", "rounding", no_requirements, _apply, after=(NATIVE_UNET.name,))
