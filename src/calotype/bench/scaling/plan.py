"""Plans the runs of a scaling study on one machine: a recipe on increasing numbers of devices.

Weak scaling gives every device one micro-batch; strong scaling divides the recipe's global batch.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from math import lcm
from typing import Literal

from calotype.bench.training.points import job_of
from calotype.core.errors import Problem, RequestError
from calotype.spec.bench_job import Point, TrainJob
from calotype.spec.records.measurement import Setting
from calotype.spec.records.scaling import Mode

Modes = Literal["weak", "strong", "both"]


def scale_points(
    settings: Mapping[str, Setting],
    devices: Sequence[int],
    modes: Modes,
    *,
    device: str | None = None,
    units: int | None = None,
    warmup: int | None = None,
) -> list[Point]:
    """Return each point once; `settings` are a recipe and its dotted keys for one device."""
    base = job_of({**settings, "trainer.devices": 1}, "calotype", device=device, units=units, warmup=warmup)
    micro, total = base.recipe.model.micro_batch_size, base.recipe.model.global_batch_size
    most = max(devices)
    if modes != "weak" and any(total % (micro * number) for number in devices):
        rule = (
            f"{total} samples in micro-batches of {micro} cannot be divided over {_listed(devices)} devices; "
        )
        rule += f"set model.global_batch_size={micro * lcm(*devices)}, or --mode weak"
        raise RequestError([Problem("--devices", rule, most)])
    runs: list[tuple[Mode, int]] = [
        (mode, number) for mode in ("weak", "strong") if modes in (mode, "both") for number in devices
    ]
    points: dict[str, Point] = {}
    for mode, number in runs:
        batch = micro * number if mode == "weak" else total
        varied: dict[str, Setting] = {"trainer.devices": number, "model.global_batch_size": batch}
        job = job_of({**settings, **varied}, "calotype", device=device, units=units, warmup=warmup)
        point = Point(
            name=f"{number} devices, batch {batch}" if number > 1 else f"1 device, batch {batch}",
            settings=varied,
            job=job,
            command=_command(settings, varied, job),
        )
        points.setdefault(point.id, point)
    return list(points.values())


def _command(settings: Mapping[str, Setting], varied: Mapping[str, Setting], job: TrainJob) -> str:
    """Return the command that measures the point."""
    keys = {key: value for key, value in {**settings, **varied}.items() if key != "recipe"}
    words = ["train", str(settings["recipe"]), *(f"{key}={value}" for key, value in keys.items())]
    words += ["--benchmark", f"--benchmark-steps={job.units}", f"--warmup-steps={job.warmup}"]
    count = job.recipe.trainer.devices
    launcher = ["calotype"] if count == 1 else ["torchrun", f"--nproc-per-node={count}", "-m", "calotype"]
    return shlex.join([*launcher, *words])


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
