"""How something laid over a larger whole fades at its edges. Knows nothing of what it is."""

import torch
from torch import Tensor


def faded(length: int, start: int, whole: int, fade: int) -> Tensor:
    """How much each place of a stretch counts: less towards an end that is not the whole's, over `fade`."""
    share = torch.ones(length)
    rise = (torch.arange(1, fade + 1) / max(1, fade))[:length]
    if start != 0:
        share[: len(rise)] *= rise
    if start + length < whole:
        share[length - len(rise) :] *= rise.flip(0)
    return share
