"""What every sampler promises whoever drives it: names, queries, evaluation counts, batching, no waiting."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.sampling.api import begin, count_evaluations, no_noise, sample, sampler_options
from calotype.sampling.noise import NoiseStream
from calotype.sampling.noise_schedule import training_schedule
from calotype.sampling.parameterization import scale_input, to_denoised
from calotype.sampling.protocol import DenoiseQuery, SamplerGenerator
from calotype.sampling.samplers import SAMPLERS
from calotype.sampling.sigma_schedules import SCHEDULES, sigmas_for
from calotype.spec import constants
from tests.unit.sampling import gaussian
from tests.unit.sampling.network import denoise

TRAINING = training_schedule()
SHAPE = (4, 8, 8)
TO_ZERO = SCHEDULES["karras"](TRAINING, 6)
TO_NOISE = TO_ZERO[:-1]
PARTIAL = sigmas_for("normal", TRAINING, 6, denoise=0.4)
DRAW_NOISE = {
    "euler_ancestral",
    "dpm_2_ancestral",
    "dpmpp_2s_ancestral",
    "dpmpp_sde",
    "dpmpp_2m_sde",
    "dpmpp_3m_sde",
    "ddpm",
    "lcm",
}
TWO_EVALUATIONS = {"heun", "dpm_2", "dpm_2_ancestral", "dpmpp_2s_ancestral", "dpmpp_sde"}

every_sampler = pytest.mark.parametrize("sampler", SAMPLERS)


def test_names_equal_those_a_request_may_use() -> None:
    assert tuple(SAMPLERS) == constants.SAMPLERS
    assert all(function.__name__ == name for name, function in SAMPLERS.items())
    assert tuple(name for name in SAMPLERS if "eta" in sampler_options(name)) == constants.SAMPLERS_WITH_ETA


@every_sampler
def test_a_docstring_is_a_citation(sampler: str) -> None:
    docstring = SAMPLERS[sampler].__doc__ or ""
    assert "arXiv:" in docstring or "Hairer" in docstring


@every_sampler
def test_evaluation_counts(sampler: str) -> None:
    steps = len(TO_ZERO) - 1
    if sampler in TWO_EVALUATIONS:
        # Halfway to sigma 0 in log sigma is nowhere, so the last step there evaluates once.
        assert count_evaluations(sampler, TO_ZERO) == 2 * steps - 1
        assert count_evaluations(sampler, TO_NOISE) == 2 * (steps - 1)
    elif sampler == "pndm":
        assert count_evaluations(sampler, TO_ZERO) == steps + 1
        assert count_evaluations(sampler, TO_NOISE) == steps
    else:
        assert count_evaluations(sampler, TO_ZERO) == steps
        assert count_evaluations(sampler, TO_NOISE) == steps - 1


@every_sampler
@pytest.mark.parametrize("sigmas", [TO_ZERO, TO_NOISE, PARTIAL, TO_ZERO[:2], TO_ZERO[-2:], TO_ZERO[-3:]])
def test_any_schedule_works(sampler: str, sigmas: Sequence[float]) -> None:
    """Whole, ending in noise, partial, and single steps: with and without a step to sigma 0."""
    noise = NoiseStream([1, 2], SHAPE)
    x = gaussian.MEAN + noise.initial() * gaussian.total_deviation(sigmas[0])
    final = sample(gaussian.denoise, x, sigmas, sampler, noise.next)
    assert final.shape == x.shape
    assert final.dtype == torch.float32
    assert torch.isfinite(final).all()
    # Six stochastic steps are rough, but none runs away.
    assert float((final - gaussian.MEAN).std()) < 2.0 * gaussian.total_deviation(sigmas[0])


@every_sampler
def test_queries_say_where_they_are(sampler: str) -> None:
    queries: list[DenoiseQuery] = []
    noise = NoiseStream([3], SHAPE)
    x = noise.initial() * TO_ZERO[0]
    sample(denoise, x, TO_ZERO, sampler, noise.next, callback=lambda query, _: queries.append(query))
    steps = [query.step for query in queries]
    assert steps[0] == 0
    assert steps[-1] == len(TO_ZERO) - 2
    assert all(0 <= later - earlier <= 1 for earlier, later in pairwise(steps))
    for query in queries:
        assert type(query.sigma) is float
        assert TO_ZERO[query.step] >= query.sigma > 0.0
        assert query.sigma >= TO_ZERO[query.step + 1] * (1 - 1e-12) or "ancestral" in sampler
    assert queries[0].x is x


@every_sampler
def test_latents_are_never_written_into(sampler: str) -> None:
    """Neither what the caller passed, nor a query's latent, nor an answer: a server may keep them."""
    seen: list[tuple[Tensor, Tensor]] = []
    noise = NoiseStream([3], SHAPE)

    def keep(query: DenoiseQuery, denoised: Tensor) -> None:
        seen.extend([(query.x, query.x.clone()), (denoised, denoised.clone())])

    sample(denoise, noise.initial() * TO_ZERO[0], TO_ZERO, sampler, noise.next, callback=keep)
    assert all(torch.equal(kept, copy) for kept, copy in seen)


