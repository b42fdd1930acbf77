"""What nodes say beforehand of how much they make is what they make, and limits are kept by it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from calotype.core.errors import RequestError
from calotype.workflow.graph import parse
from calotype.workflow.limits import GraphLimits
from calotype.workflow.node_api import IMAGE, INT, Input, NodeDef, Output
from calotype.workflow.nodes import NODES
from calotype.workflow.registry import Registry
from calotype.workflow.size_estimate import expected_size, measured_size, output_size, saved

BY_NAME = {node.name: node for node in NODES}
LATENT = {"samples": torch.zeros(3, 4, 8, 16)}
OTHER_FACTOR = {"samples": torch.zeros(1, 16, 4, 4), "factor": 16}
PICTURES = torch.rand(3, 24, 40, 3)
LIMITS = GraphLimits(max_pixels=64 * 64, max_count=4, max_steps=10, max_given_pixels=128 * 128)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("EmptyLatentImage", {"width": 64, "height": 128, "batch_size": 2}),
        ("SolidMask", {"value": 0.5, "width": 5, "height": 7}),
        ("LatentUpscale", {"samples": LATENT, "width": 128, "height": 0}),
        ("LatentUpscale", {"samples": OTHER_FACTOR, "width": 0, "height": 128}),
        ("LatentUpscaleBy", {"samples": LATENT, "scale_by": 1.5}),
        ("LatentFromBatch", {"samples": LATENT, "batch_index": 0, "length": 2}),
        ("RepeatLatentBatch", {"samples": LATENT, "amount": 5}),
        ("LatentBatch", {"samples1": LATENT, "samples2": LATENT}),
        ("ImageScale", {"image": PICTURES, "width": 0, "height": 48}),
        ("ImageScale", {"image": PICTURES, "width": 10, "height": 20}),
        ("ImageScale", {"image": PICTURES, "width": 0, "height": 0}),
        ("ImageScaleBy", {"image": PICTURES, "scale_by": 2.5}),
        ("ImageBatch", {"image1": PICTURES, "image2": PICTURES}),
        (
            "ImagePadForOutpaint",
            {"image": PICTURES, "left": 1, "top": 2, "right": 3, "bottom": 4, "feathering": 0},
        ),
    ],
)
def test_nodes_make_what_they_say(name: str, inputs: dict[str, Any]) -> None:
    node = BY_NAME[name]
    chosen = {"upscale_method": "bilinear", "crop": "disabled"}
    inputs = {**{place: value for place, value in chosen.items() if node.input(place)}, **inputs}
    assert node.makes is not None
    made = node.run(None, **inputs)
    assert isinstance(made, tuple)
    found = tuple(output_size(output.type, value) for output, value in zip(node.outputs, made, strict=True))
    assert tuple(node.makes(measured_size(node, inputs))) == found


@pytest.mark.parametrize(
    ("name", "inputs", "words"),
    [
        ("RepeatLatentBatch", {"samples": LATENT, "amount": 2}, "LATENT: 6 in one batch, the limit here is"),
        ("ImageScaleBy", {"image": PICTURES, "scale_by": 2.0}, None),
        ("ImageScaleBy", {"image": PICTURES, "scale_by": 8.0}, "IMAGE: 320×192 is 61440 pixels, the limit"),
        ("ImageScale", {"image": PICTURES, "width": 16384, "height": 0}, "IMAGE: 16384×9830 is"),
        ("VAEEncode", {"pixels": torch.rand(1, 100, 100, 3)}, "LATENT: 100×100 is 10000 pixels"),
        ("EmptyLatentImage", {"width": 8, "height": 8, "batch_size": 5}, "batch_size: 5, the limit here is"),
        ("KSampler", {"steps": 11}, "steps: 11, the limit here is 10"),
        (
            "CalotypeComparePresets",
            {"latent_image": LATENT, "presets": "fast, fast"},
            "pictures: 6 in one batch, the limit here is 4",
        ),
    ],
)
def test_too_much_is_refused_before_a_node_runs(name: str, inputs: dict[str, Any], words: str | None) -> None:
    if words is None:
        LIMITS.check_given(BY_NAME[name], inputs)
        return
    with pytest.raises(RequestError) as refused:
        LIMITS.check_given(BY_NAME[name], inputs)
    assert words in str(refused.value)


def test_what_was_made_is_looked_at_by_what_it_is() -> None:
    large = torch.zeros(1, 100, 100, 3)
    with pytest.raises(RequestError, match="IMAGE: 100×100 is 10000 pixels, the limit here is 4096"):
        LIMITS.check_made(BY_NAME["VAEDecode"], {}, (large,))
    # What was given may be larger, and a sheet as large as all its pictures.
    LIMITS.check_made(BY_NAME["LoadImage"], {}, (large, large[..., 0]))
    LIMITS.check_made(BY_NAME["CalotypeContactSheet"], {}, (large,))
    with pytest.raises(RequestError, match="MASK: 200×100 is 20000 pixels, the limit here is 16384"):
        LIMITS.check_made(BY_NAME["LoadImageMask"], {}, (torch.zeros(1, 100, 200),))


def test_what_may_be_read_may_be_worked_on_as_long_as_it_grows_no_larger() -> None:
    mask, image = torch.zeros(1, 100, 100), torch.zeros(1, 100, 100, 3)
    LIMITS.check_made(BY_NAME["InvertMask"], {"mask": mask}, (mask,))
    LIMITS.check_made(BY_NAME["MaskToImage"], {"mask": mask}, (image,))
    with pytest.raises(RequestError, match="IMAGE: 200×100 is 20000 pixels, the limit here is 10000"):
        LIMITS.check_made(BY_NAME["ImageScaleBy"], {"image": image}, (torch.zeros(1, 100, 200, 3),))
    with pytest.raises(RequestError, match="LATENT: 104×104 is 10816 pixels, the limit here is 4096"):
        LIMITS.check_made(BY_NAME["VAEEncode"], {"pixels": image}, ({"samples": torch.zeros(1, 4, 13, 13)},))


@pytest.mark.parametrize("name", ["CLIPTextEncodeSDXL", "ConditioningSetArea", "ImageCrop"])
def test_numbers_that_make_no_picture_have_no_limit(name: str) -> None:
    LIMITS.check_given(BY_NAME[name], {"width": 4096, "height": 4096})


def test_how_many_pictures_a_graph_saves() -> None:
    number = NodeDef("Number", lambda _: (1,), inputs=(Input("value", INT),), outputs=(Output(INT),))
    unsure = NodeDef(
        "Unsure",
        lambda _: (),
        inputs=(Input("image", IMAGE),),
        outputs=(Output(IMAGE),),
        makes=lambda inputs: (inputs["nothing"],),
    )
    registry = Registry([*NODES, number, unsure])
    graph, _ = parse(
        {
            "empty": {
                "class_type": "EmptyLatentImage",
                "inputs": {"width": 8, "height": 8, "batch_size": 2},
            },
            "many": {"class_type": "RepeatLatentBatch", "inputs": {"samples": ["empty", 0], "amount": 3}},
            "more": {
                "class_type": "LatentBatch",
                "inputs": {"samples1": ["many", 0], "samples2": ["empty", 0]},
            },
            "decoded": {"class_type": "VAEDecode", "inputs": {"samples": ["more", 0]}},
            "unsure": {"class_type": "Unsure", "inputs": {"image": ["decoded", 0]}},
            "sheet": {"class_type": "CalotypeContactSheet", "inputs": {"images": ["unsure", 0]}},
            "number": {"class_type": "Number", "inputs": {"value": 9}},
            "linked": {
                "class_type": "RepeatLatentBatch",
                "inputs": {"samples": ["empty", 0], "amount": ["number", 0]},
            },
            "last": {"class_type": "VAEDecode", "inputs": {"samples": ["linked", 0]}},
            **{
                f"save {name}": {"class_type": "SaveImage", "inputs": {"images": [name, 0]}}
                for name in ("decoded", "unsure", "sheet", "last")
            },
        }
    )
    outputs = tuple(name for name in graph if name.startswith("save"))
    made = expected_size(graph, registry, most=64)
    assert [saved(graph, (name,), registry, made) for name in outputs] == [8, 8, 1, 2]
    assert saved(graph, outputs, registry, expected_size(graph, registry, most=5)) == 5 + 5 + 1 + 2
