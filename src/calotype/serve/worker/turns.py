"""Whose turn it is when not everybody can share an evaluation. Knows nothing of jobs or engines.

Those who can share are a group: one model with one preset, one set of LoRAs, one shape. The group that has
waited longest is next. But LoRAs are merged into a model's weights, which costs a moment and what was worked
out from those weights; so a set stays for `LORA_TURNS` evaluations of its model while anybody uses it, and
only then another set's group may be next.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import NamedTuple

LORA_TURNS = 8
"""Evaluations of a model before another set of LoRAs is merged into it, as long as the last is in use."""


class Group(NamedTuple):
    """Pictures that can share an evaluation."""

    model: str
    loras: Hashable
    shape: Hashable
    preset: str | None = None

    @property
    def engine(self) -> Hashable:
        """What evaluates them."""
        return self.model, self.preset


class Turns:
    """Remembers who had a turn when."""

    def __init__(self) -> None:
        self._order: list[Group] = []
        """Who has waited longest is first."""
        self._served: Group | None = None
        self._merged: dict[Hashable, tuple[Hashable, int]] = {}
        """For each engine its LoRAs, and for how many evaluations they have been there."""

    def next(self, groups: Collection[Group]) -> Group:
        """The group to evaluate now, out of those that have something to do, in the order they came."""
        waiting = [group for group in self._order if group in groups and group != self._served]
        waiting += [group for group in groups if group not in self._order]
        self._order = [*waiting, *(group for group in groups if group not in waiting)]
        chosen = next(group for group in self._order if self._may_switch_to(group, groups))
        self._served = chosen
        loras, evaluations = self._merged.get(chosen.engine, (None, 0))
        self._merged[chosen.engine] = (chosen.loras, evaluations + 1 if loras == chosen.loras else 1)
        return chosen

    def _may_switch_to(self, group: Group, groups: Collection[Group]) -> bool:
        loras, evaluations = self._merged.get(group.engine, (group.loras, 0))
        in_use = any(other.engine == group.engine and other.loras == loras for other in groups)
        return group.loras == loras or evaluations >= LORA_TURNS or not in_use
