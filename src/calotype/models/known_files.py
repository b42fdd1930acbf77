"""Lists the tensor names and shapes that identify each kind of weight file, one row per family.

All conditions ("marks") of a row must hold. `name` means that the tensor exists, `!name` that it does not,
`name*` that some tensor's name starts with this prefix, `name[1]=768|1024` that this dimension of its shape
has one of these sizes. The first matching row identifies the file, so special cases precede general ones.
"""

from typing import NamedTuple


class Family(NamedTuple):
    """One row: a short name for programs, a title for people, and the marks of the file."""

    base: str
    title: str
    marks: str
    dialect: str = "original"


# Whole checkpoints and networks alone, in the naming of the Latent Diffusion code. Names are relative to the
# prefix of the network. Files of Stable Diffusion 1, 2 and XL differ in the width of the text embedding that
# cross-attention reads; without such a layer, their text encoders decide (see `TEXT_MARKS`).
_SD_CONTEXT = "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight"
_XL_CONTEXT = "input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight"
_SD1, _SD2 = f"{_SD_CONTEXT}[1]=768", f"{_SD_CONTEXT}[1]=1024"
_XL, _REFINER = f"{_XL_CONTEXT}[1]=2048", f"{_XL_CONTEXT}[1]=1280"
_CHANNELS = "input_blocks.0.0.weight[1]"
LATENT_DIFFUSION = (
    Family("svd", "Stable Video Diffusion", "input_blocks.1.1.time_stack.0.attn1.to_q.weight"),
    Family("sd1", "Stable Diffusion 1 inpainting", f"{_SD1} {_CHANNELS}=9"),
    Family("sd1", "InstructPix2Pix (Stable Diffusion 1)", f"{_SD1} {_CHANNELS}=8"),
    Family("sd1", "Stable Diffusion 1", _SD1),
    Family("sd2-x4-upscaler", "Stable Diffusion x4 upscaler", f"{_CHANNELS}=7 label_emb.weight"),
    Family("sd2-unclip", "Stable Diffusion 2 unCLIP", f"{_SD2} label_emb.0.0.weight[1]=1536|2048"),
    Family("sd2", "Stable Diffusion 2 inpainting", f"{_SD2} {_CHANNELS}=9"),
    Family("sd2", "Stable Diffusion 2 depth", f"{_SD2} {_CHANNELS}=5"),
    Family("sd2", "Stable Diffusion 2", _SD2),
    Family("sdxl-refiner", "Stable Diffusion XL refiner", _REFINER),
    Family("vega", "Segmind Vega", f"{_XL} input_blocks.4.1.* !input_blocks.4.1.transformer_blocks.1.*"),
    Family("ssd-1b", "SSD-1B", f"{_XL} input_blocks.7.1.* !input_blocks.7.1.transformer_blocks.4.*"),
    Family("sdxl", "Stable Diffusion XL inpainting", f"{_XL} {_CHANNELS}=9"),
    Family("sdxl", "InstructPix2Pix (Stable Diffusion XL)", f"{_XL} {_CHANNELS}=8"),
    Family("sdxl", "Stable Diffusion XL", _XL),
    Family("koala", "KOALA", "input_blocks.3.1.transformer_blocks.0.attn2.to_k.weight[1]=2048"),
)
WHOLE_FILE = (
    Family(
        "sdxl", "Playground 2.5 (Stable Diffusion XL, trained with EDM)", "edm_mean conditioner.embedders.1.*"
    ),
)
TEXT_MARKS = (
    Family("sdxl", "Stable Diffusion XL", "conditioner.embedders.1.model.*"),
    Family("sdxl-refiner", "Stable Diffusion XL refiner", "conditioner.embedders.0.model.*"),
    Family("sd2", "Stable Diffusion 2", "cond_stage_model.model.*"),
    Family("sd1", "Stable Diffusion 1", "cond_stage_model.transformer.*"),
)

