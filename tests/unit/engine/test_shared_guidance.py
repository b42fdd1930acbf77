"""A latent with two prompts is handed to the network once, where all in the evaluation have two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.engine.denoiser import DenoiseInput, Denoiser, Guidance
from calotype.engine.engine import Engine
from calotype.engine.presets import build_preset, pass_names
from calotype.engine.text_encoder import Conditioning
from calotype.engine.unet_runner import Row
from calotype.sampling import DenoiseQuery
from tests.engines import begun, latents_of, relative, small_engine

SIZE: dict[str, Any] = {"width": 32, "height": 48, "steps": 4}
OTHERS = "own_forward+channels_last+joined_qkv+prompts_once+times_once+fused_norms+fused_geglu+winograd"
Handed = list[tuple[int, int]]
"""Latents and rows of each evaluation."""


class Told:
    """A network whose answer depends on latent, prompt and timestep of a row."""

    def __init__(self) -> None:
        self.handed: Handed = []

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        self.handed.append((len(sample), len(rows)))
        whole = sample.repeat(len(rows) // len(sample), 1, 1, 1)
        said = [x * row.prompt.context.mean() + row.timestep for x, row in zip(whole, rows, strict=True)]
        return torch.stack(said)

    def invalidate(self) -> None: ...


def question(engine: Engine, pictures: int, share: float, *, guided: bool = True) -> DenoiseInput:
    """One like no other, at a share of the noise levels."""
    sigma = engine.schedule.timestep_to_sigma(share * (len(engine.schedule.sigmas) - 1))
    positive, negative = (Conditioning(torch.randn(1, 2, 4), None) for _ in range(2))
    query = DenoiseQuery(torch.randn(pictures, 4, 8, 8), sigma, 0)
    return DenoiseInput(query, Guidance(positive, negative if guided else None, cfg=4.0))


def answers(
    engine: Engine, questions: list[DenoiseInput], *, shared: bool, **options: Any
) -> tuple[Any, Handed]:
    network = Told()
    denoiser = Denoiser(engine.model, engine.schedule, network, (0.1, 0.9), shared_latents=shared)
    return denoiser.denoise(questions, **options), network.handed


@pytest.mark.parametrize(
    ("kinds", "options", "handed"),
    [
        ([(1, 0.5, True)], {}, (1, 2)),
        ([(3, 0.5, True)], {}, (3, 6)),
        ([(1, 0.3, True), (3, 0.6, True), (2, 0.5, True)], {}, (6, 12)),
        ([(2, 0.5, False)], {}, (2, 2)),
        ([(1, 0.3, True), (2, 0.5, False), (2, 0.4, True)], {}, (8, 8)),
        # Outside of the guided levels.
        ([(1, 0.5, True), (1, 0.95, True)], {}, (3, 3)),
        # Pictures that nobody asked for have two prompts too; an odd row cannot.
        ([(2, 0.5, True)], {"least_rows": 6}, (3, 6)),
        ([(1, 0.3, True), (2, 0.5, True)], {"least_rows": 12}, (6, 12)),
        ([(2, 0.5, True)], {"least_rows": 5}, (5, 5)),
        ([(1, 0.3, True), (2, 0.5, False)], {"least_rows": 6}, (6, 6)),
        ([(2, 0.5, False)], {"least_rows": 4}, (4, 4)),
        ([(2, 0.5, True)], {"least_rows": 4}, (2, 4)),
    ],
)
def test_answers_are_those_of_latents_that_are_handed_in_for_each_row(
    engine: Engine, kinds: list[tuple[int, float, bool]], options: dict[str, int], handed: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    questions = [question(engine, pictures, share, guided=guided) for pictures, share, guided in kinds]
    found, handed_in = answers(engine, questions, shared=True, **options)
    wanted, usually = answers(engine, questions, shared=False, **options)
    assert handed_in == [handed]
    assert usually == [(handed[1], handed[1])]
    for asked, one, other in zip(questions, found, wanted, strict=True):
        assert one.shape == asked.query.x.shape
        assert torch.equal(one, other)
        # Nor does company change anything.
        [alone], _ = answers(engine, [asked], shared=False)
        assert torch.equal(one, alone)


@pytest.mark.parametrize("extra", ["", "+step_cache"])
@pytest.mark.parametrize("name", ["emoji", "sd15"])
def test_pictures_are_those_of_two_whole_halves(name: str, extra: str) -> None:
    usual, shared = (
        small_engine(name, preset=f"passes:{OTHERS}{p}{extra}") for p in ("", "+shared_guidance")
    )
    for count in (1, 3):
        knobs: dict[str, Any] = {**SIZE, "count": count, "cfg": 5.0, "negative_prompt": "a pear"}
        assert relative(latents_of(shared, **knobs), latents_of(usual, **knobs)) < 1e-5


def watched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Handed:
    handed: Handed = []
    network = engine._networks.unet
    evaluate = network.evaluate

    def noted(sample: Tensor, rows: Sequence[Row]) -> Tensor:
        handed.append((len(sample), len(rows)))
        return evaluate(sample, rows)

    monkeypatch.setattr(network, "evaluate", noted)
    return handed


def test_somebody_without_guidance_joins_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = small_engine("emoji", preset="fast")
    knobs: list[dict[str, Any]] = [{**SIZE, "seed": 1}, {**SIZE, "seed": 2, "cfg": 1.0, "steps": 2}]
    alone = [latents_of(fast, **each) for each in knobs]
    handed = watched(fast, monkeypatch)
    runs = [begun(fast, each)[0] for each in knobs]
    while under_way := [run for run in runs if not run.done]:
        fast.step(under_way)
    assert handed == [(3, 3), (3, 3), (1, 2), (1, 2)]
    for run, wanted in zip(runs, alone, strict=True):
        assert run.latents is not None
        assert relative(run.latents, wanted) < 1e-4


def test_sdxl_tells_its_prompt_to_the_timestep_so_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = small_engine("sdxl", preset="fast")
    handed = watched(fast, monkeypatch)
    latents_of(fast, **SIZE)
    assert set(handed) == {(2, 2)}


def test_presets_that_are_to_be_fast_have_it_everywhere(engine: Engine) -> None:
    for preset in ("fast", "int8", "fp8", "cached", "max-throughput"):
        assert "shared_guidance" in pass_names(preset, "cpu")
        assert "shared_guidance" in pass_names(preset, "cuda")
    assert build_preset(engine.model, "fast").shared_latents
    assert not build_preset(engine.model, "low-memory").shared_latents
