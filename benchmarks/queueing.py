"""What random arrivals do to latency under a few ways of sharing: a deployment as arithmetic. Needs no GPU.

    python benchmarks/queueing.py --step-ms 1.4 3.8 --steps 20 --beside-ms 67 --share 0.5 --share 0.7

An evaluation takes a + b·n milliseconds for n pictures, as measured; everything else of a request takes
`--beside-ms` and shares nothing. Pictures join and leave between steps. Each policy says how many share an
evaluation, the oldest first. Prints the 95th percentile as a multiple of a request alone, at shares of the
rate that large batches reach. `an ideal server` is as fast with one picture as with many, and works on
requests in the order they came, none of them faster than alone: no other in this order is better.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate

from calotype.serve.worker.sharing import Sharing

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

    def p95_s(self, arrivals: list[float], policy: Policy) -> float:
        coming, now, took = deque(arrivals), 0.0, []
        inside = deque[list[float]]()  # of each: when it came, steps left
        while coming or inside:
            if not inside:
                now = max(now, coming[0])
            while coming and coming[0] <= now:
                inside.append([coming.popleft(), self.steps])
            sharing = policy(self, len(inside))
            now += self.evaluation_s(sharing)
            for place in range(sharing):
                inside[place][1] -= 1
            # The oldest have the fewest steps left.
            while inside and inside[0][1] == 0:
                took.append(now - inside.popleft()[0] + self.beside_s)
        return _p95(took)

    def ideal_p95_s(self, arrivals: list[float]) -> float:
        """Of a server that does `saturated` pictures a second however many there are."""
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
        return _p95(took)


Policy = Callable[[Server, int], int]
TINY_S = 1e-9


def as_deployed(server: Server, inside: int) -> int:
    """`Sharing` of a worker, which knows the times."""
    sharing = Sharing()
    for number in range(1, inside + 1):
        for _ in range(2):
            sharing.learn(None, number, server.evaluation_s(number))
    return sharing.rows(None, wanted=inside, most=inside)


def at_most(most: int) -> Policy:
    return lambda _, inside: min(most, inside)


POLICIES: dict[str, Policy] = {
    "as a deployment does": cache(as_deployed),
    "all": at_most(64),
    "at most 4": at_most(4),
    "at most 2": at_most(2),
    "one after the other": at_most(1),
}


def _p95(took: list[float]) -> float:
    return sorted(took)[int(0.95 * len(took))]


def arrivals(rate: float, seed: int = 0) -> list[float]:
    rng = random.Random(seed)  # noqa: S311 - arrivals, no secrets
    return list(accumulate(rng.expovariate(rate) for _ in range(REQUESTS)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--step-ms", type=float, nargs=2, default=(1.4, 3.8), metavar=("A", "B"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--beside-ms", type=float, default=100.0)
    parser.add_argument("--share", type=float, action="append")
    chosen = parser.parse_args()
    shares = chosen.share or [0.5]
    fixed, each = (ms / 1000 for ms in chosen.step_ms)
    server = Server(fixed, each, chosen.steps, chosen.beside_ms / 1000)
    coming = [arrivals(share * server.saturated) for share in shares]
    print("policy".ljust(22), *(f"{share:g} of the load".rjust(18) for share in shares))
    ways = {name: partial(server.p95_s, policy=policy) for name, policy in POLICIES.items()}
    for name, p95_s in {**ways, "an ideal server": server.ideal_p95_s}.items():
        print(name.ljust(22), *(f"{p95_s(each) / server.alone_s:.2f}×".rjust(18) for each in coming))
    print(f"alone {server.alone_s:.3f} s, saturated {server.saturated:.1f} pictures a second")


if __name__ == "__main__":
    main()
