"""Our own forward pass over the model's weights.

By itself it saves little: sums and biases go where a tensor is read anyway, a skip connection is put together
once. It is what most other passes build on, because here every operation is a function that can be replaced.
"""

from calotype.engine.modules.unet import reason_against
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    return reason_against(model.unet)


def _apply(assembly: NetworkBuilder) -> None:
    assembly.native_unet = True


NATIVE_UNET = Pass("own_forward", "rounding", _missing, _apply)


def no_requirements(_: Model) -> None:
    """For passes that need our own forward pass and nothing else."""
