"""The gate of a transformer's feed-forward layer in one pass over memory.

Its input is the widest tensor there is, eight times the transformer's width, and torch reads it twice and
writes the gate's activation between.
"""

from dataclasses import replace

from calotype.engine.kernels.geglu import geglu
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def _apply(assembly: NetworkBuilder) -> None:
    assembly.operations = replace(assembly.operations, geglu=geglu)


FUSED_GEGLU = Pass("fused_geglu", "rounding", no_requirements, _apply, after=(NATIVE_UNET.name,))
