"""The noise levels of requests to A1111's routes, against A1111's formulas."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import scipy.interpolate
import scipy.stats

from calotype.core.errors import RequestError
from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs
from calotype.sampling import options_of_run
from calotype.serve.http.routes.a1111.sampler_names import SAMPLER_NAMES, SCHEDULER_NAMES
from calotype.serve.http.routes.a1111.schemas import Txt2Img
from calotype.spec.generate_request import GenerateRequest
from tests.engines import small_engine

SIGNAL = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
LEVELS = np.sqrt(1 / SIGNAL - 1)
"""The noise levels of SD 1, 2 and XL's training, from timestep 0 to 999."""


@pytest.fixture(scope="module")
def sd15() -> Engine:
    return small_engine("sd15")


@pytest.fixture(scope="module")
def sdxl() -> Engine:
    return small_engine("sdxl")


def levels_of(
    engine: Engine, sampler: str, scheduler: str, steps: int, strength: float | None = None
) -> tuple[float, ...]:
    body = Txt2Img(sampler_name=sampler, scheduler=scheduler, steps=steps, seed=1)
    request = GenerateRequest.parse(body.request_values(None))
    # What a given image resolves to: the request names its file, which is not needed here.
    return engine.sigmas(request.model_copy(update={"strength": strength or 1.0}))


@pytest.mark.parametrize(
    ("sampler", "scheduler", "expected"),
    [
        ("DPM++ 2M SDE", "Automatic", [14.6146, 3.0890, 0.6529, 0.1380, 0.0292, 0]),
        ("DPM++ 3M SDE", "Automatic", [14.6146, 4.2151, 1.2157, 0.3506, 0.1011, 0]),
        ("DPM++ 3M SDE", "Karras", [14.6146, 6.0822, 2.2322, 0.6926, 0.1698, 0]),
        ("DPM2 a", "Automatic", [14.6146, 6.0822, 2.2322, 0.6926, 0.1698, 0]),
        ("DPM++ 2M", "Automatic", [14.6146, 4.7965, 1.2741, 0.2480, 0.0292, 0]),
        ("Euler", "Automatic", [14.6146, 4.0861, 1.6156, 0.6951, 0.0292, 0]),
        ("Euler", "Beta", [14.6146, 12.0523, 7.3219, 2.5915, 0.0292, 0]),
        ("Euler", "KL Optimal", [14.6146, 2.6329, 1.2948, 0.7116, 0.3356, 0.0292]),
        ("Euler a", "Align Your Steps", [14.6150, 3.2269, 1.3960, 0.5100, 0.0290, 0]),
        ("Euler", "SGM Uniform", [14.6146, 5.0924, 2.2797, 1.1629, 0.5712, 0]),
        ("Euler", "Simple", [14.6146, 5.0878, 2.2765, 1.1606, 0.5693, 0]),
        ("Euler", "DDIM", [5.1344, 2.2929, 1.1682, 0.5741, 0.0413, 0]),
        ("DDIM", "Automatic", [5.1344, 2.2929, 1.1682, 0.5741, 0.0413]),
        ("DDIM", "Karras", [5.1344, 2.2929, 1.1682, 0.5741, 0.0413]),
        ("UniPC", "Automatic", [14.6146, 5.0924, 2.2797, 1.1629, 0.5712, 0.0292]),
    ],
)
def test_five_steps_visit_the_levels_that_a1111_visits(
    sd15: Engine, sampler: str, scheduler: str, expected: list[float]
) -> None:
    np.testing.assert_allclose(levels_of(sd15, sampler, scheduler, 5), expected, atol=6e-5)


def test_image_to_image_runs_the_end_of_a_schedule_of_the_given_steps(sd15: Engine) -> None:
    """ComfyUI makes a longer schedule and runs all the steps; A1111 runs fewer."""
    levels = levels_of(sd15, "DPM++ 2M", "Karras", 8, strength=0.5)
    np.testing.assert_allclose(levels, [1.9104, 0.8289, 0.3211, 0.1072, 0.0292, 0], atol=6e-5)
    of_ddim = levels_of(sd15, "PLMS", "Automatic", 8, strength=0.5)
    np.testing.assert_allclose(of_ddim, [1.0760, 0.6984, 0.4022, 0.0413], atol=6e-5)


AUTOMATIC = {
    **dict.fromkeys(("DPM2", "DPM2 a", "DPM++ 2S a", "DPM++ SDE", "DPM++ 2M"), "Karras"),
    **dict.fromkeys(("DPM++ 2M SDE", "DPM++ 3M SDE"), "Exponential"),
}
ALIGNED = [14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152, 0.029]
ALIGNED_SDXL = [14.615, 6.315, 3.771, 2.181, 1.342, 0.862, 0.555, 0.380, 0.234, 0.113, 0.029]


