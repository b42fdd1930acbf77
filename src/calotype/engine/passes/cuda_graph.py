"""A whole evaluation launched as one CUDA graph.

A small batch's kernels are over before the next can be launched from Python: at SD 1.5 and one picture the
CPU is the limit. A graph is launched once.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    return None if model.device.type == "cuda" else "CUDA graphs need a GPU"


def _apply(assembly: NetworkBuilder) -> None:
    assembly.graphed = True


CUDA_GRAPH = Pass("cuda_graph", "exact", _missing, _apply, after=(NATIVE_UNET.name,))
