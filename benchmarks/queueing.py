"""What random arrivals do to latency under a few ways of sharing: a deployment as arithmetic. Needs no GPU.

    python benchmarks/queueing.py --step-ms 1.57 3.78 --steps 20 --beside-ms 69 --share 0.5 --share 0.7

An evaluation takes a + b·n milliseconds for n pictures, as measured; everything else of a request takes
`--beside-ms` and shares nothing. Pictures join and leave between steps. Each policy says who shares an
evaluation. Prints the 95th percentile as a multiple of a request alone, and how many requests take at most
`--within` times as long as alone, at shares of the rate that large batches reach. `an ideal server` is as
fast with one picture as with many, and works on requests in the order they came, none of them faster than
alone: no other in this order is better. `in time first` leaves for later whoever cannot be in time any more.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate

from calotype.serve.worker.batch_policy import BatchPolicy

REQUESTS = 40_000


@dataclass(frozen=True)
class Server:
    fixed_s: float
    each_s: float
    steps: int
    beside_s: float

    def evaluation_s(self, sharing: int) -> float:
        return self.fixed_s + sharing * self.each_s

    @property
    def alone_s(self) -> float:
        return self.steps * self.evaluation_s(1) + self.beside_s

    @property
    def saturated(self) -> float:
        """Pictures a second in evaluations of 64."""
        return 64 / (self.steps * self.evaluation_s(64))

    def took(self, arrivals: list[float], policy: Policy) -> list[float]:
        """Seconds of each request."""
        coming, now, took = deque(arrivals), 0.0, []
        inside: list[Request] = []
        while coming or inside:
            if not inside:
                now = max(now, coming[0])
            while coming and coming[0] <= now:
                inside.append(Request(coming.popleft(), self.steps))
            sharing = policy(self, inside, now)
            now += self.evaluation_s(len(sharing))
            for one in sharing:
                one.left -= 1
            took += [now - one.came_s + self.beside_s for one in sharing if one.left == 0]
            inside = [one for one in inside if one.left]
        return took

    def ideally_took(self, arrivals: list[float]) -> list[float]:
        """The same of a server that does `saturated` pictures a second however many there are."""
        alone = self.alone_s - self.beside_s
        at_once = self.saturated * alone  # so many run at full speed
        coming, now, took = deque(arrivals), 0.0, []
        inside: list[list[float]] = []  # of each: when it came, seconds of work left
        while coming or inside:
            if not inside:
                now = max(now, coming[0])
            while coming and coming[0] <= now:
                inside.append([coming.popleft(), alone])
            speeds = [min(1.0, max(0.0, at_once - place)) for place in range(len(inside))]
            ends = [one[1] / speed for one, speed in zip(inside, speeds, strict=True) if speed]
            passes = min([*ends, coming[0] - now] if coming else ends)
            now += passes
            for one, speed in zip(inside, speeds, strict=True):
                one[1] -= passes * speed
            took += [now - one[0] + self.beside_s for one in inside if one[1] <= TINY_S]
            inside = [one for one in inside if one[1] > TINY_S]
        return took


@dataclass(eq=False)
class Request:
    came_s: float
    left: int
    """Steps."""


Policy = Callable[[Server, list[Request], float], list[Request]]
"""Who shares the next evaluation, of those who are there, the oldest first."""
TINY_S = 1e-9


def as_deployed(server: Server, inside: list[Request], _: float) -> list[Request]:
    """`BatchPolicy` of a worker, which knows the times."""
    by_what_is_left = sorted(inside, key=lambda one: one.left)
    return by_what_is_left[: _deployed_rows(server, len(inside))]


@cache
def _deployed_rows(server: Server, inside: int) -> int:
    sharing = BatchPolicy()
    for number in range(1, inside + 1):
        for _ in range(2):
            sharing.learn(None, number, server.evaluation_s(number))
    return sharing.rows(None, wanted=inside, most=inside)


def at_most(most: int) -> Policy:
    return lambda _, inside, __: inside[:most]


def in_time_first(within: float) -> Policy:
    """Few late: of those who would make one late, who has most left to do is given up (Moore, 1968)."""

    def policy(server: Server, inside: list[Request], now: float) -> list[Request]:
        allowed_s = within * server.alone_s - server.beside_s
        hopeful = [one for one in inside if now + one.left * server.evaluation_s(1) <= one.came_s + allowed_s]
        while late := _first_late(server, hopeful, now, allowed_s):
            hopeful.remove(max(hopeful[:late], key=lambda one: one.left))
        given_up = [one for one in inside if one not in hopeful]
        if not hopeful:
            return given_up[:4]
        for sharing in range(min(4, len(hopeful)), 1, -1):
            ends = [now + one.left * server.evaluation_s(sharing) - one.came_s for one in hopeful[:sharing]]
            if max(ends) <= allowed_s:
                return hopeful[:sharing]
        return hopeful[:1]

    return policy


def _first_late(server: Server, hopeful: list[Request], now: float, allowed_s: float) -> int:
    """How many there are up to the first that would be late, done in pairs in this order; or 0."""
    each_s = server.evaluation_s(2) / 2 if len(hopeful) > 1 else server.evaluation_s(1)
    for place, one in enumerate(hopeful):
        now += one.left * each_s
        if now > one.came_s + allowed_s:
            return place + 1
    return 0


def arrivals(rate: float, seed: int = 0) -> list[float]:
    rng = random.Random(seed)  # noqa: S311 - arrivals, no secrets
    return list(accumulate(rng.expovariate(rate) for _ in range(REQUESTS)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--step-ms", type=float, nargs=2, default=(1.57, 3.78), metavar=("A", "B"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--beside-ms", type=float, default=69.0)
    parser.add_argument("--share", type=float, action="append")
    parser.add_argument("--within", type=float, default=1.7)
    chosen = parser.parse_args()
    shares = chosen.share or [0.5]
    fixed, each = (ms / 1000 for ms in chosen.step_ms)
    server = Server(fixed, each, chosen.steps, chosen.beside_ms / 1000)
    policies: dict[str, Policy] = {
        "as a deployment does": as_deployed,
        "all": at_most(64),
        "at most 4": at_most(4),
        "at most 2": at_most(2),
        "one after the other": at_most(1),
        "in time first": in_time_first(chosen.within),
    }
    ways = {name: partial(server.took, policy=policy) for name, policy in policies.items()}
    coming = [arrivals(share * server.saturated) for share in shares]
    print("policy".ljust(22), *(f"{share:g} of the load".rjust(24) for share in shares))
    for name, took in {**ways, "an ideal server": server.ideally_took}.items():
        print(
            name.ljust(22), *(_cell(took(each), server.alone_s, chosen.within).rjust(24) for each in coming)
        )
    print(f"alone {server.alone_s:.3f} s, saturated {server.saturated:.1f} pictures a second")


def _cell(took: list[float], alone_s: float, within: float) -> str:
    p95_s = sorted(took)[int(0.95 * len(took))]
    in_time = sum(each <= within * alone_s for each in took) / len(took)
    return f"{p95_s / alone_s:.2f}×, {in_time:.0%} in time"


if __name__ == "__main__":
    main()