# Networks of other families, in the naming of their authors. Alone they are a diffusion model; in one file
# with text encoders or a VAE, a checkpoint.
_MMDIT = "joint_blocks.0.context_block.attn.qkv.weight"
_FLUX = "double_blocks.0.img_attn.qkv.weight"
_HUNYUAN_VIDEO = "txt_in.individual_token_refiner.blocks.0.norm1.weight"
_NEXT_DIT = "cap_embedder.1.weight"
_WAN = "head.modulation patch_embedding.weight"
OTHER_NETWORKS = (
    Family("sd3.5-large", "Stable Diffusion 3.5 large", f"{_MMDIT} joint_blocks.37.*"),
    Family(
        "sd3.5-medium", "Stable Diffusion 3.5 medium", f"{_MMDIT} joint_blocks.0.x_block.attn2.qkv.weight"
    ),
    Family("sd3-medium", "Stable Diffusion 3 medium", f"{_MMDIT} pos_embed[1]=36864"),
    Family("sd3", "Stable Diffusion 3", _MMDIT),
    Family("hunyuan-video", "HunyuanVideo", _HUNYUAN_VIDEO),
    Family("chroma", "Chroma", "distilled_guidance_layer.*"),
    Family("flux2", "FLUX.2", "single_stream_modulation.lin.weight"),
    Family("flux1-fill", "FLUX.1 Fill", f"{_FLUX} guidance_in.in_layer.weight img_in.weight[1]=384"),
    Family(
        "flux1-control", "FLUX.1 Depth or Canny", f"{_FLUX} guidance_in.in_layer.weight img_in.weight[1]=128"
    ),
    Family("flux1-dev", "FLUX.1 dev", f"{_FLUX} guidance_in.in_layer.weight"),
    Family("flux1-schnell", "FLUX.1 schnell", _FLUX),
    Family("qwen-image", "Qwen-Image", "txt_norm.weight transformer_blocks.0.img_mod.1.weight", "diffusers"),
    Family("sana", "Sana", "t_block.1.weight blocks.0.mlp.inverted_conv.conv.weight"),
    Family(
        "pixart-alpha",
        "PixArt-α",
        "t_block.1.weight y_embedder.y_proj.fc1.weight csize_embedder.mlp.0.weight",
    ),
    Family("pixart-sigma", "PixArt-Σ", "t_block.1.weight y_embedder.y_proj.fc1.weight"),
    Family("hunyuan-dit", "HunyuanDiT", "mlp_t5.0.weight"),
    Family("wan-vace", "Wan VACE (video)", f"{_WAN} vace_blocks.0.*"),
    Family("wan-1.3b", "Wan 1.3B (video)", f"{_WAN} patch_embedding.weight[0]=1536"),
    Family("wan-5b", "Wan 2.2 5B (video)", f"{_WAN} patch_embedding.weight[0]=3072"),
    Family("wan-14b", "Wan 14B (video)", _WAN),
    Family("ltx2", "LTX-2 (video)", "av_ca_a2v_gate_adaln_single.*"),
    Family("ltx-video", "LTX-Video", "patchify_proj.weight transformer_blocks.0.scale_shift_table"),
    Family("mochi", "Mochi (video)", "blocks.0.attn.qkv_x.weight"),
    Family("auraflow", "AuraFlow", "double_layers.0.attn.w1q.weight"),
    Family("z-image", "Z-Image", f"{_NEXT_DIT}[0]=3840"),
    Family("lumina2", "Lumina 2", f"{_NEXT_DIT}[0]=2304 layers.0.attention.qkv.weight"),
    Family("hidream", "HiDream", "double_stream_blocks.0.block.adaLN_modulation.1.bias"),
    Family("stable-cascade-c", "Stable Cascade, stage C", "clip_txt_mapper.weight clf.1.weight"),
    Family("stable-cascade-b", "Stable Cascade, stage B", "clip_mapper.weight clf.1.weight"),
    Family("cogvideox", "CogVideoX (video)", "mixins.patch_embed.proj.weight"),
    Family("kandinsky5", "Kandinsky 5", "visual_embeddings.in_layer.weight"),
    Family("cosmos", "Cosmos (video)", "x_embedder.proj.1.weight"),
)

