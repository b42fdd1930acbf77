"""Synthetic samples, generated on the training device, so that data never limits a benchmark.

Each sample depends only on the seed and its position in the run: ranks, micro-batch size and resuming do not
change it. The values are never zeros, which would change the speed of kernels and the power draw.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.train.data.hashing import mixed
from calotype.train.data.requirements import DataRequirements
from calotype.train.data.types import Batch, Text

_ADJECTIVES = (
    "amber",
    "crimson",
    "emerald",
    "ivory",
    "paper",
    "silver",
    "striped",
    "tiny",
    "velvet",
    "wooden",
)
_NOUNS = ("bridge", "cello", "fox", "harbour", "kettle", "lantern", "owl", "pear", "tram", "windmill")
_PLACES = ("at dusk", "in the rain", "on a hill", "on a table", "under snow", "seen from above")
_EMPTY_CAPTION = -1


@dataclass(frozen=True)
class Synthetic:
    """Images with captions; or latents with embeddings if `encoded`."""

    needs: DataRequirements
    seed: int
    encoded: bool

    def batch(self, start: int, count: int) -> Batch:
        """The samples from position `start` on."""
        positions = tuple(range(start, start + count))
        side = self.needs.resolution
        size = torch.tensor([[side, side, 0, 0, side, side]], device=self.needs.device)
        return Batch(
            captions=tuple(_caption(mixed(self.seed, position)) for position in positions),
            keys=tuple(f"synthetic-{position}" for position in positions),
            positions=positions,
            sizes=size.repeat(count, 1),
            **self._generate(positions),
        )

    @property
    def empty_text(self) -> Text | None:
        """The embedding of the empty caption; None if captions are still to be encoded."""
        if not self.encoded:
            return None
        generated = self._generate((_EMPTY_CAPTION,))
        return Text(generated["context"][0], generated["pooled"][0] if "pooled" in generated else None)

    def _generate(self, positions: tuple[int, ...]) -> dict[str, Tensor]:
        device = self.needs.device
        tensors = {
            name: torch.empty(len(positions), *shape, device=device) for name, shape in self._shapes().items()
        }
        generator = torch.Generator(device)
        for row, position in enumerate(positions):
            generator.manual_seed(mixed(self.seed, position))
            for name, tensor in tensors.items():
                if name == "pixels":
                    tensor[row].uniform_(-1, 1, generator=generator)
                else:
                    tensor[row].normal_(generator=generator)
        return tensors

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        needs = self.needs
        if not self.encoded:
            return {"pixels": (3, needs.resolution, needs.resolution)}
        shapes: dict[str, tuple[int, ...]] = {"latents": needs.latent_shape, "context": needs.context_shape}
        if needs.pooled_width is not None:
            shapes["pooled"] = (needs.pooled_width,)
        return shapes


def _caption(draw: int) -> str:
    draw, look = divmod(draw, len(_ADJECTIVES))
    draw, thing = divmod(draw, len(_NOUNS))
    return f"a {_ADJECTIVES[look]} {_NOUNS[thing]} {_PLACES[draw % len(_PLACES)]}"
