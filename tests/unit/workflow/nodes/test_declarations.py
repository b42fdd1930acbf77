"""Every node is declared as the contract has it, its work is there, and declaring it loads nothing heavy."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from calotype.workflow.node_api import NodeDef
from calotype.workflow.nodes import NODES
from calotype.workflow.nodes.lazy import IMPL_PACKAGE

BY_NAME = {node.name: node for node in NODES}
CONTRACT = {
    "CheckpointLoaderSimple": "ckpt_name → MODEL CLIP VAE",
    "CLIPTextEncode": "text clip → CONDITIONING",
    "CLIPSetLastLayer": "clip stop_at_clip_layer → CLIP",
    "EmptyLatentImage": "width height batch_size → LATENT",
    "KSampler": "model seed steps cfg sampler_name scheduler positive negative latent_image denoise → LATENT",
    "KSamplerAdvanced": "model add_noise noise_seed steps cfg sampler_name scheduler positive negative "
    "latent_image start_at_step end_at_step return_with_leftover_noise → LATENT",
    "VAEDecode": "samples vae → IMAGE",
    "VAEEncode": "pixels vae → LATENT",
    "VAEEncodeForInpaint": "pixels vae mask grow_mask_by → LATENT",
    "VAELoader": "vae_name → VAE",
    "LoraLoader": "model clip lora_name strength_model strength_clip → MODEL CLIP",
    "LoadImage": "image → IMAGE MASK",
    "LatentUpscale": "samples upscale_method width height crop → LATENT",
    "ControlNetLoader": "control_net_name → CONTROL_NET",
    "SaveImage": "images filename_prefix → ",
    "PreviewImage": "images → ",
    "ConditioningCombine": "conditioning_1 conditioning_2 → CONDITIONING",
    "ConditioningConcat": "conditioning_to conditioning_from → CONDITIONING",
    "ConditioningAverage": "conditioning_to conditioning_from conditioning_to_strength → CONDITIONING",
    "LatentFromBatch": "samples batch_index length → LATENT",
    "RepeatLatentBatch": "samples amount → LATENT",
    "ImageScale": "image upscale_method width height crop → IMAGE",
}


@pytest.mark.parametrize(("name", "form"), CONTRACT.items())
def test_inputs_and_outputs_are_the_contracts_in_its_order(name: str, form: str) -> None:
    """The order of inputs is that of an editor's widgets, the order of outputs that of links."""
    node = BY_NAME[name]
    found = f"{' '.join(i.name for i in node.inputs)} → {' '.join(o.type for o in node.outputs)}"
    assert found == form


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_work_takes_exactly_what_is_declared(node: NodeDef) -> None:
    module, function = node.run.__name__.split(".")
    parameters = dict(
        inspect.signature(getattr(import_module(f"{IMPL_PACKAGE}.{module}"), function)).parameters
    )
    context, *others = parameters
    assert context.removeprefix("_") == "context"
    assert set(others) == {declared.name for declared in node.inputs}
    needed = {name for name in others if parameters[name].default is inspect.Parameter.empty}
    assert not needed & {declared.name for declared in node.inputs if declared.optional}


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_every_node_says_what_it_does(node: NodeDef) -> None:
    assert node.help.endswith(".")


def test_names_are_declared_once() -> None:
    assert len(BY_NAME) == len(NODES)


def test_declaring_nodes_loads_no_torch() -> None:
    code = "import sys, calotype.workflow.nodes; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
