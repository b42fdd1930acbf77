"""Declares the nodes that create, decode and edit LATENTs."""

from calotype.workflow.node_api import COMBO, IMAGE, INT, LATENT, MASK, VAE, Input, NodeDef, Output
from calotype.workflow.nodes.inputs import CROP, LATENT_METHODS, pixels, share
from calotype.workflow.nodes.lazy import lazy_import
from calotype.workflow.nodes.size_rules import as_much, both, of_numbers, repeated, scaled, scaled_by, some

_SAMPLES = Input("samples", LATENT)
_PIXELS = Input("pixels", IMAGE)
_VAE = Input("vae", VAE)
_METHOD = Input("upscale_method", COMBO, choices=LATENT_METHODS)
_LATENT = (Output(LATENT),)
_TILES = (
    pixels("tile_size", 512, 64, 4096, 32, help="The side of a tile in pixels."),
    pixels("overlap", 64, 0, 4096, 32, help="The overlap of neighboring tiles in pixels."),
)
_MAX_BATCH_SIZE = 4096

NODES = (
    NodeDef(
        "EmptyLatentImage",
        lazy_import("latents", "empty"),
        inputs=(
            pixels("width", 512, 16),
            pixels("height", 512, 16),
            Input("batch_size", INT, default=1, minimum=1, maximum=_MAX_BATCH_SIZE),
        ),
        outputs=_LATENT,
        title="Empty Latent Image",
        category="latent",
        help="Creates an empty latent: the start of text-to-image.",
        makes=of_numbers,
    ),
    NodeDef(
        "VAEDecode",
        lazy_import("vae", "decode"),
        inputs=(_SAMPLES, _VAE),
        outputs=(Output(IMAGE),),
        title="VAE Decode",
        category="latent",
        help="Decodes latents to images.",
    ),
    NodeDef(
        "VAEDecodeTiled",
        lazy_import("vae", "decode_tiled"),
        inputs=(_SAMPLES, _VAE, *_TILES),
        outputs=(Output(IMAGE),),
        title="VAE Decode (Tiled)",
        category="_for_testing",
        help="Decodes latents to images in tiles, which need less memory.",
    ),
    NodeDef(
        "VAEEncode",
        lazy_import("vae", "encode"),
        inputs=(_PIXELS, _VAE),
        outputs=_LATENT,
        title="VAE Encode",
        category="latent",
        help="Encodes images to latents.",
        makes=as_much("pixels"),
    ),
    NodeDef(
        "VAEEncodeTiled",
        lazy_import("vae", "encode_tiled"),
        inputs=(_PIXELS, _VAE, *_TILES),
        outputs=_LATENT,
        title="VAE Encode (Tiled)",
        category="_for_testing",
        help="Encodes images to latents in tiles, which need less memory.",
        makes=as_much("pixels"),
    ),
    NodeDef(
        "VAEEncodeForInpaint",
        lazy_import("vae", "encode_for_inpaint"),
        inputs=(_PIXELS, _VAE, Input("mask", MASK), pixels("grow_mask_by", 6, 0, 64, 1)),
        outputs=_LATENT,
        title="VAE Encode (for Inpainting)",
        category="latent/inpaint",
        help="Encodes an image with the masked area gray, to be repainted.",
        makes=as_much("pixels"),
    ),
    NodeDef(
        "SetLatentNoiseMask",
        lazy_import("latents", "set_noise_mask"),
        inputs=(_SAMPLES, Input("mask", MASK)),
        outputs=_LATENT,
        title="Set Latent Noise Mask",
        category="latent/inpaint",
        help="Repaints only the area that the mask covers.",
    ),
    NodeDef(
        "LatentUpscale",
        lazy_import("latents", "upscaled"),
        inputs=(_SAMPLES, _METHOD, pixels("width", 512), pixels("height", 512), CROP),
        outputs=_LATENT,
        title="Upscale Latent",
        category="latent",
        help="Resizes latents to a size in pixels; a side of 0 keeps the aspect ratio.",
        makes=scaled("samples"),
    ),
    NodeDef(
        "LatentUpscaleBy",
        lazy_import("latents", "upscaled_by"),
        inputs=(_SAMPLES, _METHOD, share("scale_by", 1.5, 0.01, 8.0)),
        outputs=_LATENT,
        title="Upscale Latent By",
        category="latent",
        help="Resizes latents by a factor.",
        makes=scaled_by("samples"),
    ),
    NodeDef(
        "LatentFromBatch",
        lazy_import("latents", "from_batch"),
        inputs=(
            _SAMPLES,
            Input("batch_index", INT, default=0, minimum=0, maximum=63),
            Input("length", INT, default=1, minimum=1, maximum=64),
        ),
        outputs=_LATENT,
        title="Latent From Batch",
        category="latent/batch",
        help="Selects latents of a batch; each keeps its noise.",
        makes=some,
    ),
    NodeDef(
        "RepeatLatentBatch",
        lazy_import("latents", "repeated"),
        inputs=(_SAMPLES, Input("amount", INT, default=1, minimum=1, maximum=64)),
        outputs=_LATENT,
        title="Repeat Latent Batch",
        category="latent/batch",
        help="Repeats a batch.",
        makes=repeated,
    ),
    NodeDef(
        "LatentBatch",
        lazy_import("latents", "batched"),
        inputs=(Input("samples1", LATENT), Input("samples2", LATENT)),
        outputs=_LATENT,
        category="latent/batch",
        help="Joins two batches.",
        makes=both("samples1", "samples2"),
    ),
    NodeDef(
        "LatentFlip",
        lazy_import("latents", "flipped"),
        inputs=(
            _SAMPLES,
            Input("flip_method", COMBO, choices=("x-axis: vertically", "y-axis: horizontally")),
        ),
        outputs=_LATENT,
        title="Flip Latent",
        category="latent/transform",
        help="Flips latents vertically or horizontally.",
    ),
    NodeDef(
        "LatentRotate",
        lazy_import("latents", "rotated"),
        inputs=(
            _SAMPLES,
            Input("rotation", COMBO, choices=("none", "90 degrees", "180 degrees", "270 degrees")),
        ),
        outputs=_LATENT,
        title="Rotate Latent",
        category="latent/transform",
        help="Rotates latents clockwise.",
    ),
    NodeDef(
        "LatentComposite",
        lazy_import("latents", "composited"),
        inputs=(
            Input("samples_to", LATENT),
            Input("samples_from", LATENT),
            pixels("x", 0),
            pixels("y", 0),
            pixels("feather", 0),
        ),
        outputs=_LATENT,
        title="Latent Composite",
        category="latent",
        help="Pastes one latent onto another, with optional feathered edges.",
    ),
)