@every_sampler
def test_deterministic_samplers_draw_no_noise_and_others_say_they_need_it(sampler: str) -> None:
    x = torch.ones(1, *SHAPE)
    if sampler in DRAW_NOISE:
        with pytest.raises(ValueError, match=r"pass noise=NoiseStream\(\.\.\.\)\.next"):
            sample(denoise, x, TO_ZERO, sampler)
    else:
        sample(denoise, x, TO_ZERO, sampler)


@every_sampler
def test_eta_zero_draws_no_noise(sampler: str) -> None:
    if "eta" in sampler_options(sampler):
        sample(denoise, torch.ones(1, *SHAPE), TO_ZERO, sampler, no_noise, eta=0.0)


@every_sampler
def test_noise_scale_of_zero_makes_any_sampler_deterministic(sampler: str) -> None:
    if "s_noise" in sampler_options(sampler):
        x = torch.ones(1, *SHAPE)
        runs = [
            sample(denoise, x, TO_ZERO, sampler, NoiseStream([s], SHAPE).next, s_noise=0.0) for s in (1, 2)
        ]
        assert torch.equal(*runs)


@every_sampler
def test_a_batch_run_whole_equals_its_images_run_alone(sampler: str) -> None:
    def run(seeds: list[int]) -> Tensor:
        noise = NoiseStream(seeds, SHAPE)
        return sample(rational_denoise, noise.initial() * TO_ZERO[0], TO_ZERO, sampler, noise.next)

    assert torch.equal(run([4, 5, 6]), torch.cat([run([4]), run([5]), run([6])]))


def rational_denoise(x: Tensor, sigma: float | Tensor) -> Tensor:
    """A nonlinear network of exactly rounded operations, so that batching cannot change a bit."""
    scaled = scale_input(x, sigma)
    return to_denoised("epsilon", scaled / (scaled * scaled + 0.5), x, sigma)


def start_run(sampler: str, seeds: list[int], sigmas: Sequence[float]) -> SamplerGenerator:
    noise = NoiseStream(seeds, SHAPE)
    return begin(sampler, noise.initial() * math.sqrt(sigmas[0] ** 2 + 1.0), sigmas, noise.next)


def run_alone(sampler: str, seeds: list[int], sigmas: Sequence[float]) -> Tensor:
    noise = NoiseStream(seeds, SHAPE)
    x = noise.initial() * math.sqrt(sigmas[0] ** 2 + 1.0)
    return sample(rational_denoise_by_row, x, sigmas, sampler, noise.next)


def rational_denoise_by_row(x: Tensor, sigma: float) -> Tensor:
    return rational_denoise(x, torch.full((len(x),), sigma))


def serve(arrivals: Iterator[tuple[str, SamplerGenerator]]) -> dict[str, Tensor]:
    """A server in small: a request arrives before each forward pass, which serves all that are under way."""
    queries: dict[str, DenoiseQuery] = {}
    runs: dict[str, SamplerGenerator] = {}
    finished: dict[str, Tensor] = {}

    def advance(name: str, ask: Callable[[], DenoiseQuery]) -> None:
        try:
            queries[name] = ask()
        except StopIteration as stop:
            finished[name] = stop.value
            del queries[name], runs[name]

    while True:
        name, run = next(arrivals, (None, None))
        if name is not None and run is not None:
            runs[name] = run
            queries[name] = next(run)
        if not queries:
            return finished
        batch = list(queries.items())
        sigmas = torch.cat([torch.full((len(query.x),), query.sigma) for _, query in batch])
        answers = rational_denoise(torch.cat([query.x for _, query in batch]), sigmas)
        parts = answers.split([len(query.x) for _, query in batch])
        for (name, _), part in zip(batch, parts, strict=True):
            advance(name, partial(runs[name].send, part))


