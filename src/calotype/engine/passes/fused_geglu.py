"""The gate of a transformer's feed-forward layer in one pass over memory.

Its input is the widest tensor there is, eight times the transformer's width, and torch reads it twice and
writes the gate's activation between.
"""

from dataclasses import replace

from calotype.engine.kernels.geglu import geglu
from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.native_unet import OWN_FORWARD, nothing_more


def _apply(assembly: Assembly) -> None:
    assembly.operations = replace(assembly.operations, geglu=geglu)


FUSED_GEGLU = Pass("fused_geglu", "rounding", nothing_more, _apply, after=(OWN_FORWARD.name,))
