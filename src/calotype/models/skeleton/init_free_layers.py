"""Torch's layers without weight initialization, because the weights are read from a file.

On the meta device, initialization has no effect but takes half the time of building a network, and for
embeddings makes torch import its compiler, which takes as long as the rest of torch.
"""

from torch import nn


class Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Leave the weights uninitialized."""


class Conv2d(nn.Conv2d):
    def reset_parameters(self) -> None:
        """Leave the weights uninitialized."""


class Embedding(nn.Embedding):
    def reset_parameters(self) -> None:
        """Leave the weights uninitialized."""
