"""Live models: every weight in its place, in the dtype asked for, and none that is not a number."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.core.progress import Silent
from calotype.models.model import Model, load_model, load_part, vae_dtype
from calotype.models.resolve import random_identity
from calotype.models.weights import NamedTensors, RandomWeights, TensorSpec
from tests.small_models import shrunk

NAMES = ["sd15", "sd2-base", "sdxl", "sdxl-refiner", "emoji"]
CPU = torch.device("cpu")


class _Damaged:
    """Random weights with some tensors replaced."""

    def __init__(self, name: str, changes: Mapping[tuple[str, str], Tensor]) -> None:
        self.architecture = shrunk(name)
        self._weights, self._changes = RandomWeights(self.architecture), changes

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        specs = dict(self._weights.specs(part))
        changed = {tensor: value for (where, tensor), value in self._changes.items() if where == part}
        return specs | {
            tensor: TensorSpec(value.dtype, tuple(value.shape)) for tensor, value in changed.items()
        }

    def read(self, part: str, name: str) -> Tensor:
        changed = self._changes.get((part, name))
        return self._weights.read(part, name) if changed is None else changed

    def extra(self) -> NamedTensors | None:
        return None


class _Counted:
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.label, self.total, self.done = "", 0, 0

    def start(self, label: str, total: int) -> None:
        self.label, self.total = label, total

    def advance(self, amount: int = 1) -> None:
        self.done += amount

    def describe(self, label: str) -> None:
        pass


def _assemble(name: str, dtype: torch.dtype = torch.float32, progress: _Counted | None = None) -> Model:
    architecture = shrunk(name)
    identity = random_identity(f"random:{name}", architecture, 0)
    return load_model(RandomWeights(architecture), identity, dtype=dtype, device=CPU, progress=progress)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_is_in_its_place(name: str) -> None:
    counted = _Counted()
    model, weights = _assemble(name, progress=counted), RandomWeights(shrunk(name))
    for part, module in model.parts().items():
        state = module.state_dict()
        published = {key if key.startswith("text_") else f"text_model.{key}": t for key, t in state.items()}
        found = published if part.startswith("text_encoder") else state
        assert found.keys() == weights.specs(part).keys()
        assert all(torch.equal(tensor, weights.read(part, key)) for key, tensor in found.items())
        assert not module.training
        assert not any(p.requires_grad or p.is_meta for p in module.parameters())
        assert not any(buffer.is_meta for buffer in module.buffers())
    assert counted.done == counted.total > 0


@pytest.mark.parametrize("name", NAMES)
def test_text_encoders_run(name: str) -> None:
    """They look positions up in a buffer that no file holds."""
    model = _assemble(name)
    for tokenizer, encoder in zip(model.tokenizers, model.text_encoders, strict=True):
        ids = tokenizer("a cat", padding="max_length", max_length=77, return_tensors="pt").input_ids
        hidden = (
            encoder(input_ids=ids).last_hidden_state
            if not name.startswith("sdxl")
            else encoder(input_ids=ids, output_hidden_states=True).hidden_states[-1]
        )
        assert torch.isfinite(hidden).all()
        assert not torch.equal(hidden[:, 10], hidden[:, 20])


@pytest.mark.parametrize(
    ("name", "force_upcast", "expected"),
    [("sd15", True, torch.float16), ("sdxl", True, torch.float32), ("sdxl", False, torch.float16)],
)
def test_sdxl_autoencoder_is_not_run_in_half_precision(
    name: str, force_upcast: bool, expected: torch.dtype
) -> None:
    small = shrunk(name)
    architecture = replace(small, vae={**small.vae, "force_upcast": force_upcast})
    assert vae_dtype(architecture, torch.float16) == expected
    assert vae_dtype(architecture, torch.bfloat16) == torch.bfloat16


def test_dtype_and_size_are_what_was_asked_for() -> None:
    half, full = _assemble("sdxl", torch.float16), _assemble("sdxl")
    assert {p.dtype for p in half.unet.parameters()} == {torch.float16}
    assert {p.dtype for p in half.vae.parameters()} == {torch.float32}
    counts = shrunk("sdxl").parameter_counts()
    assert full.weight_bytes == 4 * sum(counts.values())
    assert half.weight_bytes == 2 * sum(counts.values()) + 2 * counts["vae"]


@pytest.mark.parametrize(
    "vocabulary",
    ["latin", {"vocab": {"a": 0}, "merges": [["a", "b"]]}, {"vocab": {}}, {"vocab": 3, "merges": []}],
)
def test_tokenizer_that_cannot_be_built_is_refused(vocabulary: object) -> None:
    broken = replace(shrunk("emoji"), tokenizers=({"vocabulary": vocabulary},))
    identity = random_identity("my-model", broken, 0)
    with pytest.raises(ModelFileError, match="my-model: its tokenizer cannot be built"):
        load_model(RandomWeights(broken), identity, dtype=torch.float32, device=CPU)


@pytest.mark.parametrize("outlined", [False, True])
def test_a_tokenizer_with_words_that_the_encoder_lacks_is_refused(outlined: bool) -> None:
    architecture = shrunk("emoji")
    more = {**architecture.tokenizers[0], "added_tokens": ["<cat-toy>"]}
    larger = replace(architecture, tokenizers=(more,))
    identity = random_identity("random:emoji", larger, 0)
    with pytest.raises(ModelFileError, match="has 515 tokens, its text encoder embeds only 514"):
        load_model(RandomWeights(larger), identity, dtype=torch.float32, device=CPU, outlined=outlined)


@pytest.mark.parametrize(
    ("place", "value", "dtype", "reason"),
    [
        (
            ("unet", "conv_in.bias"),
            torch.full((32,), torch.nan),
            torch.float32,
            "1 tensors of its unet hold NaN",
        ),
        (("unet", "conv_in.bias"), torch.full((32,), torch.inf), torch.float32, "first is 'conv_in.bias'"),
        (("vae", "quant_conv.bias"), torch.full((8,), torch.nan), torch.float32, "vae .* 'quant_conv.bias'"),
        (
            ("text_encoder", "text_model.final_layer_norm.bias"),
            torch.full((32,), torch.nan),
            torch.float32,
            "text_encoder .* 'text_model.final_layer_norm.bias'",
        ),
        (
            ("unet", "conv_in.bias"),
            torch.full((32,), 1e6),
            torch.float16,
            "a dtype that is too narrow can cause this",
        ),
        (
            ("unet", "conv_in.bias"),
            torch.zeros(32, dtype=torch.int8),
            torch.float32,
            "quantized files cannot",
        ),
    ],
)
def test_weights_that_are_no_numbers_are_refused_by_name(
    place: tuple[str, str], value: Tensor, dtype: torch.dtype, reason: str
) -> None:
    identity = random_identity("my-model.safetensors", shrunk("emoji"), 0)
    with pytest.raises(ModelFileError, match=f"my-model.safetensors: .*{reason}"):
        load_model(_Damaged("emoji", {place: value}), identity, dtype=dtype, device=CPU)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 17, 31])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_number_that_is_none_is_enough(bad: float, place: int, dtype: torch.dtype) -> None:
    values = torch.linspace(-1, 1, 32)
    values[place] = bad
    weights = _Damaged("emoji", {("unet", "conv_in.bias"): values})
    with pytest.raises(ModelFileError, match=r"1 tensors of its unet .* 'conv_in\.bias'"):
        load_part(weights, "unet", source="mine", dtype=dtype, device=CPU, progress=Silent(), outlined=True)
