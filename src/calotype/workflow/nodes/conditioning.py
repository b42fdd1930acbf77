"""Declares the nodes that combine CONDITIONING or restrict it to a part of the image or of the sampling."""

from calotype.workflow.node_api import (
    COMBO,
    CONDITIONING,
    CONTROL_NET,
    IMAGE,
    MASK,
    VAE,
    Input,
    NodeDef,
    Output,
)
from calotype.workflow.nodes.inputs import pixels, share
from calotype.workflow.nodes.lazy import lazy_import

_ONE = (Output(CONDITIONING),)
_STRENGTH = share("strength", 1.0, 0.0, 10.0)
_CONTROL_STRENGTH = share("strength", 1.0, 0.0, 10.0, help="The strength of the ControlNet.")

NODES = (
    NodeDef(
        "ConditioningCombine",
        lazy_import("conditioning", "combine"),
        inputs=(Input("conditioning_1", CONDITIONING), Input("conditioning_2", CONDITIONING)),
        outputs=_ONE,
        title="Conditioning (Combine)",
        category="conditioning",
        help="Evaluates both prompts and averages the model's estimates.",
    ),
    NodeDef(
        "ConditioningConcat",
        lazy_import("conditioning", "concat"),
        inputs=(Input("conditioning_to", CONDITIONING), Input("conditioning_from", CONDITIONING)),
        outputs=_ONE,
        title="Conditioning (Concat)",
        category="conditioning",
        help="Appends one prompt to the other, like a longer text.",
    ),
    NodeDef(
        "ConditioningAverage",
        lazy_import("conditioning", "average"),
        inputs=(
            Input("conditioning_to", CONDITIONING),
            Input("conditioning_from", CONDITIONING),
            share(
                "conditioning_to_strength", 1.0, help="1 uses only conditioning_to, 0 only conditioning_from."
            ),
        ),
        outputs=_ONE,
        title="Conditioning (Average)",
        category="conditioning",
        help="Interpolates between two prompts.",
    ),
    NodeDef(
        "ConditioningSetArea",
        lazy_import("conditioning", "set_area"),
        inputs=(
            Input("conditioning", CONDITIONING),
            pixels("width", 64, 64),
            pixels("height", 64, 64),
            pixels("x", 0),
            pixels("y", 0),
            _STRENGTH,
        ),
        outputs=_ONE,
        title="Conditioning (Set Area)",
        category="conditioning",
        help="Restricts a prompt to an area of the image, in pixels.",
    ),
    NodeDef(
        "ConditioningSetAreaPercentage",
        lazy_import("conditioning", "set_area_percentage"),
        inputs=(
            Input("conditioning", CONDITIONING),
            share("width", 1.0),
            share("height", 1.0),
            share("x", 0.0),
            share("y", 0.0),
            _STRENGTH,
        ),
        outputs=_ONE,
        title="Conditioning (Set Area with Percentage)",
        category="conditioning",
        help="Restricts a prompt to an area of the image, in fractions from 0 to 1.",
    ),
    NodeDef(
        "ConditioningSetAreaStrength",
        lazy_import("conditioning", "set_area_strength"),
        inputs=(Input("conditioning", CONDITIONING), _STRENGTH),
        outputs=_ONE,
        category="conditioning",
        help="Sets the weight of a prompt relative to others.",
    ),
    NodeDef(
        "ConditioningSetMask",
        lazy_import("conditioning", "set_mask"),
        inputs=(
            Input("conditioning", CONDITIONING),
            Input("mask", MASK),
            _STRENGTH,
            Input("set_cond_area", COMBO, default="default", choices=("default", "mask bounds")),
        ),
        outputs=_ONE,
        title="Conditioning (Set Mask)",
        category="conditioning",
        help="Restricts a prompt to the area that a mask covers.",
    ),
    NodeDef(
        "ConditioningSetTimestepRange",
        lazy_import("conditioning", "set_timestep_range"),
        inputs=(
            Input("conditioning", CONDITIONING),
            share("start", 0.0, step=0.001),
            share("end", 1.0, step=0.001),
        ),
        outputs=_ONE,
        category="advanced/conditioning",
        help="Restricts a prompt to a part of the sampling, from 0 (pure noise) to 1.",
    ),
    NodeDef(
        "ConditioningZeroOut",
        lazy_import("conditioning", "zero_out"),
        inputs=(Input("conditioning", CONDITIONING),),
        outputs=_ONE,
        category="advanced/conditioning",
        help="Replaces a prompt by zeros.",
    ),
    NodeDef(
        "ControlNetApply",
        lazy_import("controlnet", "apply"),
        inputs=(
            Input("conditioning", CONDITIONING),
            Input("control_net", CONTROL_NET),
            Input("image", IMAGE),
            _CONTROL_STRENGTH,
        ),
        outputs=_ONE,
        title="Apply ControlNet",
        category="conditioning/controlnet",
        help="Controls the layout with an image, for both the positive and the negative prompt.",
    ),
    NodeDef(
        "ControlNetApplyAdvanced",
        lazy_import("controlnet", "apply_advanced"),
        inputs=(
            Input("positive", CONDITIONING),
            Input("negative", CONDITIONING),
            Input("control_net", CONTROL_NET),
            Input("image", IMAGE),
            _CONTROL_STRENGTH,
            share("start_percent", 0.0, step=0.001, help="The fraction of the sampling at which it starts."),
            share("end_percent", 1.0, step=0.001, help="The fraction of the sampling at which it ends."),
            Input("vae", VAE, optional=True),
        ),
        outputs=(Output(CONDITIONING, "positive"), Output(CONDITIONING, "negative")),
        title="Apply ControlNet (Advanced)",
        category="conditioning/controlnet",
        help="Controls the layout with an image for a part of the sampling.",
    ),
)
