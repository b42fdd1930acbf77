"""Each text encoder launched as one CUDA graph.

A prompt is a few rows: its kernels are over long before the next can be launched from Python. SDXL's two
encoders have more than a thousand of them.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    return None if model.device.type == "cuda" else "CUDA graphs need a GPU"


def _apply(assembly: NetworkBuilder) -> None:
    assembly.text_graphed = True


# A graph reads weights where they were when it was recorded, and encoders that wait aside come and go.
TEXT_ENCODER_CUDA_GRAPH = Pass("text_graph", "exact", _missing, _apply, excludes=("text_aside",))
