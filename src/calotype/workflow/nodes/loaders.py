"""Declares the nodes that select a model, LoRA, VAE or ControlNet."""

from calotype.workflow.node_api import CLIP, COMBO, CONTROL_NET, INT, MODEL, VAE, Input, NodeDef, Output
from calotype.workflow.nodes.inputs import file_stamp, files, share
from calotype.workflow.nodes.lazy import lazy_import

_LORA = Input("lora_name", COMBO, choices=files("loras"))
_STRENGTH_MODEL = share("strength_model", 1.0, -10.0, 10.0, help="The strength of the LoRA in the UNet.")
_STRENGTH_CLIP = share(
    "strength_clip", 1.0, -10.0, 10.0, help="The strength of the LoRA in the text encoders."
)

NODES = (
    NodeDef(
        "CheckpointLoaderSimple",
        lazy_import("loaders", "checkpoint"),
        inputs=(Input("ckpt_name", COMBO, choices=files("checkpoints"), help="A model by file or name."),),
        outputs=(Output(MODEL), Output(CLIP), Output(VAE)),
        title="Load Checkpoint",
        category="loaders",
        help="Loads a whole model: the UNet, the text encoders and the VAE.",
        changes=file_stamp("checkpoints", "ckpt_name"),
    ),
    NodeDef(
        "VAELoader",
        lazy_import("loaders", "vae"),
        inputs=(Input("vae_name", COMBO, choices=files("vae")),),
        outputs=(Output(VAE),),
        title="Load VAE",
        category="loaders",
        help="Loads a separate VAE.",
        changes=file_stamp("vae", "vae_name"),
    ),
    NodeDef(
        "LoraLoader",
        lazy_import("loaders", "lora"),
        inputs=(Input("model", MODEL), Input("clip", CLIP), _LORA, _STRENGTH_MODEL, _STRENGTH_CLIP),
        outputs=(Output(MODEL), Output(CLIP)),
        title="Load LoRA",
        category="loaders",
        help="Adds a LoRA to a model and its text encoders. Several can be chained.",
        changes=file_stamp("loras", "lora_name"),
    ),
    NodeDef(
        "LoraLoaderModelOnly",
        lazy_import("loaders", "lora_model_only"),
        inputs=(Input("model", MODEL), _LORA, _STRENGTH_MODEL),
        outputs=(Output(MODEL),),
        title="Load LoRA (model only)",
        category="loaders",
        help="Adds a LoRA to a model and leaves its text encoders unchanged.",
        changes=file_stamp("loras", "lora_name"),
    ),
    NodeDef(
        "ControlNetLoader",
        lazy_import("loaders", "control_net"),
        inputs=(Input("control_net_name", COMBO, choices=files("controlnet")),),
        outputs=(Output(CONTROL_NET),),
        title="Load ControlNet Model",
        category="loaders",
        help="Loads a ControlNet, which controls the layout with an image.",
        changes=file_stamp("controlnet", "control_net_name"),
    ),
    NodeDef(
        "CLIPSetLastLayer",
        lazy_import("loaders", "last_layer"),
        inputs=(
            Input("clip", CLIP),
            Input("stop_at_clip_layer", INT, default=-1, minimum=-24, maximum=-1, step=1),
        ),
        outputs=(Output(CLIP),),
        title="CLIP Set Last Layer",
        category="conditioning",
        help="Sets the layer at which the text encoder stops, counted from the end: −1 is the last.",
    ),
)
