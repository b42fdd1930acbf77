"""Declares the KSampler nodes."""

from calotype.workflow.node_api import COMBO, CONDITIONING, INT, LATENT, MODEL, Input, NodeDef, Output
from calotype.workflow.nodes.inputs import CFG, DENOISE, SAMPLER, SCHEDULER, STEPS, seed
from calotype.workflow.nodes.lazy import lazy_import

_PROMPTS = (Input("positive", CONDITIONING), Input("negative", CONDITIONING), Input("latent_image", LATENT))
_MAX_STEPS = 10_000

NODES = (
    NodeDef(
        "KSampler",
        lazy_import("sampling", "ksampler"),
        inputs=(Input("model", MODEL), seed(), STEPS, CFG, SAMPLER, SCHEDULER, *_PROMPTS, DENOISE),
        outputs=(Output(LATENT),),
        category="sampling",
        help="Denoises a latent step by step towards the prompt.",
    ),
    NodeDef(
        "KSamplerAdvanced",
        lazy_import("sampling", "ksampler_advanced"),
        inputs=(
            Input("model", MODEL),
            Input("add_noise", COMBO, default="enable", choices=("enable", "disable")),
            seed("noise_seed"),
            STEPS,
            CFG,
            SAMPLER,
            SCHEDULER,
            *_PROMPTS,
            Input("start_at_step", INT, default=0, minimum=0, maximum=_MAX_STEPS),
            Input("end_at_step", INT, default=_MAX_STEPS, minimum=0, maximum=_MAX_STEPS),
            Input("return_with_leftover_noise", COMBO, default="disable", choices=("disable", "enable")),
        ),
        outputs=(Output(LATENT),),
        title="KSampler (Advanced)",
        category="sampling",
        help="Runs some steps of a sampling; another node can run the rest.",
    ),
)
