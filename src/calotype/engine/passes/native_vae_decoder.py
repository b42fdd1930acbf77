"""Our own decoder: channels-last, in the model's precision, and without overflow where that is fp16.

SDXL's autoencoder is otherwise run in fp32, and then the picture takes as long as several steps.
"""

from calotype.engine.memory_planner import UNJOINED_FACTOR, decoder_bytes
from calotype.engine.modules.vae_decoder import reason_against
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    return reason_against(model.vae)


def _apply(assembly: NetworkBuilder) -> None:
    assembly.own_decoder = True
    model = assembly.model
    assembly.resident_bytes += decoder_bytes(model.architecture, model.dtype.itemsize)
    if model.device.type == "cpu":
        assembly.activations *= UNJOINED_FACTOR


NATIVE_VAE_DECODER = Pass("own_decoder", "rounding", _missing, _apply)
