"""Determines the architecture of a single original file from its metadata or its tensors."""

import json
import re
from dataclasses import replace
from math import prod
from typing import Any

import torch

from calotype.core.errors import ModelFileError
from calotype.models import catalogue
from calotype.models.architecture import Architecture
from calotype.models.file_detection import CHECKPOINT_MARK, FileKind, identify
from calotype.models.files.safetensors_reader import TensorFile

ARCHITECTURE_KEY = "calotype.architecture"
"""Where Calotype stores the architecture: in the metadata of a safetensors file.

A ckpt has no metadata, so it is a tensor of the text's bytes, unless the other tensors identify it.
"""
_MAX_DESCRIPTION_LENGTH = 2**20
PREDICTION_KEY = "modelspec.prediction_type"
"""Where trainers and Calotype state the prediction type."""

CATALOGUE_NAME = {"sd1": "sd15", "sd2": "sd2-base", "sdxl": "sdxl", "sdxl-refiner": "sdxl-refiner"}
INPAINTING_PIPELINE = {
    "StableDiffusionPipeline": "StableDiffusionInpaintPipeline",
    "StableDiffusionXLPipeline": "StableDiffusionXLInpaintPipeline",
}
INPAINTING_CHANNELS = 9
V_MARK, ZERO_SNR_MARK = "v_pred", "ztsnr"
"""Empty tensors that trainers write as markers, because a file may have no metadata."""
EDM_MARKS = ("edm_mean", "edm_std", "edm_vpred.sigma_max")

TITLE_KEY = "modelspec.title"
FEW_STEP_TITLE = re.compile(r"(?<![a-z])(turbo|lightning|hyper[-_ ]?sd(?:xl)?|lcm)(?![a-z])", re.IGNORECASE)
"""Titles of models distilled to few steps: a single file has no scheduler configuration to show it."""
DISTILLED_SCHEDULER = {"_class_name": "EulerDiscreteScheduler", "timestep_spacing": "trailing"}
LCM_SCHEDULER = {"_class_name": "LCMScheduler", "timestep_spacing": "leading"}
"""The scheduler configurations that such models are published with."""

LATE_BIAS = "model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias"
LATE_BIAS_SPREAD = 0.09
"""The standard deviation of this bias is above it in Stable Diffusion 2's 768-pixel models, else below."""
V_NATIVE_SIZE = 768


def architecture_of(
    file: TensorFile, given: Architecture | None = None, prediction_type: str | None = None
) -> Architecture:
    """The architecture of the file: `given`, else the stored one, else the one its keys identify.

    A `given` architecture that contradicts the file's markers is an error, unless the user's
    `prediction_type` resolves the contradiction.
    """
    identity = identify({name: file.entry(name).shape for name in file})
    if identity.kind is not FileKind.CHECKPOINT:
        named = f" ({identity.title})" if identity.title else ""
        raise ModelFileError(file.path, f"is not a checkpoint but: {identity.kind.value}{named}")
    if given is not None:
        _refuse_contradiction(file, given, prediction_type)
        return given
    if ARCHITECTURE_KEY in file.metadata or ARCHITECTURE_KEY in file:
        return _stored_architecture(file)
    if identity.base not in CATALOGUE_NAME:
        family = identity.title or identity.base
        rule = f"is a checkpoint for {family}, which is not supported (SD 1, SD 2 and SDXL are)"
        raise ModelFileError(file.path, rule)
    _refuse_edm(file)
    known = catalogue.architecture(CATALOGUE_NAME[identity.base])
    return _with_schedule(file, _with_channels(file, known))


def _refuse_edm(file: TensorFile) -> None:
    if any(mark in file for mark in EDM_MARKS):
        raise ModelFileError(
            file.path, "was trained with EDM preconditioning, which is not supported (epsilon and v are)"
        )


