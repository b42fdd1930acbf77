"""What `/object_info` says of nodes, in the shape that clients of ComfyUI read."""

from __future__ import annotations

import json

from calotype.workflow.node_api import COMBO, LATENT, Input, NodeDef, Output
from calotype.workflow.object_info import describe, describe_all
from tests.unit.workflow.small_nodes import REGISTRY, Names


def test_a_node_in_the_shape_clients_read() -> None:
    assert describe(REGISTRY["Sampler"], Names()) == {
        "input": {
            "required": {
                "model": ["MODEL", {}],
                "positive": ["CONDITIONING", {}],
                "seed": ["INT", {"default": 0, "min": 0, "max": 2**64 - 1, "control_after_generate": True}],
                "steps": ["INT", {"default": 2, "min": 1, "max": 100}],
                "cfg": ["FLOAT", {"default": 8.0, "min": 0.0, "max": 100.0, "step": 0.1}],
                "sampler": [["euler", "heun"], {"default": "euler"}],
            },
            "optional": {"latent": ["LATENT", {}]},
        },
        "input_order": {
            "required": ["model", "positive", "seed", "steps", "cfg", "sampler"],
            "optional": ["latent"],
        },
        "output": ["LATENT"],
        "output_is_list": [False],
        "output_name": ["LATENT"],
        "output_tooltips": [""],
        "name": "Sampler",
        "display_name": "Small sampler",
        "description": "Draws.",
        "python_module": "calotype",
        "category": "sampling",
        "output_node": False,
    }


def test_settings_that_only_some_inputs_have() -> None:
    text = describe(REGISTRY["Text"], Names())
    assert text["input"]["required"]["text"] == ["STRING", {"tooltip": "What to show.", "multiline": True}]
    assert text["output_name"] == ["positive"]
    picture = describe(REGISTRY["Picture"], Names())
    assert picture["input"]["required"]["image"] == [["cat.png", "masks/cat.png"], {"image_upload": True}]
    assert describe(REGISTRY["Switch"], Names())["input"]["required"]["yes"] == ["*", {"lazy": True}]
    assert describe(REGISTRY["Save"], Names())["output_node"]


def test_a_package_that_cannot_list_its_names_does_not_hide_the_rest() -> None:
    def broken(names: object) -> list[str]:
        raise OSError("gone")

    bad = NodeDef("Bad", lambda _: (), (Input("x", COMBO, choices=broken),), (Output(LATENT),))
    described = describe_all({**REGISTRY, "Bad": bad}, Names())
    assert described["Bad"]["input"]["required"]["x"] == [[], {}]
    assert json.loads(json.dumps(described)) == described
    assert set(described) == {*REGISTRY, "Bad"}
