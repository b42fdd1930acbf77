"""Reads and writes the diffusers folder layout without weights: configurations, tokenizers and the index."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.models.architecture import UNET, VAE, Architecture, family_of, vae_factor
from calotype.models.hub import folder_name, link_boundary
from calotype.models.json_file import read_json, write_json
from calotype.models.tokenizer import read_tokenizer, write_tokenizer

# Keys that describe how an encoder was saved, not its architecture.
_SAVE_KEYS = ("architectures", "dtype", "torch_dtype", "transformers_version")


def is_model_folder(folder: Path) -> bool:
    return (folder / "model_index.json").is_file()


def read_architecture(folder: Path) -> Architecture:
    """Read the architecture of a diffusers folder from its configuration files."""
    if not is_model_folder(folder):
        raise NotFoundError(f"{folder} is not a diffusers model folder: it has no model_index.json")
    index = read_json(folder / "model_index.json", inside=link_boundary(folder))
    try:
        return _architecture(folder, index)
    except (ValueError, TypeError, KeyError) as error:
        raise ModelFileError(folder, f"its configuration cannot be used: {error}") from error


def _architecture(folder: Path, index: Mapping[str, Any]) -> Architecture:
    inside, name = link_boundary(folder), folder_name(folder)

    def config(*parts: str) -> dict[str, Any]:
        return read_json(folder.joinpath(*parts), inside=inside)

    encoder_names = _encoder_names(folder, index)
    unet, vae = config("unet", "config.json"), config("vae", "config.json")
    encoders = tuple(_encoder_from_file(config(encoder, "config.json")) for encoder in encoder_names)
    tokenizers = (folder / encoder.replace("text_encoder", "tokenizer") for encoder in encoder_names)
    return Architecture(
        name=name,
        title=name,
        family=family_of(encoders),
        native_size=int(unet.get("sample_size") or 64) * vae_factor(vae),
        hub_id=None,
        licence="see the model's own card",
        pipeline=str(index.get("_class_name", "StableDiffusionPipeline")),
        unet={"_class_name": UNET, **unet},
        vae={"_class_name": VAE, **vae},
        text_encoders=encoders,
        tokenizers=tuple(read_tokenizer(tokenizer, inside=inside) for tokenizer in tokenizers),
        scheduler=config("scheduler", "scheduler_config.json"),
        force_zeros_for_empty_prompt=bool(index.get("force_zeros_for_empty_prompt", False)),
    )


def _encoder_names(folder: Path, index: Mapping[str, Any]) -> list[str]:
    """The folders of the text encoders; an unsupported model is an error that names its class."""
    pipeline = index.get("_class_name", "model of an unknown class")
    if not (folder / "unet").is_dir():
        raise ModelFileError(
            folder, f"is a {pipeline} without a unet folder; only Stable Diffusion can be run"
        )
    # SDXL's refiner has the second encoder only.
    names = [name for name in ("text_encoder", "text_encoder_2") if (folder / name).is_dir()]
    if not names:
        raise ModelFileError(
            folder, f"is a {pipeline} without a text_encoder folder, so it cannot encode a prompt"
        )
    return names


def _encoder_from_file(config: Mapping[str, Any]) -> dict[str, Any]:
    kinds = config.get("architectures") or ["CLIPTextModel"]
    settings = {key: value for key, value in config.items() if key not in _SAVE_KEYS}
    return {**settings, "_class_name": kinds[0]}


def _encoder_to_file(config: Mapping[str, Any]) -> dict[str, Any]:
    settings = {key: value for key, value in config.items() if key != "_class_name"}
    return {"architectures": [config["_class_name"]], **settings}


def write_layout(folder: Path, architecture: Architecture) -> None:
    """Write everything in the folder except the weights."""
    for part, config in architecture.parts().items():
        values = _encoder_to_file(config) if part.startswith("text_encoder") else dict(config)
        write_json(folder / part / "config.json", values)
    for ending, description in zip(architecture.endings(), architecture.tokenizers, strict=True):
        write_tokenizer(folder / f"tokenizer{ending}", description)
    write_json(folder / "scheduler" / "scheduler_config.json", dict(architecture.scheduler))
    write_json(folder / "model_index.json", _index(architecture))


def _index(architecture: Architecture) -> dict[str, Any]:
    from diffusers import __version__ as diffusers_version  # noqa: PLC0415 - only when a folder is written

    index: dict[str, Any] = {
        "_class_name": architecture.pipeline,
        "_diffusers_version": diffusers_version,
        "scheduler": ["diffusers", architecture.scheduler["_class_name"]],
        "unet": ["diffusers", architecture.unet["_class_name"]],
        "vae": ["diffusers", architecture.vae["_class_name"]],
        "feature_extractor": [None, None],
        "image_encoder": [None, None],
    }
    if architecture.family == "sdxl":
        index |= {"text_encoder": [None, None], "tokenizer": [None, None]}
    for ending, config in zip(architecture.endings(), architecture.text_encoders, strict=True):
        index[f"text_encoder{ending}"] = ["transformers", config["_class_name"]]
        index[f"tokenizer{ending}"] = ["transformers", "CLIPTokenizer"]
    if architecture.family == "sdxl":
        index["force_zeros_for_empty_prompt"] = architecture.force_zeros_for_empty_prompt
        if architecture.reads_aesthetic_score:
            index["requires_aesthetics_score"] = True
    else:
        index |= {"safety_checker": [None, None], "requires_safety_checker": False}
    return index
