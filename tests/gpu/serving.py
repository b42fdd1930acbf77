"""What a worker does on a GPU and nowhere else, run by hand on one: `python -m tests.gpu.serving`.

Company must not change a picture by more than is stated, and a full worker has to keep up with the same
engine run offline. Prints a line for each check and ends with 1 if one failed. Not collected by pytest: the
machines that run the tests have no GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from calotype.core.progress import Silent
from calotype.engine.torch_info import full_fingerprint
from calotype.serve.ipc.messages import Evaluated
from calotype.serve.worker.engine_adapter import RealEngine, RealLoader
from calotype.spec.generate_request import GenerateRequest
from tests.gpu.training import result
from tests.unit.serve.worker.bench import Bench
from tests.unit.serve.worker.real_bench import SIX, bench_of, most_difference, pictures_of

MOST_DIFFERENCE = {"baseline": 16, "fast": 16, "low-memory": 16, "int8": 64}
"""In steps of 1/255 and half precision; to be replaced by what was measured."""
LEAST_SHARE = 0.9
AT_ONCE = 16


def keeps_company_apart(engine: Callable[[str], RealEngine], preset: str, size: int) -> str:
    real = engine(preset)
    bench = bench_of(real, most_rows=32)
    for knobs in SIX:
        bench.add(**{**knobs, "width": size, "height": size})
        bench.turns(1)
    bench.to_the_end()
    together = pictures_of(bench)
    worst = 0
    for knobs in SIX:
        request = GenerateRequest.parse({**knobs, "width": size, "height": size})
        alone = real.engine.generate(request).images
        worst = max(worst, most_difference(together[knobs["prompt"]], alone))
    assert worst <= MOST_DIFFERENCE[preset], f"a pixel differs by {worst}/255"
    return f"no pixel differs by more than {worst}/255"


def keeps_up(engine: Callable[[str], RealEngine], preset: str, size: int, jobs: int) -> str:
    """Jobs of one picture each, all there at once, against batches of the engine by itself."""
    real = engine(preset)
    knobs: dict[str, Any] = {"width": size, "height": size, "steps": 20, "cfg": 7.5}
    rates = []
    for number in (AT_ONCE, jobs):
        started = time.perf_counter()
        real.engine.generate("a red apple", count=number, batch_size=AT_ONCE, **knobs)
        rates.append(number / (time.perf_counter() - started))
    offline = rates[-1]
    bench = Bench()
    for number in (AT_ONCE, jobs):
        bench = bench_of(real, most_rows=2 * AT_ONCE)
        started = time.perf_counter()
        for job in range(number):
            bench.add(f"a red apple {job}", seed=job, **knobs)
        bench.to_the_end()
        served = number / (time.perf_counter() - started)
    assert len(bench.finished()) == jobs
    rows = [news.rows for news in bench.heard(Evaluated)]
    said = (
        f"{served:.2f} pictures a second served, {offline:.2f} offline: {served / offline:.2f}; "
        f"{sum(rows) / len(rows):.1f} rows an evaluation"
    )
    assert served >= LEAST_SHARE * offline, said
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="random:sd15")
    parser.add_argument("--company-model", default="emoji", help="whose pictures are compared")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--jobs", type=int, default=64)
    parser.add_argument("--only", nargs="*")
    chosen = parser.parse_args()

    def engine(model: str, preset: str) -> RealEngine:
        return RealLoader(device=chosen.device, preset=preset).load(model, Silent())

    checks: dict[str, Callable[[], str]] = {}
    for preset in MOST_DIFFERENCE:
        check = partial(keeps_company_apart, partial(engine, chosen.company_model), preset, chosen.size // 2)
        checks[f"{preset} keeps company apart"] = check
    for preset in ("baseline", "fast"):
        check = partial(keeps_up, partial(engine, chosen.model), preset, chosen.size, chosen.jobs)
        checks[f"{preset} keeps up with the engine"] = check
    results = {name: result(name, checks[name]) for name in chosen.only or checks}
    if chosen.out:
        found = {"environment": full_fingerprint().as_dict(), "checks": results}
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    raise SystemExit(any(not r["passed"] for r in results.values()))


if __name__ == "__main__":
    main()
