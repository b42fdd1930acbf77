"""Guidance only where it does something: in the middle of the noise levels.

At the noisiest levels it mostly narrows what pictures are drawn at all, and at the cleanest it changes hardly
anything (Kynkäänniemi et al. 2024, arXiv:2404.07724). Without guidance a step is half the work.
"""

from calotype.engine.passes import NetworkBuilder, Pass
from calotype.models.model import Model

INTERVAL = (0.15, 0.85)
"""Of the timesteps, 0 being a clean picture; outside of it the negative prompt is not asked."""


def _nothing(_: Model) -> None:
    """It works with any network on any device."""


def _apply(assembly: NetworkBuilder) -> None:
    assembly.guided_between = INTERVAL


GUIDANCE_INTERVAL = Pass("guidance_interval", "lossy", _nothing, _apply)
