"""Random weights: the same numbers from the same seed in any order, and numbers that a model can run with."""

import threading

import pytest
import torch

from calotype.models.model import load_model
from calotype.models.resolve import random_identity
from calotype.models.weights import RandomWeights, in_order
from tests.small_models import shrunk
from tests.unit.models.on_disk import assert_same_parts, read_weights

EMOJI = shrunk("emoji")


def test_same_seed_same_numbers() -> None:
    assert_same_parts(read_weights(RandomWeights(EMOJI, 7)), read_weights(RandomWeights(EMOJI, 7)))


def test_other_seed_other_numbers() -> None:
    first, second = RandomWeights(EMOJI, 7), RandomWeights(EMOJI, 8)
    for part in EMOJI.parts():
        for name in first.specs(part):
            assert not torch.equal(first.read(part, name), second.read(part, name)), name


def test_no_two_tensors_are_alike() -> None:
    weights = RandomWeights(EMOJI)
    tensors = [(part, name) for part in EMOJI.parts() for name in weights.specs(part)]
    starts = {tuple(weights.read(part, name).flatten()[:4].tolist()) for part, name in tensors}
    assert len(starts) == len(tensors)


def test_order_does_not_matter() -> None:
    forwards, backwards = RandomWeights(EMOJI), RandomWeights(EMOJI)
    names = list(forwards.specs("unet"))
    first = {name: forwards.read("unet", name) for name in names}
    assert all(torch.equal(first[name], backwards.read("unet", name)) for name in reversed(names))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtype_is_the_one_asked_for(dtype: torch.dtype) -> None:
    weights, exact = RandomWeights(EMOJI, dtype=dtype), RandomWeights(EMOJI)
    for name, spec in weights.specs("vae").items():
        assert spec.dtype == dtype
        assert torch.equal(weights.read("vae", name), exact.read("vae", name).to(dtype))


@pytest.mark.parametrize("name", ["sd15", "sd2-base", "sdxl"])
def test_picture_depends_on_the_prompt(name: str) -> None:
    """Weights with too little spread would make benchmarks of a constant."""
    architecture = shrunk(name)
    identity = random_identity("random", architecture, 0)
    cpu = torch.device("cpu")
    model = load_model(RandomWeights(architecture), identity, dtype=torch.float32, device=cpu)
    sample = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    outputs = []
    for seed in (1, 2):
        numbers = torch.Generator().manual_seed(seed)
        context = torch.randn(1, 77, architecture.unet["cross_attention_dim"], generator=numbers)
        added = None
        if name == "sdxl":
            pooled = architecture.text_encoders[1]["projection_dim"]
            added = {"text_embeds": torch.zeros(1, pooled), "time_ids": torch.zeros(1, 6)}
        output = model.unet(sample, 500, encoder_hidden_states=context, added_cond_kwargs=added)
        outputs.append(output.sample)
    assert torch.isfinite(outputs[0]).all()
    assert (outputs[0] - outputs[1]).std() > 1e-3 * outputs[0].std()


def test_made_ahead_they_are_the_same_in_the_same_order_and_no_thread_stays() -> None:
    weights = RandomWeights(shrunk("sd15"), seed=5)
    before = set(threading.enumerate())
    made = list(in_order(weights, "unet"))
    assert [name for name, _ in made] == list(weights.specs("unet"))
    assert all(torch.equal(tensor, weights.read("unet", name)) for name, tensor in made)
    assert set(threading.enumerate()) == before