# The same networks under diffusers' names: the part of a folder that carries the family's weights.
_JOINT = "transformer_blocks.0.norm1_context.linear.weight"
_TIME_TEXT = "time_text_embed.timestep_embedder.linear_1.weight"
_GUIDANCE = "time_text_embed.guidance_embedder.linear_1.weight"
_ADALN = "adaln_single.emb.timestep_embedder.linear_1.weight"
_UNET_FIRST = "down_blocks.0.resnets.0.conv1.weight"
_UNET_SD = "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight"
_UNET_XL = "down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k.weight"
_XL_DEPTH = "down_blocks.1.attentions.0.transformer_blocks.1.*"
DIFFUSERS_NETWORKS = (
    Family("svd", "Stable Video Diffusion", "down_blocks.0.resnets.0.spatial_res_block.conv1.weight", "UNet"),
    Family("kandinsky3", "Kandinsky 3", "add_time_condition.attention.to_q.weight", "UNet"),
    Family("kandinsky2", "Kandinsky 2", "encoder_hid_proj.image_embeds.weight", "UNet"),
    Family("kandinsky2", "Kandinsky 2", "encoder_hid_proj.image_embeds_proj.weight", "UNet"),
    Family("kandinsky2-prior", "Kandinsky 2 prior", "prd_embedding clip_mean", "prior"),
    Family("sd2-x4-upscaler", "Stable Diffusion x4 upscaler", f"{_UNET_FIRST} conv_in.weight[1]=7", "UNet"),
    Family("sd2-unclip", "Stable Diffusion 2 unCLIP", f"{_UNET_SD}[1]=1024 class_embedding.*", "UNet"),
    Family("sd1", "Stable Diffusion 1", f"{_UNET_FIRST} {_UNET_SD}[1]=768", "UNet"),
    Family("sd2", "Stable Diffusion 2", f"{_UNET_FIRST} {_UNET_SD}[1]=1024", "UNet"),
    Family("sdxl-refiner", "Stable Diffusion XL refiner", f"{_UNET_FIRST} {_UNET_XL}[1]=1280", "UNet"),
    Family("vega", "Segmind Vega", f"{_UNET_FIRST} {_UNET_XL}[1]=2048 !{_XL_DEPTH}", "UNet"),
    Family(
        "ssd-1b",
        "SSD-1B",
        f"{_UNET_FIRST} {_UNET_XL}[1]=2048 !down_blocks.2.attentions.0.transformer_blocks.4.*",
        "UNet",
    ),
    Family("sdxl", "Stable Diffusion XL", f"{_UNET_FIRST} {_UNET_XL}[1]=2048", "UNet"),
    Family("sd3.5-large", "Stable Diffusion 3.5 large", f"{_JOINT} transformer_blocks.37.*", "transformer"),
    Family(
        "sd3.5-medium",
        "Stable Diffusion 3.5 medium",
        f"{_JOINT} transformer_blocks.0.attn2.to_q.weight",
        "transformer",
    ),
    Family("mochi", "Mochi (video)", f"{_JOINT} pos_frequencies", "transformer"),
    Family("sd3-medium", "Stable Diffusion 3 medium", f"{_JOINT} pos_embed.proj.weight", "transformer"),
    Family("chroma", "Chroma", "distilled_guidance_layer.in_proj.weight", "transformer"),
    Family("hunyuan-video", "HunyuanVideo", f"{_JOINT} x_embedder.proj.weight", "transformer"),
    Family(
        "flux1-dev", "FLUX.1 dev", f"single_transformer_blocks.0.proj_mlp.weight {_GUIDANCE}", "transformer"
    ),
    Family(
        "flux1-schnell",
        "FLUX.1 schnell",
        f"single_transformer_blocks.0.proj_mlp.weight {_TIME_TEXT}",
        "transformer",
    ),
    Family("flux2", "FLUX.2", "single_stream_modulation.linear.weight", "transformer"),
    Family(
        "pixart-alpha",
        "PixArt-α",
        f"{_ADALN} adaln_single.emb.resolution_embedder.linear_1.weight",
        "transformer",
    ),
    Family("pixart-sigma", "PixArt-Σ", f"{_ADALN} pos_embed.proj.weight", "transformer"),
    Family("hunyuan-dit", "HunyuanDiT", "text_embedding_padding", "transformer"),
    Family(
        "wan",
        "Wan (video)",
        "patch_embedding.weight condition_embedder.time_embedder.linear_1.weight",
        "transformer",
    ),
    Family("sana", "Sana", "caption_norm.weight patch_embed.proj.weight", "transformer"),
    Family(
        "ltx-video",
        "LTX-Video",
        "proj_in.weight caption_projection.linear_1.weight scale_shift_table",
        "transformer",
    ),
    Family("auraflow", "AuraFlow", "joint_transformer_blocks.0.attn.to_q.weight", "transformer"),
    Family(
        "lumina2",
        "Lumina 2",
        "time_caption_embed.timestep_embedder.linear_1.weight layers.0.attn.to_q.weight",
        "transformer",
    ),
    Family("z-image", "Z-Image", "all_x_embedder.2-1.weight", "transformer"),
    Family("stable-cascade", "Stable Cascade", "clip_txt_pooled_mapper.weight clf.1.weight", "UNet"),
    Family(
        "cogvideox",
        "CogVideoX (video)",
        "patch_embed.text_proj.weight time_embedding.linear_1.weight",
        "transformer",
    ),
    Family("unknown", "UNet of an unknown model", _UNET_FIRST, "UNet"),
)

