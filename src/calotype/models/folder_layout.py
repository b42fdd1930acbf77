"""The diffusers folder layout without weights: configuration files, tokenizers, the index. Both ways.

Knows nothing of tensors.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.models.architecture import Architecture, family_of
from calotype.models.tokenizer import read_tokenizer, write_tokenizer

LARGEST_CONFIG_BYTES = 64 * 2**20


def is_model_folder(folder: Path) -> bool:
    return (folder / "model_index.json").is_file()


def read_architecture(folder: Path) -> Architecture:
    """The architecture of a diffusers folder, from its own configuration files."""
    if not is_model_folder(folder):
        raise NotFoundError(f"{folder} is not a diffusers model folder: it has no model_index.json")
    index = read_json(folder / "model_index.json")
    unet, vae = read_json(folder / "unet" / "config.json"), read_json(folder / "vae" / "config.json")
    encoder_names = [name for name in ("text_encoder", "text_encoder_2") if (folder / name).is_dir()]
    if not encoder_names:
        raise ModelFileError(folder, "has no text_encoder folder; only text-to-image models can be loaded")
    encoders = tuple(_encoder_from_file(read_json(folder / name / "config.json")) for name in encoder_names)
    return Architecture(
        name=folder.name,
        title=folder.name,
        family=family_of(encoders),
        native_size=int(unet.get("sample_size") or 64) * 2 ** (len(vae["block_out_channels"]) - 1),
        hub_id=None,
        licence="see the model's own card",
        pipeline=str(index.get("_class_name", "StableDiffusionPipeline")),
        unet=unet,
        vae=vae,
        text_encoders=encoders,
        tokenizers=tuple(read_tokenizer(folder / name.replace("text_encoder", "tokenizer")) for name in encoder_names),
        scheduler=read_json(folder / "scheduler" / "scheduler_config.json"),
        force_zeros_for_empty_prompt=bool(index.get("force_zeros_for_empty_prompt", False)),
    )


def read_json(file: Path) -> dict[str, Any]:
    """A configuration file, refused with a reason when it is not one."""
    if not file.is_file():
        raise ModelFileError(file, "is missing; the model folder is incomplete")
    if file.stat().st_size > LARGEST_CONFIG_BYTES:
        raise ModelFileError(file, f"is {file.stat().st_size} bytes, the limit for a configuration is {LARGEST_CONFIG_BYTES}")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(file, f"is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelFileError(file, f"should hold a JSON object, holds a {type(values).__name__}")
    return values


def _encoder_from_file(config: Mapping[str, Any]) -> dict[str, Any]:
    kinds = config.get("architectures") or ["CLIPTextModel"]
    kept = {k: v for k, v in config.items() if k not in ("architectures", "dtype", "torch_dtype", "transformers_version")}
    return {**kept, "_class_name": kinds[0]}


def _encoder_to_file(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in config.items() if k != "_class_name"}
    return {"architectures": [config["_class_name"]], **kept}


def write_layout(folder: Path, architecture: Architecture) -> None:
    """Everything in the folder but the weights."""
    for part, config in architecture.parts().items():
        values = _encoder_to_file(config) if part.startswith("text_encoder") else dict(config)
        _write_json(folder / part / "config.json", values)
    for position, description in enumerate(architecture.tokenizers):
        suffix = "" if position == 0 else f"_{position + 1}"
        write_tokenizer(folder / f"tokenizer{suffix}", description)
    _write_json(folder / "scheduler" / "scheduler_config.json", dict(architecture.scheduler))
    _write_json(folder / "model_index.json", _index(architecture))


def _index(architecture: Architecture) -> dict[str, Any]:
    from diffusers import __version__ as diffusers_version  # noqa: PLC0415 - only when a folder is written

    index: dict[str, Any] = {
        "_class_name": architecture.pipeline,
        "_diffusers_version": diffusers_version,
        "scheduler": ["diffusers", architecture.scheduler["_class_name"]],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "feature_extractor": [None, None],
        "image_encoder": [None, None],
    }
    for position, config in enumerate(architecture.text_encoders):
        suffix = "" if position == 0 else f"_{position + 1}"
        index[f"text_encoder{suffix}"] = ["transformers", config["_class_name"]]
        index[f"tokenizer{suffix}"] = ["transformers", "CLIPTokenizer"]
    if architecture.family == "sdxl":
        index["force_zeros_for_empty_prompt"] = architecture.force_zeros_for_empty_prompt
    else:
        index |= {"safety_checker": [None, None], "requires_safety_checker": False}
    return index


def _write_json(file: Path, values: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")
