"""Chooses the group to evaluate next when not all jobs can share an evaluation.

A group has one model with one preset, one set of LoRAs, one shape and one text size. The group that has
waited longest is next. An evaluation with a very long prompt counts as several turns, and the other groups
get as many in between. Merging LoRAs into the weights takes time and invalidates everything computed from
them. So a set stays merged for `LORA_QUANTUM` evaluations of its model while a job uses it; only then may a
group with another set be next.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import NamedTuple

LORA_QUANTUM = 8
"""Evaluations of a model before it switches to another set of LoRAs while the current set is in use."""


TEXT_SIZES_A_TURN = 4
"""With 64 windows of tokens an evaluation takes about twice as long as with one (small model on a CPU)."""


class Group(NamedTuple):
    """The properties that all images of a batch share."""

    model: str
    loras: Hashable
    shape: Hashable
    preset: str | None = None
    text_size: int = 1
    """Of the longest prompt, in units of `WINDOWS_AT_ONCE` token windows, rounded up to a power of two."""

    @property
    def engine(self) -> Hashable:
        """Identifies the engine: model and preset."""
        return self.model, self.preset

    @property
    def measured(self) -> Hashable:
        """What time and memory of an evaluation depend on besides its rows."""
        size = () if self.text_size == 1 else (self.text_size,)
        return self.engine, self.shape, *size

    @property
    def cost(self) -> int:
        """Turns that one evaluation counts as."""
        return max(1, self.text_size // TEXT_SIZES_A_TURN)


def text_size(windows: int, unit: int) -> int:
    """Return the units of windows that a prompt takes, rounded up to a power of two."""
    return 1 << (max(1, -(-windows // unit)) - 1).bit_length()


class GroupScheduler:
    """Chooses groups by their turns."""

    def __init__(self) -> None:
        self._order: list[Group] = []
        """The group that has waited longest is first."""
        self._served: Group | None = None
        self._merged: dict[Hashable, tuple[Hashable, int]] = {}
        """The merged LoRAs of each engine, and the number of evaluations since the merge."""
        self._due: dict[Group, int] = {}
        """When a group's next turn is due, in turns; `_order` breaks ties."""
        self._now = 0

    def next(self, groups: Collection[Group]) -> Group:
        """Return the group to evaluate now, from those with work, in order of arrival."""
        waiting = [group for group in self._order if group in groups and group != self._served]
        waiting += [group for group in groups if group not in self._order]
        self._order = [*waiting, *(group for group in groups if group not in waiting)]
        chosen = self._choose([group for group in self._order if self._may_switch_to(group, groups)])
        self._served = chosen
        loras, evaluations = self._merged.get(chosen.engine, (None, 0))
        self._merged[chosen.engine] = (chosen.loras, evaluations + 1 if loras == chosen.loras else 1)
        return chosen

    def _choose(self, groups: Collection[Group]) -> Group:
        """Return the group whose turn is due first; a new group counts as if it had just had a turn."""
        # A group that waited for its LoRAs does not get extra turns.
        due = {group: max(self._due.get(group, self._now + 1), self._now) for group in groups}
        chosen = min(groups, key=due.__getitem__)
        self._now = due[chosen]
        # Keep the due turns of absent groups, in case they return soon.
        self._due = {group: when for group, when in self._due.items() if when > self._now} | due
        self._due[chosen] = self._now + chosen.cost
        return chosen

    def _may_switch_to(self, group: Group, groups: Collection[Group]) -> bool:
        loras, evaluations = self._merged.get(group.engine, (group.loras, 0))
        in_use = any(other.engine == group.engine and other.loras == loras for other in groups)
        return group.loras == loras or evaluations >= LORA_QUANTUM or not in_use
