"""Measures the stages of a batch: text encoding, each UNet evaluation, decoding.

It uses one batch besides the timed ones. On a GPU the device clock measures it, without synchronization in
between.
"""

from __future__ import annotations

from itertools import pairwise

from calotype.bench.sweep.timing import MeasuredDevice
from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.measurement import Series


def time_stages(engine: Engine, request: GenerateRequest, device: MeasuredDevice) -> dict[str, Series]:
    """Return the seconds of each stage of a request that fits in one batch."""
    engine.clear_prompt_cache()
    device.finish()
    marks = [device.mark()]
    run = engine.begin(request, Inputs(), request.seeds())
    marks.append(device.mark())
    while not run.done:
        engine.step([run])
        marks.append(device.mark())
    engine.finish(run, request, Inputs())
    marks.append(device.mark())
    device.finish()
    seconds = [device.seconds_between(one, other) for one, other in pairwise(marks)]
    text, *evaluations, decode = seconds
    return {
        "text": Series.of("s", [text]),
        "evaluation": Series.of("s", evaluations),
        "decode": Series.of("s", [decode]),
    }
