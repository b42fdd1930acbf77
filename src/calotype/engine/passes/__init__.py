"""Optimisations, one file each. A pass says what it needs and what it changes, and applies itself.

The baseline is no pass at all; every other preset is an ordered list of these. What a pass changes is an
`NetworkBuilder`: the choices by which a model's network is put together once.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from calotype.engine.compile.manager import PassWeights, unchanged_weights
from calotype.engine.memory_planner import MAX_AT_ONCE
from calotype.engine.modules.ops import Operations
from calotype.models.model import Model

Effect = Literal["exact", "rounding", "lossy"]
"""The same numbers; the same but for how they are rounded; a different picture."""


@dataclass
class NetworkBuilder:
    """How a model's network is going to be run."""

    model: Model
    native_unet: bool = False
    """Our own forward pass instead of diffusers'."""
    channels_last: bool = False
    joined_qkv: bool = False
    prompts_once: bool = False
    times_once: bool = False
    graphed: bool = False
    compiled: Literal["whole", "blocks"] | None = None
    """What of our forward pass runs compiled, as far as it has been."""
    compiled_behind: bool = False
    """Whether what has not been compiled is, behind everyone's back."""
    own_decoder: bool = False
    """In the model's precision, whatever the autoencoder's."""
    step_cached: bool = False
    """Whether evaluations leave the UNet's deep part out where one of a step before serves."""
    guided_between: tuple[float, float] = (0.0, 1.0)
    """Share of the timesteps at which the negative prompt is asked too."""
    shared_latents: bool = False
    """Whether a latent with two prompts is handed in once."""
    resident_bytes: int = 0
    """What passes make of weights at the first evaluation, and keep."""
    activations: float = 1.0
    """Times what an evaluation or a decode takes otherwise."""
    most_at_once: int = MAX_AT_ONCE
    """Pictures in a batch nobody chose the size of."""
    text_aside: bool = False
    """Text encoders wait in main memory."""
    text_graphed: bool = False
    hand_in: PassWeights = unchanged_weights
    """How what was compiled is given its weights."""
    operations: Operations = field(default_factory=Operations)
    on_change: list[Callable[[], None]] = field(default_factory=list)
    """Called when weights have changed."""
    prepare: list[Callable[[nn.Module], None]] = field(default_factory=list)
    """Called with each network that is going to be walked, before it is."""


@dataclass(frozen=True)
class Pass:
    """One optimisation of a model."""

    name: str
    effect: Effect
    missing: Callable[[Model], str | None]
    """What the machine or the model lacks for it, in words; None when it can be applied."""
    apply: Callable[[NetworkBuilder], None]
    after: tuple[str, ...] = ()
    """Passes it builds on."""
    excludes: tuple[str, ...] = ()
    """Passes that cannot be in one list with it: one would undo what the other does, or get in its way."""

    @property
    def about(self) -> str:
        """What it is, in a sentence: the first of its file."""
        return (sys.modules[self.apply.__module__].__doc__ or "").partition("\n")[0]
