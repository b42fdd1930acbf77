"""Prints how many pictures of which precision inductor's code for a block would write on a Hopper GPU.

With none at hand. A program of its own: torch is told that such a GPU is here. The block is traced on the
CPU, forward and back, and what is traced is lowered as if its tensors lay on the GPU; nothing is compiled.
"""

from __future__ import annotations

import copy
import json
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from diffusers.models.resnet import ResnetBlock2D
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.device_interface import CudaInterface
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import config, scheduler
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils import _triton

from calotype.engine.passes.channel_sum_group_norm import use_channel_sum_group_norm
from calotype.engine.passes.channels_last import use_channels_last
from calotype.spec.recipe import Recipe
from calotype.train.compile import compiled

PICTURE = (2, 64, 32, 32)
GPU = torch.device("cuda:0")
HOPPER = {"multi_processor_count": 132, "major": 9, "regs_per_multiprocessor": 65536, "warp_size": 32}
HOPPER |= {"max_threads_per_multi_processor": 2048}
DESCRIBED = SimpleNamespace(**HOPPER, minor=0, name="NVIDIA H200", total_memory=2**37, gcnArchName="")


def options() -> dict[str, Any]:
    """Those a recipe that compiles gives to inductor."""
    with patch.object(torch, "compile") as asked:
        compiled(nn.Identity(), Recipe.parse({"model": {"compile": True, "channels_last": True}}))
    told: dict[str, Any] = asked.call_args.kwargs["options"]
    return told


def pretended() -> ExitStack:
    """Everything inductor asks about the GPU while it writes code."""
    answers: list[tuple[Any, str, Any]] = [
        (DeviceProperties, "create", lambda _: DeviceProperties("cuda", 0, cc=90, **HOPPER)),
        (scheduler, "has_triton", lambda: True),
        (_triton, "triton_hash_with_backend", lambda: "none"),
        (CudaInterface, "raise_if_triton_unavailable", lambda *_: None),
        (CudaInterface.Worker, "get_device_properties", lambda *_: DESCRIBED),
        # As cuDNN answers; this torch has none.
        (torch._C, "_conv_determine_backend_memory_format", lambda *_: torch.channels_last),
    ]
    answers += [
        (torch.cuda, name, answer)
        for name, answer in {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "get_device_properties": lambda *_: DESCRIBED,
            "get_device_capability": lambda *_: (9, 0),
            "_lazy_init": lambda: None,
        }.items()
    ]
    stack = ExitStack()
    for place, name, answer in answers:
        stack.enter_context(patch.object(place, name, answer))
    return stack


def code_for_gpu(traced: fx.GraphModule) -> str:
    """What inductor writes for the same operations on the GPU."""
    moved = copy.deepcopy(traced)
    for node in moved.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": GPU}
    moved.recompile()
    given = [node.meta["val"] for node in moved.graph.nodes if node.op == "placeholder"]
    mode = given[0].fake_mode
    with mode:
        inputs = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=GPU) for v in given]
        FakeTensorProp(moved, mode).propagate_dont_convert_inputs(*inputs)
    with V.set_fake_mode(mode), V.set_debug_handler(DebugContext()), config.patch(options()):
        graph = GraphLowering(moved, example_inputs=inputs)
        with V.set_graph_handler(graph):
            graph.run(*inputs)
            written, _ = graph.codegen()
    return str(written.value)


def main() -> None:
    block: Any = ResnetBlock2D(in_channels=PICTURE[1], out_channels=PICTURE[1], temb_channels=32)
    use_channels_last(block)
    use_channel_sum_group_norm(block)
    codes: list[str] = []

    def lowered(traced: fx.GraphModule, _: Any) -> Any:
        with pretended():
            codes.append(code_for_gpu(traced))
        return traced

    backend = aot_autograd(
        fw_compiler=lowered,
        bw_compiler=lowered,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    picture = torch.randn(PICTURE, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        answer = torch.compile(block, backend=backend, fullgraph=True)(
            picture.requires_grad_(), torch.randn(2, 32, dtype=torch.bfloat16)
        )
    answer.float().sum().backward()
    _, c, h, w = PICTURE
    allocated = f"empty_strided_cuda({PICTURE}, ({c * h * w}, 1, {c * w}, {c}), torch."
    found = [{kind: code.count(allocated + kind) for kind in ("float32", "bfloat16")} for code in codes]
    print(json.dumps(dict(zip(("forward", "back"), found, strict=True))))


if __name__ == "__main__":
    main()
