"""CONDITIONING arithmetic, and many prompts at once, against what a slow loop over pixels makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from calotype.core.errors import RequestError
from calotype.engine.denoiser import DenoiseInput
from calotype.engine.engine import Engine
from calotype.sampling import DenoiseQuery
from calotype.workflow.nodes.impl import conditioning as work
from calotype.workflow.nodes.impl.cfg import MultiCondDenoiser
from calotype.workflow.nodes.impl.conditioning_masks import Conditions, Pairs
from tests.engines import small_engine

CONTEXT: Any = None
WIDTH = 32
"""Of the shrunk models' text."""
SIZE = (12, 20)
"""Of the latents, so that areas have inner edges and short fades."""


def _text(seed: int, tokens: int = 7, **options: Any) -> Pairs:
    numbers = torch.Generator().manual_seed(seed)
    return [(torch.randn(1, tokens, WIDTH, generator=numbers), options)]


@pytest.fixture(scope="module")
def sd15() -> Engine:
    return small_engine("sd15")


def test_concat_puts_one_text_after_the_other() -> None:
    both = [*_text(1), *_text(2, tokens=9, strength=2.0)]
    (made,) = work.concat(CONTEXT, both, [*_text(3), *_text(4)])
    assert torch.equal(made[0][0], torch.cat([both[0][0], _text(3)[0][0]], 1))
    assert made[1][0].shape[1] == 16
    assert made[1][1] == {"strength": 2.0}


def test_average_moves_texts_and_summaries() -> None:
    one, other = (torch.randn(1, 5) for _ in range(2))
    (made,) = work.average(CONTEXT, _text(1, pooled_output=one), _text(2, pooled_output=other), 0.25)
    torch.testing.assert_close(made[0][0], 0.25 * _text(1)[0][0] + 0.75 * _text(2)[0][0])
    torch.testing.assert_close(made[0][1]["pooled_output"], 0.25 * one + 0.75 * other)


@pytest.mark.parametrize("tokens", [4, 11])
def test_average_has_the_length_of_what_it_changes(tokens: int) -> None:
    (made,) = work.average(CONTEXT, _text(1), _text(2, tokens=tokens), 0.5)
    other = torch.zeros(1, 7, WIDTH)
    other[:, : min(tokens, 7)] = _text(2, tokens=tokens)[0][0][:, :7]
    torch.testing.assert_close(made[0][0], 0.5 * _text(1)[0][0] + 0.5 * other)


def test_average_takes_the_only_summary_there_is() -> None:
    other = torch.randn(1, 5)
    (made,) = work.average(CONTEXT, _text(1), _text(2, pooled_output=other), 0.5)
    assert torch.equal(made[0][1]["pooled_output"], other)


def test_nothing_is_zeros_in_the_same_form() -> None:
    ((text, options),) = work.zero_out(CONTEXT, _text(1, pooled_output=torch.ones(1, 5), strength=2.0))[0]
    assert not text.any()
    assert not options["pooled_output"].any()
    assert options["strength"] == 2.0


def test_arithmetic_changes_nothing_it_is_given() -> None:
    given = _text(1, pooled_output=torch.ones(1, 5))
    before = given[0][0].clone()
    work.set_area(CONTEXT, given, 64, 64, 0, 0, 1.0)
    work.zero_out(CONTEXT, given)
    assert torch.equal(given[0][0], before)
    assert given[0][1].keys() == {"pooled_output"}


class FakeEngine:
    """Answers with something that depends on everything it is told, and on what else is in the crop."""

    def __init__(self) -> None:
        self.evaluations: list[int] = []

    def denoise(self, questions: Sequence[DenoiseInput], network: object = None) -> list[Tensor]:
        assert network is None
        self.evaluations.append(len(questions))
        return [self._one(question) for question in questions]

    def _one(self, question: DenoiseInput) -> Tensor:
        guidance, x = question.guidance, question.query.x
        positive = answer_to(guidance.positive.context, x, question.query.sigma)
        if guidance.negative is None:
            return positive
        negative = answer_to(guidance.negative.context, x, question.query.sigma)
        return negative + guidance.cfg * (positive - negative)


def answer_to(text: Tensor, x: Tensor, sigma: float) -> Tensor:
    return x * text.mean() + x.mean((2, 3), keepdim=True) * text.std() - sigma * 0.01


@dataclass
class Case:
    """Two sides of guidance."""

    positive: Pairs
    negative: Pairs
    cfg: float = 5.0
    sigma: float = 3.0


def _mask(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(5))


def _area(pairs: Pairs, width: int, height: int, x: int, y: int, strength: float = 1.0) -> Pairs:
    return work.set_area(CONTEXT, pairs, width, height, x, y, strength)[0]


