"""Which of torch's attention kernels to use, instead of leaving the choice to torch.

cuDNN's is the fastest on Hopper for the sizes of Stable Diffusion where it applies; flash is the usual one.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from calotype.engine.modules import ops
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    return None if model.device.type == "cuda" else "a CPU has one attention kernel"


def _with(*backends: SDPBackend) -> Callable[[NetworkBuilder], None]:
    def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        with sdpa_kernel(list(backends), set_priority=True):
            return ops.attention(query, key, value, mask)

    def apply(assembly: NetworkBuilder) -> None:
        assembly.operations = replace(assembly.operations, attention=attention)

    return apply


# Not every size or mask suits each of them: the ones after the first are for those.
CUDNN_ATTENTION = Pass(
    "cudnn_attention",
    "rounding",
    _missing,
    _with(SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION),
    after=(NATIVE_UNET.name,),
)
FLASH_ATTENTION = Pass(
    "flash_attention",
    "rounding",
    _missing,
    _with(SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION),
    after=(NATIVE_UNET.name,),
)
