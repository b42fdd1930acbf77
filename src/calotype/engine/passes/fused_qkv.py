"""Query, key and value of self-attention from one matrix product.

Three products of the same input read it three times and are each too narrow to fill a large GPU; one does
better on both counts.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def _apply(assembly: NetworkBuilder) -> None:
    assembly.joined_qkv = True


FUSED_QKV = Pass("joined_qkv", "rounding", no_requirements, _apply, after=(NATIVE_UNET.name,))