def test_all_samplers_share_forward_passes_and_join_and_leave_at_will() -> None:
    """Every sampler at once, each with its own images, schedule and time of arrival, against each alone."""
    schedules = [TO_ZERO, PARTIAL, TO_NOISE, SCHEDULES["normal"](TRAINING, 9)]
    jobs = {
        name: ([10 * index + image for image in range(1 + index % 3)], schedules[index % len(schedules)])
        for index, name in enumerate(SAMPLERS)
    }
    together = serve((name, start_run(name, seeds, sigmas)) for name, (seeds, sigmas) in jobs.items())
    assert together.keys() == SAMPLERS.keys()
    for name, (seeds, sigmas) in jobs.items():
        assert torch.equal(together[name], run_alone(name, seeds, sigmas)), name


@every_sampler
@pytest.mark.parametrize("sigmas", [TO_ZERO, TO_NOISE])
def test_no_step_waits_for_the_device(sampler: str, sigmas: Sequence[float]) -> None:
    """On the meta device, which holds no numbers, anything that reads a tensor's value raises."""
    x = torch.empty((2, *SHAPE), device="meta")

    def meta_denoise(x: Tensor, sigma: float) -> Tensor:
        rows = torch.full((len(x),), sigma, device="meta")
        return to_denoised("v_prediction", scale_input(x, rows), x, rows)

    final = sample(meta_denoise, x, sigmas, sampler, lambda: torch.empty_like(x))
    assert final.device.type == "meta"


@every_sampler
@pytest.mark.parametrize("sigmas", [(), (3.0,), (0.0,)])
def test_nothing_to_do_returns_the_latent(sampler: str, sigmas: Sequence[float]) -> None:
    x = torch.ones(1, *SHAPE)
    assert sample(denoise, x, sigmas, sampler) is x


def test_an_error_in_the_denoiser_is_not_swallowed() -> None:
    def broken(x: Tensor, sigma: float) -> Tensor:
        raise StopIteration

    with pytest.raises(StopIteration):
        sample(broken, torch.ones(1), TO_ZERO)


@pytest.mark.parametrize(
    "sigmas", [(1.0, 1.0, 0.0), (1.0, 2.0), (1.0, -0.1), (1.0, 0.0, 0.0), (math.inf, 1.0), (1.0, math.nan)]
)
def test_sigmas_that_do_not_descend_are_refused(sigmas: Sequence[float]) -> None:
    with pytest.raises(ValueError, match=r"sigmas\[\d\] = .* is followed by .*sigmas_of_run"):
        begin("euler", torch.ones(1), sigmas)


def test_an_unknown_sampler_or_option_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'plms' is unknown; use one of \['ddim'"):
        begin("plms", torch.ones(1), TO_ZERO)
    with pytest.raises(ValueError, match=r"'euler' has no option \['eta'\]; it has none"):
        begin("euler", torch.ones(1), TO_ZERO, eta=1.0)
    with pytest.raises(ValueError, match=r"no option \['rho'\]; it has \['eta', 'r', 's_noise'\]"):
        begin("dpmpp_sde", torch.ones(1), TO_ZERO, rho=1.0)


@pytest.mark.parametrize(
    ("sampler", "options", "message"),
    [
        ("ddim", {"eta": -0.1}, "eta=-0.1 is outside 0.0..inf"),
        ("dpmpp_sde", {"r": 0.0}, "r=0.0 is outside 0.001..1.0"),
        ("lms", {"order": 0}, "order=0 is outside 1..4"),
        ("uni_pc", {"solver": "bh3"}, "solver='bh3' is unknown; use one of .'bh1', 'bh2'."),
        ("uni_pc", {"order": "two"}, "order='two' is outside 1..4"),
    ],
)
def test_option_values_out_of_range_are_refused(sampler: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        begin(sampler, torch.ones(1), TO_ZERO, **options)


def test_every_option_has_limits() -> None:
    """Each sampler accepts its own defaults, so no option is without a rule."""
    for sampler in SAMPLERS:
        defaults: dict[str, Any] = sampler_options(sampler)
        begin(sampler, torch.ones(1), TO_ZERO, **defaults)
