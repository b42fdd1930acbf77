"""Cross-attention's keys and values made once for each prompt.

They depend on the prompt alone, while the usual forward pass makes them again at every step.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def _apply(assembly: NetworkBuilder) -> None:
    assembly.prompts_once = True


CACHED_CROSS_ATTENTION_KV = Pass("prompts_once", "exact", no_requirements, _apply, after=(NATIVE_UNET.name,))
