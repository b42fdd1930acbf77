"""Declares the nodes that only Calotype has."""

from calotype.workflow.node_api import (
    COMBO,
    CONDITIONING,
    IMAGE,
    INT,
    LATENT,
    MODEL,
    STRING,
    VAE,
    Input,
    NodeDef,
    Output,
)
from calotype.workflow.nodes.inputs import CFG, DENOISE, SAMPLER, SCHEDULER, STEPS, seed
from calotype.workflow.nodes.lazy import lazy_import
from calotype.workflow.nodes.size_rules import compared, sheet

NODES = (
    NodeDef(
        "CalotypePreset",
        lazy_import("calotype", "with_preset"),
        inputs=(
            Input("model", MODEL),
            Input("preset", COMBO, choices=lambda catalogue: catalogue.presets(), help="See the benchmarks."),
        ),
        outputs=(Output(MODEL),),
        title="Choose Preset",
        help="Selects how the engine runs a model: exactly, fast, or with little memory.",
    ),
    NodeDef(
        "CalotypeContactSheet",
        lazy_import("calotype", "sheet"),
        inputs=(
            Input("images", IMAGE),
            Input("columns", INT, default=0, minimum=0, maximum=64, help="0 puts all images in one row."),
            Input("labels", STRING, default="", multiline=True, help="One line per column."),
            Input("caption", STRING, default="", multiline=True),
        ),
        outputs=(Output(IMAGE, is_sheet=True),),
        title="Contact Sheet",
        help="Arranges all images of a batch on one sheet.",
        makes=sheet,
    ),
    NodeDef(
        "CalotypeComparePresets",
        lazy_import("calotype", "compared"),
        inputs=(
            Input("model", MODEL),
            Input(
                "presets",
                STRING,
                default="baseline, fast",
                help="Names of presets; the first is the reference.",
            ),
            seed(),
            STEPS,
            CFG,
            SAMPLER,
            SCHEDULER,
            Input("positive", CONDITIONING),
            Input("negative", CONDITIONING),
            Input("latent_image", LATENT),
            Input("vae", VAE),
            DENOISE,
        ),
        outputs=(Output(IMAGE, "pictures"), Output(IMAGE, "sheet", is_sheet=True)),
        title="Compare Presets",
        help="Generates the same images with several presets, side by side, with their differences.",
        makes=compared,
    ),
)
