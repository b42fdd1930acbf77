"""Cross-attention's keys and values made once for each prompt.

They depend on the prompt alone, while the usual forward pass makes them again at every step.
"""

from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.native_unet import OWN_FORWARD, nothing_more


def _apply(assembly: Assembly) -> None:
    assembly.prompts_once = True


PROMPTS_ONCE = Pass("prompts_once", "exact", nothing_more, _apply, after=(OWN_FORWARD.name,))
