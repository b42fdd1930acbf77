"""Switches that only a GPU or many ranks feel arrive where torch takes them; what they do is in tests/gpu."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.activations import GEGLU
from torch import nn

from calotype.spec.recipe import Recipe
from calotype.train.builders import build_task, load_training_model
from calotype.train.compile import compiled
from calotype.train.distributed import process_group
from calotype.train.distributed.process_group import Rank, wrap_ddp_or_fsdp
from calotype.train.optimizer import build_optimizer
from tests.unit.train.runs import CPU, small_recipe

OF_TWO = Rank(0, 2, 0, torch.device("cpu"))


@pytest.mark.parametrize(
    ("switches", "wanted"),
    [
        ({}, None),
        ({"compile": True}, {"options": False}),
        ({"compile": True, "cuda_graphs": True}, {"options": True}),
        ({"cuda_graphs": True}, {"backend": "cudagraphs"}),
    ],
)
def test_inductor_and_graphs(
    switches: dict[str, bool], wanted: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []

    def compile_nothing(network: nn.Module, **settings: Any) -> nn.Module:
        if "options" in settings:
            settings["options"] = settings["options"]["triton.cudagraphs"]
        told.append(settings)
        return network

    monkeypatch.setattr(torch, "compile", compile_nothing)
    network = nn.Linear(1, 1)
    assert compiled(network, Recipe.parse({"model": switches})) is network
    assert told == ([] if wanted is None else [wanted])


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"model__compile": True}, True),
        ({"model__compile": True, "model__train": "unet_and_text", "data__kind": "synthetic"}, True),
        ({"model__compile": True, "model__train": "lora"}, False),
        ({"model__compile": True, "model__train": "textual_inversion"}, False),
        ({}, False),
    ],
)
def test_gates_have_a_gradient_of_their_own_where_the_whole_unet_is_trained_and_compiled(
    settings: dict[str, Any], changed: bool, base: Path, tmp_path: Path
) -> None:
    recipe = small_recipe(base, tmp_path / "run", **settings)
    subject = build_task(load_training_model(recipe, CPU), recipe)
    gates = [part for part in subject.model.unet.modules() if isinstance(part, GEGLU)]
    assert gates
    # Those of diffusers keep the forward of their class.
    assert [isinstance(part.__dict__.get("forward"), partial) for part in gates] == [changed] * len(gates)


@pytest.mark.parametrize("view", [True, False])
def test_views_of_buckets_and_overlap(view: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    def share_nothing(network: nn.Module, *, gradient_as_bucket_view: bool, **_: Any) -> nn.Module:
        told.append(gradient_as_bucket_view)
        return network

    monkeypatch.setattr(process_group, "DistributedDataParallel", share_nothing)
    for overlap in (True, False):
        trainer = {"gradient_as_bucket_view": view, "overlap": overlap}
        wrap_ddp_or_fsdp(nn.Linear(1, 1), Recipe.parse({"trainer": trainer}), OF_TWO)
    # Without overlap nothing is wrapped: gradients travel when all are there.
    assert told == [view]


@pytest.mark.parametrize("fused", [True, False])
def test_a_fused_update(fused: bool) -> None:
    part = Recipe.parse({"optimizer": {"fused": fused}}).optimizer
    optimizer = build_optimizer([nn.Parameter(torch.zeros(1))], part)
    assert optimizer.defaults["fused"] is fused