# ControlNets. Those of Stable Diffusion differ in the width of the text embedding.
_HINT = "controlnet_cond_embedding.conv_in.weight"
_BLOCKS = "controlnet_blocks.0.weight"
CONTROL_NETS = (
    Family("sd1", "SparseCtrl for AnimateDiff", f"{_HINT} down_blocks.0.motion_modules.*"),
    Family("sdxl", "union ControlNet for Stable Diffusion XL", f"{_HINT} task_embedding", "diffusers"),
    Family(
        "sdxl", "ControlNet for Stable Diffusion XL", f"{_HINT} add_embedding.linear_1.weight", "diffusers"
    ),
    Family("sd1", "ControlNet for Stable Diffusion 1", f"{_HINT} {_UNET_SD}[1]=768", "diffusers"),
    Family("sd2", "ControlNet for Stable Diffusion 2", f"{_HINT} {_UNET_SD}[1]=1024", "diffusers"),
    Family("unknown", "ControlNet for an unknown model", _HINT, "diffusers"),
    Family("sdxl", "ControlNet for Stable Diffusion XL", f"input_hint_block.0.weight {_XL}"),
    Family("sd1", "ControlNet for Stable Diffusion 1", f"input_hint_block.0.weight {_SD1}"),
    Family("sd2", "ControlNet for Stable Diffusion 2", f"input_hint_block.0.weight {_SD2}"),
    Family("unknown", "ControlNet for an unknown model", "input_hint_block.0.weight"),
    Family("sdxl", "Control-LoRA for Stable Diffusion XL", "lora_controlnet"),
    Family(
        "sd3.5-large",
        "ControlNet for Stable Diffusion 3.5",
        f"{_BLOCKS} transformer_blocks.0.adaLN_modulation.1.bias",
    ),
    Family("sd3", "ControlNet for Stable Diffusion 3", f"{_BLOCKS} pos_embed_input.proj.weight", "diffusers"),
    Family(
        "qwen-image",
        "ControlNet for Qwen-Image",
        f"{_BLOCKS} transformer_blocks.0.img_mlp.net.0.proj.weight",
        "diffusers",
    ),
    Family("flux1", "union ControlNet for FLUX.1", f"{_BLOCKS} controlnet_mode_embedder.weight", "diffusers"),
    Family("flux1", "ControlNet for FLUX.1", f"{_BLOCKS} controlnet_x_embedder.weight", "diffusers"),
    Family("flux1", "ControlNet for FLUX.1", f"{_BLOCKS} double_blocks.0.*"),
    Family("flux1", "ControlNet for FLUX.1", "controlnet_blocks.0.linear.weight double_blocks.0.*"),
    Family("z-image", "ControlNet for Z-Image", "control_layers.0.*"),
    Family("hunyuan-dit", "ControlNet for HunyuanDiT", "after_proj_list.0.weight"),
)

T2I_ADAPTERS = (
    Family("sdxl", "T2I-Adapter for Stable Diffusion XL", "conv_in.weight[1]=256|768 body.0.*"),
    Family("sd1", "T2I-Adapter for Stable Diffusion 1", "conv_in.weight[1]=64|192 body.0.*"),
    Family("sd1", "light T2I-Adapter for Stable Diffusion 1", "body.0.in_conv.weight"),
    Family("stable-cascade-c", "ControlNet for Stable Cascade", "backbone.0.0.weight"),
)
IP_ADAPTERS = (
    Family("sdxl", "IP-Adapter for Stable Diffusion XL", "ip_adapter.1.to_k_ip.weight[1]=2048"),
    Family("sd1", "IP-Adapter for Stable Diffusion 1", "ip_adapter.1.to_k_ip.weight[1]=768"),
    Family("sd2", "IP-Adapter for Stable Diffusion 2", "ip_adapter.1.to_k_ip.weight[1]=1024"),
    Family(
        "flux1", "IP-Adapter for FLUX.1", "double_blocks.0.processor.ip_adapter_double_stream_k_proj.weight"
    ),
    Family("unknown", "IP-Adapter for an unknown model", "image_proj.* ip_adapter.*"),
)
_MOTION = "down_blocks.0.motion_modules.0."
MOTION_MODULES = (
    Family("sdxl", "AnimateDiff motion module for Stable Diffusion XL", f"{_MOTION}* !down_blocks.3.*"),
    Family(
        "sd1",
        "AnimateDiff motion module, version 2",
        f"{_MOTION}temporal_transformer.* mid_block.motion_modules.*",
    ),
    Family("sd1", "AnimateDiff motion module", f"{_MOTION}temporal_transformer.*"),
    Family("sd1", "AnimateDiff motion module", f"{_MOTION}*", "diffusers"),
)

