"""Which attention our kernel takes, with stand-ins for tensors on GPUs that are not here; a table of ways."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from diffusers.models.attention import BasicTransformerBlock
from torch import Tensor

from calotype.engine.kernels import attention, dispatch
from calotype.engine.kernels.attention import PLANS, Plan, supports
from calotype.engine.modules.ops import Operations
from calotype.engine.modules.ops import attention as usual
from calotype.engine.modules.transformer import Layer
from tests.gpu.apart import Row
from tests.gpu.attention import CANDIDATES, SHAPES, WAYS, Shape, applies, show
from tests.unit.engine.kernels.gluon_stand_in import attend

HOPPER, AMPERE, BLACKWELL = (torch.device("cuda", index) for index in range(3))
CAPABILITIES = {0: (9, 0), 1: (8, 0), 2: (10, 0)}


@pytest.fixture(autouse=True)
def _a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_has_triton", lambda: True)
    monkeypatch.setattr(dispatch, "_has_gluon", lambda: True)
    monkeypatch.setattr(dispatch, "capability", lambda device: CAPABILITIES[device.index])
    monkeypatch.setattr(attention, "num_multiprocessors", lambda _: 132)


def on_gpu(x: Tensor, device: torch.device = HOPPER, **changes: Any) -> Tensor:
    names = ("dtype", "shape", "stride", "numel", "element_size", "data_ptr", "requires_grad")
    same = {name: getattr(x, name) for name in names}
    return cast("Tensor", SimpleNamespace(**{**same, "is_cuda": True, "device": device, **changes}))


def parts(
    heads: int = 10,
    places: int = 4096,
    channels: int = 64,
    dtype: torch.dtype = torch.float16,
    rows: int = 16,
) -> tuple[Tensor, ...]:
    """Query, key and value as the forward pass has them."""
    joined = torch.empty(rows, places, 3, heads, channels, dtype=dtype)
    return joined.permute(2, 0, 3, 1, 4).unbind()


def taken(views: tuple[Tensor, ...], **changes: Any) -> bool:
    query, key, value = (on_gpu(x, **changes) for x in views)
    return supports(query, key, value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("heads", "places", "channels"), [(10, 4096, 64), (20, 6144, 64), (8, 4096, 40)])
def test_takes_parts_of_one_product_where_they_lie(
    heads: int, places: int, channels: int, dtype: torch.dtype
) -> None:
    assert taken(parts(heads, places, channels, dtype))


@pytest.mark.parametrize(
    "views",
    [
        parts(channels=80),
        parts(channels=32),
        parts(places=1024),
        parts(rows=2),
        parts(places=4096 + 64),
        parts(dtype=torch.float32),
        # A head of one channel more before them: nothing begins where the copy engine can.
        tuple(x[..., 1:] for x in parts(channels=65)),
        # Places inside channels.
        tuple(x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in parts()),
    ],
)
def test_leaves_others_to_torch(views: tuple[Tensor, ...]) -> None:
    assert not taken(views)


@pytest.mark.parametrize("device", [AMPERE, BLACKWELL])
def test_other_gpus_have_other_instructions(device: torch.device) -> None:
    assert taken(parts())
    assert not taken(parts(), device=device)


def test_has_no_gradient() -> None:
    assert not taken(parts(), requires_grad=True)


def test_leaves_prompts_to_torch() -> None:
    query, key, value = parts()
    assert not supports(on_gpu(query), on_gpu(key[:, :, :77]), on_gpu(value[:, :, :77]))


@pytest.mark.parametrize("plan", [Plan(queries=16, keys=16), Plan(queries=16, keys=16, split=True)])
@pytest.mark.parametrize("joined", [False, True])
def test_a_layer_says_the_same_with_it(joined: bool, plan: Plan) -> None:
    """Of a network of ours, with the kernel's source on a stand-in for a GPU."""
    torch.manual_seed(0)
    block = BasicTransformerBlock(
        80, num_attention_heads=2, attention_head_dim=40, cross_attention_dim=16, activation_fn="geglu"
    )
    block.half().eval().requires_grad_(False)
    x, prompt = torch.randn(2, 32, 80).half(), torch.randn(2, 7, 160).half()
    seen: list[Tensor] = []

    def ours(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if query.shape != key.shape:
            return usual(query, key, value, mask)
        assert all(attention._readable(each) for each in (query, key, value))
        seen.append(attend(query, key, value, plan, 0))
        return seen[-1]

    wanted = Layer(block, Operations(), joined_qkv=joined)(x, None, None, prompt, None)
    found = Layer(block, Operations(attention=ours), joined_qkv=joined)(x, None, None, prompt, None)
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)
    # What the next product reads is no copy.
    (out,) = seen
    assert out.transpose(1, 2).flatten(2).data_ptr() == out.data_ptr()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_plan_in_use_is_measured_beside_others(shape: Shape) -> None:
    plan = PLANS[shape.channels]
    ways = [way for way in CANDIDATES if applies(way, shape)]
    assert plan in [way.plan for way in ways]
    assert len(ways) >= 3
    assert all(way.plan and shape.places % way.plan.keys == 0 for way in ways)


def test_heads_of_64_are_not_split() -> None:
    split = Plan(split=True)
    assert (split.columns(64), split.columns(40), Plan().columns(40)) == ((64, 0), (32, 16), (64, 0))


def test_the_table_has_speeds_and_evaluations_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    large, small, narrow, *_ = SHAPES
    rows = {way.name: Row() for way in WAYS}
    rows["torch's choice"] = Row({large: 1000.0, small: 200.0, narrow: 2000.0})
    rows["two teams"] = Row({large: 900.0, small: 300.0}, {narrow: "it hung"})
    show(rows)
    lines = capsys.readouterr().out.splitlines()
    # 4 × 16 × 10 × 4096² × 64 operations in a millisecond; ten of them and sixty of the other.
    assert lines[2].removeprefix("torch's choice").split() == ["687", "429", "344", "22.00", "10.00"]
    assert lines[5].removeprefix("two teams").split() == ["764", "286", "failed", "27.00"]
    assert lines[-2].split() == ["fastest", "two", "teams", *["torch's", "choice"] * 2, "none", "none"]
    assert lines[-1] == "two teams: it hung"