def _refuse_contradiction(file: TensorFile, given: Architecture, prediction_type: str | None) -> None:
    """Raise for a configuration that contradicts the file: every image would be noise."""
    _refuse_edm(file)
    marked = _marked_prediction(file)
    if marked and prediction_type is None and marked != given.prediction_type:
        rule = f"is marked as predicting {marked}, but the configuration says {given.prediction_type}"
        fix = f"correct prediction_type in the configuration, or pass --prediction {marked}"
        raise ModelFileError(file.path, f"{rule}; {fix} (--prediction overrules both)")
    if ZERO_SNR_MARK in file and not given.scheduler.get("rescale_betas_zero_snr"):
        rule = (
            f"is marked as trained with zero terminal SNR ({ZERO_SNR_MARK!r}), but the configuration is not"
        )
        fix = "set rescale_betas_zero_snr to true in the configuration's scheduler"
        raise ModelFileError(file.path, f"{rule}; {fix}")


def _marked_prediction(file: TensorFile) -> str | None:
    """The prediction type that the file states, or None."""
    declared = file.metadata.get(PREDICTION_KEY, "")
    if V_MARK in file or declared.startswith("v"):
        return "v_prediction"
    return {"e": "epsilon", "s": "sample"}.get(declared[:1])


def _stored_architecture(file: TensorFile) -> Architecture:
    try:
        if ARCHITECTURE_KEY in file.metadata:
            text: str | bytes = file.metadata[ARCHITECTURE_KEY]
        else:
            text = _read_description(file)
        return Architecture.from_dict(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            file.path, f"its own description {ARCHITECTURE_KEY!r} cannot be used: {error}"
        ) from error


def _read_description(file: TensorFile) -> bytes:
    size = prod(file.entry(ARCHITECTURE_KEY).shape)
    if size > _MAX_DESCRIPTION_LENGTH:
        raise ValueError(f"it has {size} bytes, the limit is {_MAX_DESCRIPTION_LENGTH}")
    return file.read(ARCHITECTURE_KEY).to(torch.uint8).numpy().tobytes()


def _with_channels(file: TensorFile, known: Architecture) -> Architecture:
    """Set the input channels: inpainting models also take a mask and an image, as the first layer shows."""
    shape = file.entry(CHECKPOINT_MARK).shape
    if len(shape) != 4:
        raise ModelFileError(
            file.path, f"{CHECKPOINT_MARK!r} has shape {list(shape)}, which is no convolution"
        )
    pipeline = known.pipeline
    if shape[1] == INPAINTING_CHANNELS:
        pipeline = INPAINTING_PIPELINE.get(pipeline, pipeline)
    return replace(known, unet={**known.unet, "in_channels": shape[1]}, pipeline=pipeline)


def _with_schedule(file: TensorFile, known: Architecture) -> Architecture:
    """Set the prediction type and schedule, which no tensor shape shows.

    Trainers write a `v_pred` tensor or metadata. Stable Diffusion 2 files have neither; the 768-pixel v
    models differ from the 512-pixel ones in the standard deviation of one late bias, which other tools check
    too.
    """
    declared = file.metadata.get(PREDICTION_KEY, "")
    wide_bias = known.family == "sd2" and _late_bias_is_wide(file)
    predicts_v = V_MARK in file or declared.startswith("v") or (wide_bias and not declared)
    settings: dict[str, Any] = {"prediction_type": "v_prediction" if predicts_v else "epsilon"}
    if ZERO_SNR_MARK in file:
        settings["rescale_betas_zero_snr"] = True
    few_step = FEW_STEP_TITLE.search(file.metadata.get(TITLE_KEY, ""))
    if few_step:
        settings |= LCM_SCHEDULER if few_step[1].lower() == "lcm" else DISTILLED_SCHEDULER
    scheduled = replace(known, scheduler={**known.scheduler, **settings})
    if not (wide_bias and predicts_v):
        return scheduled
    unet = {**known.unet, "sample_size": V_NATIVE_SIZE // known.vae_factor}
    return replace(scheduled, title="Stable Diffusion 2, 768 pixels", native_size=V_NATIVE_SIZE, unet=unet)


def _late_bias_is_wide(file: TensorFile) -> bool:
    if LATE_BIAS not in file:
        return False
    return bool(file.read(LATE_BIAS).float().std(correction=0) > LATE_BIAS_SPREAD)