# VAEs. Those of Stable Diffusion and of Stable Diffusion XL have the same names and shapes.
SD_VAE = "sd1, sd2 or sdxl"
_KL, _KL_DIFFUSERS = "decoder.mid.block_1.conv1.weight", "decoder.mid_block.resnets.0.conv1.weight"
_LATENT = "decoder.conv_in.weight[1]"
VAES = (
    Family(
        "svd", "VAE of Stable Video Diffusion", "decoder.mid.block_1.time_stack.in_layers.2.weight", "video"
    ),
    Family("svd", "VAE of Stable Video Diffusion", "decoder.time_conv_out.weight", "video"),
    Family("wan or qwen-image", "VAE of Wan or Qwen-Image", "decoder.middle.0.residual.0.gamma", "video"),
    Family(
        "wan or qwen-image", "VAE of Wan or Qwen-Image", "decoder.mid_block.resnets.0.norm1.gamma", "video"
    ),
    Family("vqgan", "VQGAN", "quantize.embedding.weight decoder.conv_in.weight", "vqgan"),
    Family(SD_VAE, "VAE of Stable Diffusion 1, 2 or XL", f"{_KL} {_LATENT}=4"),
    Family(SD_VAE, "VAE of Stable Diffusion 1, 2 or XL", f"{_KL_DIFFUSERS} {_LATENT}=4", "diffusers"),
    Family("sd3 or flux1", "VAE of Stable Diffusion 3 or FLUX.1", f"{_KL} {_LATENT}=16"),
    Family(
        "sd3 or flux1", "VAE of Stable Diffusion 3 or FLUX.1", f"{_KL_DIFFUSERS} {_LATENT}=16", "diffusers"
    ),
    Family("flux2", "VAE of FLUX.2", f"{_KL} {_LATENT}=32"),
    Family("flux2", "VAE of FLUX.2", f"{_KL_DIFFUSERS} {_LATENT}=32", "diffusers"),
    Family(SD_VAE, "VAE", _KL),
    Family(SD_VAE, "VAE", _KL_DIFFUSERS, "diffusers"),
    Family(
        "sd3 or flux1", "TAESD for Stable Diffusion 3 or FLUX.1", "decoder.layers.0.weight[1]=16", "taesd"
    ),
    Family(
        SD_VAE,
        "TAESD for Stable Diffusion 1, 2 or XL",
        "decoder.layers.0.weight encoder.layers.0.weight",
        "taesd",
    ),
    Family("sd3 or flux1", "TAESD for Stable Diffusion 3 or FLUX.1", "taesd_decoder.1.weight[1]=16", "taesd"),
    Family(SD_VAE, "TAESD for Stable Diffusion 1, 2 or XL", "taesd_decoder.1.weight", "taesd"),
    Family(
        "sd3 or flux1",
        "TAESD decoder for Stable Diffusion 3 or FLUX.1",
        "1.weight[1]=16 3.conv.0.weight",
        "taesd",
    ),
    Family(SD_VAE, "TAESD decoder for Stable Diffusion 1, 2 or XL", "1.weight[1]=4 3.conv.0.weight", "taesd"),
    Family(SD_VAE, "TAESD encoder", "0.weight[1]=3 1.conv.0.weight", "taesd"),
    Family("ltx-video", "VAE of LTX-Video", "decoder.conv_in.conv.weight[1]=128", "video"),
    Family("hunyuan-video", "VAE of HunyuanVideo or CogVideoX", "decoder.conv_in.conv.weight[1]=16", "video"),
    Family("mochi", "VAE of Mochi", "decoder.block_in.resnets.0.conv1.conv.weight", "video"),
    Family("mochi", "VAE of Mochi", "decoder.blocks.0.0.weight", "video"),
    Family("sana", "VAE of Sana (DC-AE)", "decoder.up_blocks.0.0.conv.weight", "dc-ae"),
    Family("sana", "VAE of Sana (DC-AE)", "decoder.stages.0.op_list.*", "dc-ae"),
    Family("stable-cascade", "stage A of Stable Cascade", "vquantizer.codebook.weight", "vqgan"),
)