def _masked(mask: Tensor, strength: float, bounds: str = "default") -> Pairs:
    return work.set_mask(CONTEXT, _text(2), mask, strength, bounds)[0]


CASES = {
    "plain": Case(_text(1), _text(2)),
    "no guidance": Case(_text(1), _text(2), cfg=1.0),
    "two prompts": Case([*_text(1), *_text(2, tokens=9)], _text(3)),
    "strengths": Case([*_text(1, strength=0.5), *_text(2, strength=3.0)], _text(3)),
    "an area in the middle": Case([*_text(1), *_area(_text(2), 80, 48, 40, 24)], _text(3)),
    "areas at two edges": Case(
        [*_area(_text(1), 96, 96, 0, 0), *_area(_text(2), 96, 96, 64, 0, 2.0)], _text(3)
    ),
    "an area past the edge": Case([*_text(1), *_area(_text(2), 160, 160, 120, 56)], _text(3)),
    "shares": Case(
        [*_text(1), *work.set_area_percentage(CONTEXT, _text(2), 0.5, 0.3, 0.4, 0.1, 1.5)[0]], _text(3)
    ),
    "the negative has areas of its own": Case(
        [*_text(1), *_area(_text(2), 48, 48, 8, 8)], [*_text(3), *_area(_text(4), 96, 72, 0, 0)]
    ),
    "a mask": Case([*_text(1), *_masked(_mask(2, *SIZE), 0.7)], _text(3)),
    "a mask of another size": Case([*_text(1), *_masked(_mask(48, 80), 0.7)], _text(3)),
    "what a mask bounds": Case(
        [
            *_text(1),
            *_masked(torch.zeros(SIZE).index_fill(1, torch.arange(4, 15), 0.5), 1.0, "mask bounds"),
        ],
        _text(3),
    ),
    "only early": Case([*_text(1), *work.set_timestep_range(CONTEXT, _text(2), 0.0, 0.3)[0]], _text(3)),
    "only late": Case([*_text(1), *work.set_timestep_range(CONTEXT, _text(2), 0.3, 1.0)[0]], _text(3)),
}


def _slow(case: Case, x: Tensor, schedule: Any) -> Tensor:
    """A pixel at a time, with nothing shared between what is near each other in the code it checks."""
    positive = _slow_side(case.positive, case.negative, case, x, schedule)
    if case.cfg == 1.0:
        return positive
    negative = _slow_side(case.negative, case.positive, case, x, schedule)
    return negative + case.cfg * (positive - negative)


def _slow_side(own: Pairs, others: Pairs, case: Case, x: Tensor, schedule: Any) -> Tensor:
    entries = [(text, options, _slow_area(options)) for text, options in own]
    # An area of the other side has an answer here: by the smallest of ours that holds it.
    for _, options in others:
        area = _slow_area(options)
        if area is None:
            continue
        holding = [e for e in entries if e[2] is None or _inside(area, e[2])]
        smallest = min(holding, key=lambda e: math.inf if e[2] is None else e[2][0] * e[2][1])
        if smallest[2] != area:
            entries.append((smallest[0], options, area))
    total, weights = torch.zeros_like(x).double(), torch.zeros_like(x).double()
    for text, options, area in entries:
        if not _counts(options, case.sigma, schedule):
            continue
        height, width, top, left = area or (*SIZE, 0, 0)
        crop = x[:, :, top : top + height, left : left + width]
        answer = answer_to(text, crop, case.sigma).double()
        counts = torch.tensor(
            [
                [[_slow_weight(options, area, row, i, j) for j in range(width)] for i in range(height)]
                for row in range(len(x))
            ],
            dtype=torch.float64,
        )[:, None]
        total[:, :, top : top + height, left : left + width] += answer * counts
        weights[:, :, top : top + height, left : left + width] += counts
    return torch.where(weights > 0, total / weights, 0.0)


def _slow_area(options: Any) -> tuple[int, int, int, int] | None:
    mask = options.get("mask")
    if mask is not None and options["set_area_to_bounds"]:
        rows, columns = (mask[0] > 0).any(1).nonzero(), (mask[0] > 0).any(0).nonzero()
        top, left = int(rows[0]), int(columns[0])
        return max(8, int(rows[-1]) + 1 - top), max(8, int(columns[-1]) + 1 - left), top, left
    area = options.get("area")
    if area is None:
        return None
    if area[0] == "percentage":
        height, width = round(area[1] * SIZE[0]), round(area[2] * SIZE[1])
        return height, width, round(area[3] * SIZE[0]), round(area[4] * SIZE[1])
    height, width, top, left = area
    return min(height, SIZE[0] - top), min(width, SIZE[1] - left), top, left


