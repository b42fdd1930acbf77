"""What both halves of guidance compute alike, computed once: all before the first attention to a prompt.

The two rows of a picture have one latent and one timestep, and only prompts tell them apart. The embedded
model's first level has no attention at all. SDXL tells its prompt to the time embedding too, so nothing is
alike there.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def _apply(assembly: NetworkBuilder) -> None:
    assembly.shared_latents = assembly.model.architecture.unet.get("addition_embed_type") is None


SHARED_CFG_TRUNK = Pass("shared_guidance", "rounding", no_requirements, _apply, after=(NATIVE_UNET.name,))
