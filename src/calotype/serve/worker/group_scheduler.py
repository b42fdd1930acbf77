"""Whose turn it is when not everybody can share an evaluation. Knows nothing of jobs or engines.

Those who can share are a group: one model with one preset, one set of LoRAs, one shape, one size of text. The
group that has waited longest is next. An evaluation with a very long prompt counts as several turns, so that
the others get as many in between. But LoRAs are merged into a model's weights, which costs a moment and what
was computed from those weights; so a set stays for `LORA_QUANTUM` evaluations of its model while a job uses
it, and only then another set's group may be next.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import NamedTuple

LORA_QUANTUM = 8
"""Evaluations of a model before another set of LoRAs is merged into it, as long as the last is in use."""


TEXT_SIZES_A_TURN = 4
"""With 64 windows of tokens an evaluation takes about twice as long as with one (small model on a CPU)."""


class Group(NamedTuple):
    """Pictures that can share an evaluation."""

    model: str
    loras: Hashable
    shape: Hashable
    preset: str | None = None
    text_size: int = 1
    """Of the longest prompts, in units of `WINDOWS_AT_ONCE` windows of tokens, as a power of two."""

    @property
    def engine(self) -> Hashable:
        """What evaluates them."""
        return self.model, self.preset

    @property
    def measured(self) -> Hashable:
        """What the time and memory of an evaluation depend on, beside its rows."""
        size = () if self.text_size == 1 else (self.text_size,)
        return self.engine, self.shape, *size

    @property
    def cost(self) -> int:
        """Turns that an evaluation counts as."""
        return max(1, self.text_size // TEXT_SIZES_A_TURN)


def text_size(windows: int, unit: int) -> int:
    """A power of two: the units of windows that a prompt takes, rounded up."""
    return 1 << (max(1, -(-windows // unit)) - 1).bit_length()


class GroupScheduler:
    """Remembers who had a turn when."""

    def __init__(self) -> None:
        self._order: list[Group] = []
        """Who has waited longest is first."""
        self._served: Group | None = None
        self._merged: dict[Hashable, tuple[Hashable, int]] = {}
        """For each engine its LoRAs, and for how many evaluations they have been there."""
        self._due: dict[Group, int] = {}
        """When a group's next turn is due, counted in turns; at the same time, the first in order is next."""
        self._now = 0

    def next(self, groups: Collection[Group]) -> Group:
        """The group to evaluate now, out of those that have something to do, in the order they came."""
        waiting = [group for group in self._order if group in groups and group != self._served]
        waiting += [group for group in groups if group not in self._order]
        self._order = [*waiting, *(group for group in groups if group not in waiting)]
        chosen = self._choose([group for group in self._order if self._may_switch_to(group, groups)])
        self._served = chosen
        loras, evaluations = self._merged.get(chosen.engine, (None, 0))
        self._merged[chosen.engine] = (chosen.loras, evaluations + 1 if loras == chosen.loras else 1)
        return chosen

    def _choose(self, groups: Collection[Group]) -> Group:
        """The group whose turn is due first; a new one counts as if it had just had a turn."""
        # A group that had to wait for its LoRAs does not make up for it.
        due = {group: max(self._due.get(group, self._now + 1), self._now) for group in groups}
        chosen = min(groups, key=due.__getitem__)
        self._now = due[chosen]
        # A group that is gone owes its turns if it comes back soon.
        self._due = {group: when for group, when in self._due.items() if when > self._now} | due
        self._due[chosen] = self._now + chosen.cost
        return chosen

    def _may_switch_to(self, group: Group, groups: Collection[Group]) -> bool:
        loras, evaluations = self._merged.get(group.engine, (group.loras, 0))
        in_use = any(other.engine == group.engine and other.loras == loras for other in groups)
        return group.loras == loras or evaluations >= LORA_QUANTUM or not in_use
