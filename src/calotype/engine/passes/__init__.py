"""Optimisations, one file each. A pass says what it needs and what it changes, and applies itself to a model.

The baseline is no pass at all; every other preset is an ordered list of these.
"""

from typing import Protocol

from calotype.models.model import Model


class Pass(Protocol):
    """One optimisation of a model."""

    name: str
    tolerance: float
    """Largest relative difference of a UNet evaluation from the baseline's; 0 is exact."""

    def missing(self, model: Model) -> str | None:
        """What this machine or model lacks for the pass, in words; None when it can be applied."""
        ...

    def apply(self, model: Model) -> None: ...
