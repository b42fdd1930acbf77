"""What random arrivals do to latency under a few ways of sharing: a deployment as arithmetic. Needs no GPU.

    python benchmarks/queueing.py --step-ms 1.4 3.8 --steps 20 --beside-ms 100 --share 0.5 --share 0.25

An evaluation takes a + b·n milliseconds for n pictures, as measured; everything else of a request takes
`--beside-ms` and shares nothing. Pictures join and leave between steps. Each policy says how many may share
an evaluation, the oldest first; `all` is what a deployment does. Prints the 95th percentile as a multiple of
a request alone, at shares of the rate that large batches reach.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from dataclasses import dataclass

POLICIES = {"all": 64, "at most 4": 4, "at most 2": 2, "one after the other": 1}
REQUESTS = 40_000


@dataclass(frozen=True)
class Server:
    fixed_s: float
    each_s: float
    steps: int
    beside_s: float
    most: int

    @property
    def alone_s(self) -> float:
        return self.steps * (self.fixed_s + self.each_s) + self.beside_s

    @property
    def saturated(self) -> float:
        """Pictures a second in evaluations of 64."""
        return 64 / (self.steps * (self.fixed_s + 64 * self.each_s))

    def p95_s(self, rate: float, seed: int) -> float:
        rng = random.Random(seed)  # noqa: S311 - arrivals, no secrets
        arrivals, at = deque[float](), 0.0
        for _ in range(REQUESTS):
            at += rng.expovariate(rate)
            arrivals.append(at)
        now, took, inside = 0.0, [], deque[list[float]]()  # of each: when it came, steps left
        while arrivals or inside:
            if not inside:
                now = max(now, arrivals[0])
            while arrivals and arrivals[0] <= now:
                inside.append([arrivals.popleft(), self.steps])
            sharing = min(self.most, len(inside))
            now += self.fixed_s + sharing * self.each_s
            for place in range(sharing):
                inside[place][1] -= 1
            # The oldest have the fewest steps left.
            while inside and inside[0][1] == 0:
                took.append(now - inside.popleft()[0] + self.beside_s)
        return sorted(took)[int(0.95 * len(took))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--step-ms", type=float, nargs=2, default=(1.4, 3.8), metavar=("A", "B"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--beside-ms", type=float, default=100.0)
    parser.add_argument("--share", type=float, action="append")
    chosen = parser.parse_args()
    shares = chosen.share or [0.5]
    fixed, each = (ms / 1000 for ms in chosen.step_ms)
    print("policy".ljust(22), *(f"{share:g} of the load".rjust(18) for share in shares))
    for name, most in POLICIES.items():
        server = Server(fixed, each, chosen.steps, chosen.beside_ms / 1000, most)
        found = [server.p95_s(share * server.saturated, seed=0) / server.alone_s for share in shares]
        print(name.ljust(22), *(f"{ratio:.2f}×".rjust(18) for ratio in found))
    print(f"alone {server.alone_s:.3f} s, saturated {server.saturated:.1f} pictures a second")


if __name__ == "__main__":
    main()
