"""As many pictures at once as fit, up to 64, instead of 16.

A large batch reads each weight once for all its pictures and fills a GPU to the end of every matrix product.
The first picture of many comes later, all of them come sooner; on an H200 not much: 64 pictures of SD 1.5 at
once are 5.22 a second, 16 at once 5.16.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.models.model import Model

MAX_IMAGES = 64


def _missing(model: Model) -> str | None:
    return None if model.device.type == "cuda" else "a CPU is busy with one picture already"


def _apply(assembly: NetworkBuilder) -> None:
    assembly.most_at_once = MAX_IMAGES


LARGE_BATCH = Pass("large_batches", "exact", _missing, _apply)
