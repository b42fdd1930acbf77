"""Torch's layers without drawing numbers for weights that are read from a file anyway.

On the meta device there are none to draw, but trying takes half the time of building a network, and for
tables has torch import its compiler, which takes as long as all the rest of it. All else is torch's.
"""

from torch import nn


class Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Leave them blank."""


class Conv2d(nn.Conv2d):
    def reset_parameters(self) -> None:
        """Leave them blank."""


class Embedding(nn.Embedding):
    def reset_parameters(self) -> None:
        """Leave them blank."""