_CLIP = "text_model.encoder.layers.0.mlp.fc1.weight"
_CLIP5 = "encoder.layers.0.mlp.fc1.weight embeddings.token_embedding.weight"
_T5 = "encoder.block.0.layer.0.SelfAttention.k.weight"
_LOOK = "vision_model.embeddings.position_embedding.weight[1]"
_OPEN_CLIP = "token_embedding.weight[1]"
_TRANSFORMERS, _OPENAI = "transformers", "OpenCLIP"
TEXT_ENCODERS = (
    Family("sd1", "CLIP ViT-L text encoder", f"{_CLIP}[1]=768 !vision_model.*", _TRANSFORMERS),
    Family("sd2", "OpenCLIP ViT-H text encoder", f"{_CLIP}[1]=1024 !vision_model.*", _TRANSFORMERS),
    Family("sdxl", "OpenCLIP ViT-bigG text encoder", f"{_CLIP}[1]=1280 !vision_model.*", _TRANSFORMERS),
    Family("sd1", "CLIP ViT-L text encoder", f"{_CLIP5}[1]=768", _TRANSFORMERS),
    Family("sd2", "OpenCLIP ViT-H text encoder", f"{_CLIP5}[1]=1024", _TRANSFORMERS),
    Family("sdxl", "OpenCLIP ViT-bigG text encoder", f"{_CLIP5}[1]=1280", _TRANSFORMERS),
    Family("sd1", "CLIP ViT-L, text and image", f"{_CLIP}[1]=768 vision_model.*", _TRANSFORMERS),
    Family("sd2", "OpenCLIP ViT-H, text and image", f"{_CLIP}[1]=1024 vision_model.*", _TRANSFORMERS),
    Family("sdxl", "OpenCLIP ViT-bigG, text and image", f"{_CLIP}[1]=1280 vision_model.*", _TRANSFORMERS),
    Family("sd1", "CLIP ViT-L", f"transformer.resblocks.0.attn.in_proj_weight {_OPEN_CLIP}=768", _OPENAI),
    Family(
        "sd2", "OpenCLIP ViT-H", f"transformer.resblocks.0.attn.in_proj_weight {_OPEN_CLIP}=1024", _OPENAI
    ),
    Family(
        "sdxl", "OpenCLIP ViT-bigG", f"transformer.resblocks.0.attn.in_proj_weight {_OPEN_CLIP}=1280", _OPENAI
    ),
    Family(
        "wan",
        "UMT5-XXL text encoder",
        f"{_T5} encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight",
        _TRANSFORMERS,
    ),
    Family("sd3 or flux1", "T5-XXL text encoder", f"{_T5}[1]=4096", _TRANSFORMERS),
    Family("unknown", "T5 text encoder", _T5, _TRANSFORMERS),
)
IMAGE_ENCODERS = (
    Family("unknown", "CLIP ViT-L image encoder", f"{_LOOK}=1024", _TRANSFORMERS),
    Family("unknown", "OpenCLIP ViT-H image encoder", f"{_LOOK}=1280", _TRANSFORMERS),
    Family("unknown", "OpenCLIP ViT-bigG image encoder", f"{_LOOK}=1664", _TRANSFORMERS),
    Family("unknown", "SigLIP image encoder", f"{_LOOK}=1152", _TRANSFORMERS),
    Family("unknown", "CLIP image encoder", "vision_model.embeddings.patch_embedding.weight", _TRANSFORMERS),
)
UPSCALERS = (
    Family("unknown", "ESRGAN upscaler", "model.1.sub.0.RDB1.conv1.0.weight"),
    Family("unknown", "ESRGAN upscaler", "RRDB_trunk.0.RDB1.conv1.weight"),
    Family("unknown", "Real-ESRGAN upscaler", "body.0.rdb1.conv1.weight conv_first.weight"),
    Family(
        "unknown", "compact Real-ESRGAN upscaler", "body.0.weight body.1.weight body.2.weight !conv_in.weight"
    ),
    Family(
        "unknown", "SwinIR upscaler", "layers.0.residual_group.blocks.0.attn.relative_position_bias_table"
    ),
    Family("unknown", "HAT or DAT upscaler", "layers.0.residual_group.* conv_first.weight"),
)
