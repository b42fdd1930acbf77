"""Query, key and value of self-attention from one matrix product.

Three products of the same input read it three times and are each too narrow to fill a large GPU; one does
better on both counts.
"""

from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.native_unet import OWN_FORWARD, nothing_more


def _apply(assembly: Assembly) -> None:
    assembly.joined_qkv = True


JOINED_QKV = Pass("joined_qkv", "rounding", nothing_more, _apply, after=(OWN_FORWARD.name,))
