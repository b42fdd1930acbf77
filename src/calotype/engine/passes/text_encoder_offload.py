"""Text encoders in main memory, each layer on the GPU only while it runs.

They are used for a moment at the start of a request, and SDXL's take 1.6 GB. Copying their layers costs a
fraction of a second for each prompt that is new.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    return None if model.device.type == "cuda" else "on a CPU they are in main memory already"


def _apply(assembly: NetworkBuilder) -> None:
    assembly.text_aside = True


TEXT_ENCODER_OFFLOAD = Pass("text_aside", "exact", _missing, _apply)
