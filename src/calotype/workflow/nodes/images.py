"""Declares the nodes that read, write and edit images."""

import hashlib
from collections.abc import Hashable

from calotype.workflow.node_api import (
    COMBO,
    FLOAT,
    IMAGE,
    MASK,
    STRING,
    Catalogue,
    Context,
    Input,
    InputValues,
    NodeDef,
    Output,
)
from calotype.workflow.nodes.inputs import CROP, IMAGE_METHODS, pixels, share
from calotype.workflow.nodes.lazy import lazy_import
from calotype.workflow.nodes.size_rules import both, padded, scaled, scaled_by
from calotype.workflow.png_metadata import prefix_problem

_IMAGE = Input("image", IMAGE)
_FILE = Input("image", COMBO, choices=lambda catalogue: catalogue.pictures(), upload=True)
_METHOD = Input("upscale_method", COMBO, choices=IMAGE_METHODS)
_BLENDS = ("normal", "multiply", "screen", "overlay", "soft_light", "difference")


def _digest(context: Context, inputs: InputValues) -> Hashable:
    return hashlib.sha256(context.read_input(inputs["image"])).hexdigest()


def _bad_prefix(_catalogue: Catalogue, inputs: InputValues) -> str | None:
    """Check a prefix that is in the graph, before anything runs."""
    prefix = inputs.get("filename_prefix")
    return prefix_problem(prefix) if isinstance(prefix, str) else None


NODES = (
    NodeDef(
        "LoadImage",
        lazy_import("images", "load"),
        inputs=(_FILE,),
        outputs=(Output(IMAGE), Output(MASK)),
        title="Load Image",
        category="image",
        help="Loads an image, and its transparency as a mask.",
        changes=_digest,
    ),
    NodeDef(
        "LoadImageMask",
        lazy_import("images", "load_mask"),
        inputs=(_FILE, Input("channel", COMBO, choices=("alpha", "red", "green", "blue"))),
        outputs=(Output(MASK),),
        title="Load Image (as Mask)",
        category="mask",
        help="Loads one channel of an image as a mask; for alpha, the transparency.",
        changes=_digest,
    ),
    NodeDef(
        "SaveImage",
        lazy_import("images", "save"),
        inputs=(Input("images", IMAGE), Input("filename_prefix", STRING, default="ComfyUI")),
        is_output=True,
        check=_bad_prefix,
        title="Save Image",
        category="image",
        help="Saves images as PNG files with the workflow in their metadata.",
    ),
    NodeDef(
        "PreviewImage",
        lazy_import("images", "preview"),
        inputs=(Input("images", IMAGE),),
        is_output=True,
        title="Preview Image",
        category="image",
        help="Shows images without saving them.",
    ),
    NodeDef(
        "ImageScale",
        lazy_import("images", "scaled"),
        inputs=(_IMAGE, _METHOD, pixels("width", 512, step=1), pixels("height", 512, step=1), CROP),
        outputs=(Output(IMAGE),),
        title="Upscale Image",
        category="image/upscaling",
        help="Resizes images; a side of 0 keeps the aspect ratio.",
        makes=scaled("image"),
    ),
    NodeDef(
        "ImageScaleBy",
        lazy_import("images", "scaled_by"),
        inputs=(_IMAGE, _METHOD, share("scale_by", 1.0, 0.01, 8.0)),
        outputs=(Output(IMAGE),),
        title="Upscale Image By",
        category="image/upscaling",
        help="Resizes images by a factor.",
        makes=scaled_by("image"),
    ),
    NodeDef(
        "ImageInvert",
        lazy_import("images", "inverted"),
        inputs=(_IMAGE,),
        outputs=(Output(IMAGE),),
        title="Invert Image",
        category="image",
        help="Inverts the colors.",
    ),
    NodeDef(
        "ImageBatch",
        lazy_import("images", "batched"),
        inputs=(Input("image1", IMAGE), Input("image2", IMAGE)),
        outputs=(Output(IMAGE),),
        title="Batch Images",
        category="image",
        help="Joins two batches at the size of the first.",
        makes=both("image1", "image2"),
    ),
    NodeDef(
        "ImageBlend",
        lazy_import("images", "blended"),
        inputs=(
            Input("image1", IMAGE),
            Input("image2", IMAGE),
            Input("blend_factor", FLOAT, default=0.5, minimum=0.0, maximum=1.0, step=0.01),
            Input("blend_mode", COMBO, choices=_BLENDS),
        ),
        outputs=(Output(IMAGE),),
        category="image/postprocessing",
        help="Blends one image over another.",
    ),
    NodeDef(
        "ImageCrop",
        lazy_import("images", "cropped"),
        inputs=(
            _IMAGE,
            pixels("width", 512, 1, step=1),
            pixels("height", 512, 1, step=1),
            pixels("x", 0, step=1),
            pixels("y", 0, step=1),
        ),
        outputs=(Output(IMAGE),),
        title="Image Crop",
        category="image/transform",
        help="Cuts out a part of an image.",
    ),
    NodeDef(
        "ImagePadForOutpaint",
        lazy_import("images", "padded_for_outpaint"),
        inputs=(
            _IMAGE,
            *(pixels(side, 0) for side in ("left", "top", "right", "bottom")),
            pixels("feathering", 40, step=1, help="How many pixels the mask extends into the image."),
        ),
        outputs=(Output(IMAGE), Output(MASK)),
        title="Pad Image for Outpainting",
        category="image",
        help="Adds borders to an image, with a mask of the new area.",
        makes=padded,
    ),
)