def _inside(area: Sequence[int], other: Sequence[int]) -> bool:
    rows = other[2] <= area[2] and area[2] + area[0] <= other[2] + other[0]
    return rows and other[3] <= area[3] and area[3] + area[1] <= other[3] + other[1]


def _counts(options: Any, sigma: float, schedule: Any) -> bool:
    share = 1 - schedule.sigma_to_timestep(sigma) / 999
    return bool(options.get("start_percent", 0.0) <= share <= options.get("end_percent", 1.0))


def _slow_weight(options: Any, area: Sequence[int] | None, row: int, i: int, j: int) -> float:
    weight = float(options.get("strength", 1.0))
    mask = options.get("mask")
    if mask is not None:
        if tuple(mask.shape[-2:]) != SIZE:
            mask = torch.nn.functional.interpolate(mask[None], size=SIZE, mode="bilinear")[0]
        top, left = (area[2], area[3]) if area else (0, 0)
        return weight * float(mask[row % len(mask), top + i, left + j]) * options["mask_strength"]
    if area is None:
        return weight
    for length, start, whole, place in (
        (area[0], area[2], SIZE[0], i),
        (area[1], area[3], SIZE[1], j),
    ):
        fade = min(8, length // 4)
        if start > 0 and place < fade:
            weight *= (place + 1) / fade
        if start + length < whole and length - 1 - place < fade:
            weight *= (length - place) / fade
    return weight


@pytest.mark.parametrize("name", CASES)
def test_prompts_count_as_the_slow_loop_says(name: str, sd15: Engine) -> None:
    case, model, schedule = CASES[name], sd15.model, sd15.schedule
    x = torch.randn(2, 4, *SIZE, generator=torch.Generator().manual_seed(8))
    conditions = Conditions(model, schedule, SIZE, case.positive, case.negative)
    guiding = MultiCondDenoiser(conditions, case.cfg, _no_controls)
    made = guiding.denoise(cast("Engine", FakeEngine()), DenoiseQuery(x, case.sigma, 0))
    torch.testing.assert_close(made.double(), _slow(case, x, schedule), atol=1e-5, rtol=1e-4)


def _no_controls(*_: object) -> Any:
    raise AssertionError("nobody applied a ControlNet")


def test_prompts_for_parts_of_one_shape_share_an_evaluation(sd15: Engine) -> None:
    halves = [*_area(_text(1), 80, 96, 0, 0), *_area(_text(2), 80, 96, 80, 0)]
    conditions = Conditions(sd15.model, sd15.schedule, SIZE, [*_text(4), *halves], _text(3))
    engine = FakeEngine()
    guiding = MultiCondDenoiser(conditions, 5.0, _no_controls)
    guiding.denoise(cast("Engine", engine), DenoiseQuery(torch.zeros(1, 4, *SIZE), 3.0, 0))
    # Two whole ones, and two halves with an opposite each.
    assert sorted(engine.evaluations) == [2, 4]


def test_a_text_of_another_model_is_refused_with_the_side_it_is_on(sd15: Engine) -> None:
    wrong: Pairs = [(torch.zeros(1, 7, 2048), {})]
    with pytest.raises(RequestError, match=r"negative: is 2048 wide.*reads 32; encode it with the CLIP"):
        Conditions(sd15.model, sd15.schedule, SIZE, _text(1), wrong)


def test_sdxl_is_told_sizes_and_the_refiner_a_score() -> None:
    asked = {"width": 800, "height": 600, "crop_w": 3, "crop_h": 4, "target_width": 512, "target_height": 400}
    engines = {name: small_engine(name) for name in ("sdxl", "sdxl-refiner")}
    for name, told, expected in (
        ("sdxl", asked, [600.0, 800.0, 4.0, 3.0, 400.0, 512.0]),
        ("sdxl", {}, [96.0, 160.0, 0.0, 0.0, 96.0, 160.0]),
        ("sdxl-refiner", {"aesthetic_score": 7.5, "width": 800}, [96.0, 800.0, 0.0, 0.0, 7.5]),
        ("sdxl-refiner", {}, [96.0, 160.0, 0.0, 0.0, 6.0]),
    ):
        engine = engines[name]
        width = engine.model.unet.config.cross_attention_dim
        pair = [(torch.zeros(1, 7, width), {**told, "pooled_output": torch.zeros(1, 48)})]
        conditions = Conditions(engine.model, engine.schedule, SIZE, pair, pair)
        ids = conditions.positive[0].told.time_ids
        assert ids is not None
        assert ids.tolist() == [expected]
        if expected[-1] == 6.0:
            other = conditions.negative[0].told.time_ids
            assert other is not None
            assert other[0, -1] == 2.5