def formula(scheduler: str, trained: np.ndarray, count: int, aligned: list[float]) -> np.ndarray:
    """A scheduler's levels without the samplers' exceptions, each in a closed form."""
    low, high, last = trained[0], trained[-1], len(trained) - 1
    down = np.linspace(1, 0, count)
    by_index = scipy.interpolate.interp1d(np.arange(last + 1), np.log(trained))
    match scheduler:
        case "Automatic" | "Uniform" | "Normal":
            levels = np.exp(by_index(last * down))
        case "SGM Uniform":
            levels = np.exp(by_index(last * np.arange(count, 0, -1) / count))
        case "Karras":
            levels = (low ** (1 / 7) + down * (high ** (1 / 7) - low ** (1 / 7))) ** 7
        case "Exponential" | "Polyexponential":
            levels = low * (high / low) ** down
        case "KL Optimal":
            return np.tan(np.linspace(np.arctan(high), np.arctan(low), count + 1))
        case "Align Your Steps":
            levels = np.exp(np.interp(np.linspace(0, 10, count), np.arange(11), np.log(aligned)))
        case "Simple":
            levels = trained[[last - math.floor(step * (last + 1) / count) for step in range(count)]]
        case "DDIM":
            levels = trained[np.arange(1, last + 1, max((last + 1) // count, 1))][::-1]
        case "Beta":
            levels = low + (high - low) * scipy.stats.beta(0.6, 0.6).ppf(down)
        case _:
            raise AssertionError(scheduler)
    return np.append(levels, 0)


def of_a1111(sampler: str, scheduler: str, steps: int, aligned: list[float]) -> np.ndarray:
    every = np.minimum(np.arange(0, 1000, 1000 // steps) + 1, 999)
    if sampler in ("DDIM", "PLMS"):
        return LEVELS[every][::-1]
    if sampler == "UniPC":
        amplitude = np.interp(np.linspace(999, 0, len(every) + 1), np.arange(1000), np.log(SIGNAL))
        return np.sqrt(np.exp(-amplitude) - 1)
    trained = LEVELS[19::20] if sampler == "LCM" else LEVELS
    if scheduler == "Automatic":
        scheduler = AUTOMATIC.get(sampler, "Uniform")
    if sampler in ("DPM2", "DPM2 a", "DPM++ 3M SDE"):
        return np.delete(formula(scheduler, trained, steps + 1, aligned), -2)
    return formula(scheduler, trained, steps, aligned)


@pytest.mark.parametrize("sampler", SAMPLER_NAMES)
def test_every_pair_of_names_visits_the_levels_of_its_formula(
    sd15: Engine, sdxl: Engine, sampler: str
) -> None:
    """DDPM is no sampler of A1111's; it follows the rules of those that have none of their own."""
    models = [(sd15, ALIGNED), (sdxl, ALIGNED_SDXL)]
    schedulers = ["Automatic", *SCHEDULER_NAMES.values()]
    for scheduler, steps, (engine, aligned) in product(schedulers, (3, 11, 20, 30), models):
        np.testing.assert_allclose(
            levels_of(engine, sampler, scheduler, steps),
            of_a1111(sampler, scheduler, steps, aligned),
            rtol=1e-4,
            err_msg=f"{sampler} {scheduler} {steps}",
        )


@pytest.mark.parametrize("sampler", ["DDIM", "PLMS", "UniPC"])
def test_too_few_steps_for_a_sampler_of_timesteps_are_refused(sd15: Engine, sampler: str) -> None:
    with pytest.raises(RequestError, match=r"steps: 20 steps at strength 0\.05 are too few.*use more steps"):
        levels_of(sd15, sampler, "Automatic", 20, strength=0.05)


def test_noise_alone_begins_at_the_first_level_as_there(sd15: Engine) -> None:
    """A1111 multiplies unit noise by the first sigma; DDIM starts from noise alone."""
    deviations = {}
    for sampler in ("Euler", "DDIM"):
        values = Txt2Img(sampler_name=sampler, steps=5, seed=1).request_values(None)
        resolved = sd15.resolve_defaults(GenerateRequest.parse(values), Inputs())
        run = sd15.begin(resolved, Inputs(), [1])
        deviations[sampler] = float(run.query().query.x.std()) / float(sd15.sigmas(resolved)[0])
    assert deviations["DDIM"] / deviations["Euler"] == pytest.approx(math.hypot(1, 1 / 5.1344), rel=1e-4)


def test_unipc_has_the_order_and_solver_of_a1111s_settings() -> None:
    assert options_of_run("a1111_karras", "uni_pc") == {"order": 3, "solver": "bh1"}
    assert options_of_run("karras", "uni_pc") == {}
