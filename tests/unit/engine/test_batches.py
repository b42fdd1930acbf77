"""One image is one seed: company, batch size and position do not change which picture it is.

Noise is bit-equal. Pixels are equal to 1/255 in fp32: sums are taken in another order in a larger batch. In
fp16 and bf16 the bound is 2/255 for a few steps of a small model; on a CPU they came out bit-equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from calotype.engine import engine as whole
from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs
from calotype.sampling import NoiseStream
from calotype.spec.constants import SAMPLERS
from calotype.spec.generate_request import GenerateRequest
from tests.engines import begun, difference, latents_of, relative, small_engine, to_the_end

SIZE: dict[str, Any] = {"width": 32, "height": 48}
LONG = "a very long description of a red apple " * 5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_seed_is_the_same_picture_anywhere(engine: Engine, sampler: str) -> None:
    knobs = {**SIZE, "sampler": sampler, "steps": 3}
    four = engine.generate("a red apple", seed=9, count=4, batch_size=4, **knobs).images
    three = engine.generate("a red apple", seed=10, count=3, batch_size=3, **knobs).images
    last = engine.generate("a red apple", seed=12, **knobs).images[0]
    assert max(difference(*pair) for pair in zip(four[1:], three, strict=True)) <= 1
    assert difference(four[3], last) <= 1
    assert difference(four[2], last) > 10


@pytest.mark.parametrize("sampler", ["euler_ancestral", "dpmpp_sde"])
def test_seeds_need_not_be_neighbours(engine: Engine, sampler: str) -> None:
    together = latents_of(engine, [5, 2**63, 0, 5], **SIZE, sampler=sampler, steps=3)
    for row, seed in enumerate([5, 2**63, 0]):
        alone = latents_of(engine, [seed], **SIZE, sampler=sampler, steps=3)
        assert relative(together[row : row + 1], alone) < 1e-4
    assert torch.allclose(together[0], together[3], rtol=0, atol=1e-4)


def test_the_first_question_holds_the_noise_of_the_seeds_bit_for_bit(engine: Engine) -> None:
    run, _ = begun(engine, {**SIZE, "sampler": "euler"}, seeds=[3, 4])
    query = run.query().query
    noise = NoiseStream([3, 4], (4, 12, 8)).initial()
    assert torch.equal(query.x, noise * (query.sigma**2 + 1) ** 0.5)


def test_a_count_that_does_not_fit_one_batch_is_the_same_pictures(engine: Engine) -> None:
    whole = engine.generate("a red apple", **SIZE, seed=1, count=5, steps=2)
    parts = engine.generate("a red apple", **SIZE, seed=1, count=5, steps=2, batch_size=2)
    assert len(whole.images) == len(parts.images) == 5
    assert max(difference(*pair) for pair in zip(whole.images, parts.images, strict=True)) <= 1
    assert [record.request["seed"] for record in parts.records] == [1, 2, 3, 4, 5]
    assert whole.records == parts.records


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_a_batch_stays_within_two_steps(dtype: torch.dtype) -> None:
    half = small_engine("emoji", dtype=dtype)
    for sampler in ("dpmpp_2m", "euler_ancestral"):
        knobs = {**SIZE, "sampler": sampler, "steps": 3}
        alone = half.generate("a red apple", seed=3, **knobs).images[0]
        company = half.generate("a red apple", seed=1, count=3, **knobs).images
        assert difference(company[2], alone) <= 2
        assert difference(company[1], alone) > 10


MIXED: list[dict[str, Any]] = [
    {"prompt": "a red apple", "sampler": "heun", "steps": 3, "cfg": 7.0, "negative_prompt": "dark"},
    {"prompt": LONG, "sampler": "dpmpp_2m_sde", "steps": 4, "cfg": 3.5, "seed": 8},
    {"prompt": "a (pear:1.4)", "sampler": "euler", "steps": 2, "cfg": 1.0, "count": 2, "schedule": "normal"},
    {
        "prompt": "a pear",
        "sampler": "dpm_2_ancestral",
        "steps": 2,
        "negative_prompt": LONG * 2,
        "clip_skip": 1,
    },
]


@pytest.mark.parametrize("name", ["emoji", "sdxl"])
def test_different_requests_advanced_together_equal_each_alone(
    name: str, request: pytest.FixtureRequest
) -> None:
    engine: Engine = request.getfixturevalue({"emoji": "engine", "sdxl": "sdxl"}[name])
    requests = [{**SIZE, **knobs} for knobs in MIXED]
    alone = [latents_of(engine, **knobs) for knobs in requests]
    pictures = [engine.generate(GenerateRequest.parse(knobs)).images for knobs in requests]

    started = [begun(engine, knobs) for knobs in requests]
    under_way = [run for run, _ in started]
    finished_after = {}
    evaluations = 0
    while under_way:
        engine.step(under_way)
        evaluations += 1
        for run in under_way:
            if run.done:
                finished_after[id(run)] = evaluations
        under_way = [run for run in under_way if not run.done]

    assert len(set(finished_after.values())) > 2
    for (run, resolved), expected, images in zip(started, alone, pictures, strict=True):
        assert run.latents is not None
        assert relative(run.latents, expected) < 1e-4
        made = engine.finish(run, resolved, Inputs())
        assert max(difference(*pair) for pair in zip(made, images, strict=True)) <= 1


def test_every_picture_is_asked_for_before_one_is_waited_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def noting(name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            done.append(name)
            return usual(*given)

        return noted

    for name in ("to_uint8", "to_generated"):
        monkeypatch.setattr(whole, name, noting(name, getattr(whole, name)))
    engine.generate("a red apple", count=2, batch_size=2, steps=1, **SIZE)
    assert done == ["to_uint8", "to_uint8", "to_generated", "to_generated"]


def test_a_run_that_joins_late_is_not_changed(engine: Engine) -> None:
    expected = latents_of(engine, **SIZE, steps=2, seed=4)
    first, _ = begun(engine, {**SIZE, "steps": 4, "seed": 9})
    engine.step([first])
    second, _ = begun(engine, {**SIZE, "steps": 2, "seed": 4})
    engine.step([first, second])
    engine.step([second, first])
    assert second.done
    assert second.latents is not None
    assert relative(second.latents, expected) < 1e-4
    assert relative(to_the_end(engine, first), latents_of(engine, **SIZE, steps=4, seed=9)) < 1e-4


def test_prompts_far_apart_in_length_cost_what_the_longest_does(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding to a common multiple would make 7 and 11 windows into 77."""
    seen = []
    forward = engine.model.unet.forward

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["encoder_hidden_states"].shape[1])
        return forward(*args, **kwargs)

    monkeypatch.setattr(engine.model.unet, "forward", watched)
    runs = [begun(engine, {**SIZE, "prompt": "x" * (75 * windows), "steps": 1})[0] for windows in (7, 11)]
    engine.step(runs)
    assert seen == [11 * 77]
