"""Made-up samples, made on the device that trains, so that data never limits a benchmark. Reads nothing.

Each sample depends on the seed and its position in the run alone: ranks, micro-batch size and where a run was
resumed do not change it. The numbers are never zeros, which kernels and power meters would notice.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.train.data.hashing import mixed
from calotype.train.data.requirements import DataRequirements
from calotype.train.data.types import Batch, Text

_LOOKS = ("amber", "crimson", "emerald", "ivory", "paper", "silver", "striped", "tiny", "velvet", "wooden")
_THINGS = ("bridge", "cello", "fox", "harbour", "kettle", "lantern", "owl", "pear", "tram", "windmill")
_PLACES = ("at dusk", "in the rain", "on a hill", "on a table", "under snow", "seen from above")
_EMPTY_CAPTION = -1


@dataclass(frozen=True)
class Synthetic:
    """Pictures with captions; or latents with embeddings, when `encoded`."""

    needs: DataRequirements
    seed: int
    encoded: bool

    def batch(self, start: int, count: int) -> Batch:
        """The samples at positions `start` and following."""
        positions = tuple(range(start, start + count))
        side = self.needs.resolution
        size = torch.tensor([[side, side, 0, 0, side, side]], device=self.needs.device)
        return Batch(
            captions=tuple(_caption(mixed(self.seed, position)) for position in positions),
            keys=tuple(f"synthetic-{position}" for position in positions),
            positions=positions,
            sizes=size.repeat(count, 1),
            **self._drawn(positions),
        )

    @property
    def empty_text(self) -> Text | None:
        """What stands for the empty caption; None where captions are still to be encoded."""
        if not self.encoded:
            return None
        drawn = self._drawn((_EMPTY_CAPTION,))
        return Text(drawn["context"][0], drawn["pooled"][0] if "pooled" in drawn else None)

    def _drawn(self, positions: tuple[int, ...]) -> dict[str, Tensor]:
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
    draw, look = divmod(draw, len(_LOOKS))
    draw, thing = divmod(draw, len(_THINGS))
    return f"a {_LOOKS[look]} {_THINGS[thing]} {_PLACES[draw % len(_PLACES)]}"
