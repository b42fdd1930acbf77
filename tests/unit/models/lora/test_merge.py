"""Several LoRAs at once, switching, and taking them out again to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from calotype.models.lora import Adapter, LayerUpdate, LoraMerger, read_adapter
from calotype.models.model import Model
from tests.small_models import shrunk
from tests.unit.models.conftest import FolderOf
from tests.unit.models.lora.test_formats import (
    assert_close,
    assert_far,
    live,
    model_outputs,
    our_outputs,
    pipeline_of,
    pipeline_outputs,
)
from tests.unit.models.lora_files import layers_of, random_updates, write_diffusers, write_kohya

SD15 = shrunk("sd15")
LAYERS = layers_of(SD15, ["unet", "text_encoder"])


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA of the first two thirds of all layers."""
    file = tmp_path_factory.mktemp("lora") / "first.safetensors"
    layers = LAYERS[: 2 * len(LAYERS) // 3] + LAYERS[-4:]
    return write_kohya(file, random_updates(SD15, layers, seed=1), 2.0, one_encoder=True)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another, of the last two thirds, so that some layers have both and some have one."""
    file = tmp_path_factory.mktemp("lora") / "second.safetensors"
    return write_diffusers(file, random_updates(SD15, LAYERS[len(LAYERS) // 3 :], seed=2, rank=2))


def _state(model: Model) -> list[Tensor]:
    return [tensor.clone() for part in model.parts().values() for tensor in part.state_dict().values()]


def _bit_equal(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.filterwarnings("ignore:Already found a `peft_config` attribute in the model:UserWarning")
def test_two_at_once_with_strengths_same_as_diffusers(first: Path, second: Path, folder_of: FolderOf) -> None:
    pipeline = pipeline_of(folder_of("sd15"))
    pipeline.load_lora_weights(first, adapter_name="first")
    pipeline.load_lora_weights(second, adapter_name="second")
    pipeline.set_adapters(["first", "second"], [0.7, -0.4])
    expected = pipeline_outputs(SD15, pipeline)
    one, other = read_adapter(first, SD15), read_adapter(second, SD15)
    assert_close(our_outputs("sd15", [(one, 0.7, 0.7), (other, -0.4, -0.4)]), expected)


def test_text_encoder_has_a_strength_of_its_own(first: Path, folder_of: FolderOf) -> None:
    pipeline = pipeline_of(folder_of("sd15"))
    pipeline.load_lora_weights(first, adapter_name="first")
    pipeline.set_adapters(["first"], [{"unet": 0.5, "text_encoder": 1.5}])
    expected = pipeline_outputs(SD15, pipeline)
    assert_close(our_outputs("sd15", [(read_adapter(first, SD15), 0.5, 1.5)]), expected)


def test_what_stays_is_not_merged_again_and_what_changes_is(first: Path, second: Path) -> None:
    one, other = read_adapter(first, SD15), read_adapter(second, SD15)
    model, fresh = live("sd15"), live("sd15")
    stack = LoraMerger(model.parts())
    for uses in (
        [(one, 1.0, 1.0)],
        [(one, 0.5, 1.0)],
        [(one, 0.5, 1.0), (other, 0.5, 0.0)],
        [(one, 0.5, 0.2)],
    ):
        stack.use(uses)
    LoraMerger(fresh.parts()).use([(one, 0.5, 0.2)])
    assert _bit_equal(_state(model), _state(fresh))
    before = [tensor._version for tensor in model.unet.state_dict().values()]
    stack.use([(one, 0.5, 0.7)])
    assert [tensor._version for tensor in model.unet.state_dict().values()] == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_taking_out_restores_every_bit(first: Path, second: Path, dtype: torch.dtype) -> None:
    model = live("sd15")
    for part in model.parts().values():
        part.to(dtype)
    before, addresses = _state(model), [p.data_ptr() for p in model.unet.parameters()]
    stack = LoraMerger(model.parts())
    one, other = read_adapter(first, SD15), read_adapter(second, SD15)
    for strength in (1.0, 0.3, -2.0):
        stack.use([(one, strength, strength), (other, 1.0, 0.0)])
        assert not _bit_equal(_state(model), before)
    stack.use([])
    assert _bit_equal(_state(model), before)
    # In place: a captured graph would still find the weights where they were.
    assert [p.data_ptr() for p in model.unet.parameters()] == addresses


def test_switching_is_the_same_as_starting_with_the_other(first: Path, second: Path) -> None:
    one, other = read_adapter(first, SD15), read_adapter(second, SD15)
    switched, alone = live("sd15"), live("sd15")
    stack = LoraMerger(switched.parts())
    stack.use([(one, 1.0, 1.0)])
    with_first = model_outputs(switched)
    stack.use([(other, 0.8, 0.8)])
    LoraMerger(alone.parts()).use([(other, 0.8, 0.8)])
    assert _bit_equal(_state(switched), _state(alone))
    assert_far(model_outputs(switched), with_first)


def test_strength_of_zero_is_no_lora(first: Path) -> None:
    model = live("sd15")
    before = _state(model)
    LoraMerger(model.parts()).use([(read_adapter(first, SD15), 0.0, 0.0)])
    assert _bit_equal(_state(model), before)


def test_failure_halfway_can_be_undone(first: Path) -> None:
    model = live("sd15")
    before, stack = _state(model), LoraMerger(model.parts())
    good = read_adapter(first, SD15)
    unfit = LayerUpdate(torch.zeros(2, 3), torch.zeros(5, 2), 1.0)
    bad = Adapter("bad", {**good.layers, ("unet", "conv_out"): unfit})
    with pytest.raises(RuntimeError):
        stack.use([(bad, 1.0, 1.0)])
    assert not _bit_equal(_state(model), before)
    stack.use([])
    assert _bit_equal(_state(model), before)


def test_adapter_is_called_like_its_file(first: Path) -> None:
    assert read_adapter(first, SD15).name == "first"
