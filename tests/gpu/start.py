"""How long a fresh process takes to its first picture, with a prepared engine and without one.

Run by hand on a machine with a GPU: `python -m tests.gpu.start`. The model is a folder of random weights in
fp16, written first and so in the disk's cache. Every start has a Triton cache of its own, empty at first as
in a new container. Prints one JSON object; `--out` has after every start what is known by then. Not collected
by pytest: the machines that run the tests have no GPU. `--shrunk --device cpu` rehearses it anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from calotype.core.cuda_init import init_cuda_driver_async

STARTED = "CALOTYPE_STARTED_S"
"""When the process was started, by the clock that all processes of a machine share."""


HEAVY = ("diffusers", "transformers", "torch._dynamo", "torch._inductor", "sympy", "scipy")
"""What takes long to import, and is not needed for a picture where nothing is compiled."""


def start(chosen: argparse.Namespace) -> dict[str, Any]:
    """The process that is timed: load, and one picture after another. Seconds since it was started, and what
    it imported that takes long."""
    begun = float(os.environ[STARTED])
    times: dict[str, Any] = {}

    def note(what: str) -> None:
        times[what] = round(time.time() - begun, 3)

    # As `calotype generate` and a deployment's worker begin.
    init_cuda_driver_async(chosen.device)
    from calotype.engine.load import load

    note("imported")
    engine = load(chosen.model, preset=chosen.preset, device=chosen.device, precision=chosen.precision)
    note("loaded")
    width, height, count = (int(number) for number in chosen.shape.split("x"))
    request: dict[str, Any] = {"width": width, "height": height, "count": count, "steps": chosen.steps}
    for name in ("first_picture", "second_picture"):
        # The picture is on the host: nothing is left to wait for.
        engine.generate("a red apple", **request, batch_size=count)
        note(name)
    return {**times, "imported_heavy": [name for name in HEAVY if name in sys.modules]}


def written(name: str, folder: Path) -> Path:
    """A catalogue model's folder, as one is downloaded."""
    import torch

    from calotype.models import catalogue
    from calotype.models.save import write_folder
    from calotype.models.weights import RandomWeights

    write_folder(RandomWeights(catalogue.architecture(name), 0, torch.float16), folder)
    return folder


def in_a_process(arguments: list[str], environment: dict[str, str]) -> Any:
    """What a fresh process prints as JSON on its last line."""
    given = {**os.environ, **environment, STARTED: repr(time.time())}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], env=given, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def measured(chosen: argparse.Namespace, place: Path) -> Iterator[dict[str, Any]]:
    """All there is to say after each start: in turn with the engine and, as long as asked, without, so that
    both see the same state of the disk's cache."""
    common = ["--preset", chosen.preset]
    for name in ("device", "precision"):
        if getattr(chosen, name):
            common += [f"--{name}", getattr(chosen, name)]
    prepared, none = {"CALOTYPE_CACHE": str(place / "cache")}, {"CALOTYPE_CACHE": str(place / "none")}
    build = ["calotype", "engine", "build", chosen.model, "--shapes", chosen.shape, *common, "--json"]
    began = time.monotonic()
    built = in_a_process(build, {**prepared, "TRITON_CACHE_DIR": str(place / "build")})
    about = {
        "preset": chosen.preset,
        "shape": chosen.shape,
        "steps": chosen.steps,
        "engine": {"key": built["key"], "target": built["description"]["target"]},
        "engine_files": len(built["description"]["files"]),
        "engine_bytes": sum(file["size_bytes"] for file in built["description"]["files"]),
        "seconds_to_build": round(time.monotonic() - began, 3),
    }
    again = ["tests.gpu.start", "--as-start", "--model", chosen.model, "--shape", chosen.shape]
    again += ["--steps", str(chosen.steps), *common]
    runs: dict[str, list[dict[str, Any]]] = {"with": [], "without": []}
    for turn in range(chosen.turns):
        kinds = [("with", prepared), ("without", none)]
        for kind, environment in kinds[: 2 if turn < chosen.without else 1]:
            triton = {"TRITON_CACHE_DIR": str(place / f"{kind}-{turn}")}
            runs[kind].append(in_a_process(again, {**environment, **triton}))
            print(f"{kind} an engine: {runs[kind][-1]}", file=sys.stderr, flush=True)
            first = {
                each: median(run["first_picture"] for run in found) for each, found in runs.items() if found
            }
            yield {**about, "seconds_to_first_picture": first, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="sd15", help="an architecture of the catalogue")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--shape", default="512x512x1")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device")
    parser.add_argument("--precision")
    parser.add_argument("--turns", type=int, default=3, help="starts with an engine")
    parser.add_argument("--without", type=int, default=1, help="of which so many are followed by one without")
    parser.add_argument("--shrunk", action="store_true", help="a small model of the same blocks, at 64x64x1")
    parser.add_argument("--out", type=Path, help="a file for the result, as JSON")
    parser.add_argument("--as-start", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.as_start:
        print(json.dumps(start(chosen)))
        return
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        name = chosen.model
        if chosen.shrunk:
            from tests.small_models import shrunk_folder

            chosen.model, chosen.shape = str(shrunk_folder(place, name, 0)), "64x64x1"
        else:
            chosen.model = str(written(name, place / name))
        from calotype.engine.torch_info import full_fingerprint

        environment = full_fingerprint().as_dict()
        for result in measured(chosen, place):
            text = json.dumps({**result, "model": name, "environment": environment}, indent=1)
            if chosen.out:
                chosen.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
