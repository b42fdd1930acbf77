"""Declares the nodes that create and edit masks."""

from calotype.workflow.node_api import BOOLEAN, COMBO, IMAGE, INT, MASK, Input, NodeDef, Output
from calotype.workflow.nodes.inputs import MAX_SIDE, pixels, share
from calotype.workflow.nodes.lazy import lazy_import
from calotype.workflow.nodes.size_rules import of_numbers

_MASK = Input("mask", MASK)

NODES = (
    NodeDef(
        "SolidMask",
        lazy_import("masks", "solid"),
        inputs=(share("value", 1.0), pixels("width", 512, 1, step=1), pixels("height", 512, 1, step=1)),
        outputs=(Output(MASK),),
        category="mask",
        help="Creates a mask with the same value everywhere.",
        makes=of_numbers,
    ),
    NodeDef(
        "InvertMask",
        lazy_import("masks", "inverted"),
        inputs=(_MASK,),
        outputs=(Output(MASK),),
        category="mask",
        help="Inverts a mask.",
    ),
    NodeDef(
        "MaskToImage",
        lazy_import("masks", "as_image"),
        inputs=(_MASK,),
        outputs=(Output(IMAGE),),
        title="Convert Mask to Image",
        category="mask",
        help="Converts a mask to a gray image.",
    ),
    NodeDef(
        "ImageToMask",
        lazy_import("masks", "of_image"),
        inputs=(Input("image", IMAGE), Input("channel", COMBO, choices=("red", "green", "blue", "alpha"))),
        outputs=(Output(MASK),),
        title="Convert Image to Mask",
        category="mask",
        help="Converts one channel of an image to a mask.",
    ),
    NodeDef(
        "GrowMask",
        lazy_import("masks", "grown"),
        inputs=(
            _MASK,
            Input("expand", INT, default=0, minimum=-MAX_SIDE, maximum=MAX_SIDE, step=1),
            Input("tapered_corners", BOOLEAN, default=True),
        ),
        outputs=(Output(MASK),),
        category="mask",
        help="Grows a mask by a number of pixels, or shrinks it.",
    ),
)
