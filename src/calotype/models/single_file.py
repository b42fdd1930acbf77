"""The architecture of a single original file: from its own description, or from what its tensors show.

Knows nothing of modules; the tensors themselves are read by `weights`.
"""

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
"""Where our own writer leaves the architecture: in a safetensors file's metadata.

In a ckpt, which has none, as a tensor of the text's bytes, if names and shapes of the others do not show it.
"""
_MAX_WORD_LENGTH = 2**20
PREDICTION_KEY = "modelspec.prediction_type"
"""Where trainers, and our own writer, say what the model predicts."""

CATALOGUE_NAME = {"sd1": "sd15", "sd2": "sd2-base", "sdxl": "sdxl", "sdxl-refiner": "sdxl-refiner"}
INPAINTING_PIPELINE = {
    "StableDiffusionPipeline": "StableDiffusionInpaintPipeline",
    "StableDiffusionXLPipeline": "StableDiffusionXLInpaintPipeline",
}
INPAINTING_CHANNELS = 9
V_MARK, ZERO_SNR_MARK = "v_pred", "ztsnr"
"""Empty tensors that trainers leave in files, where there may be no metadata."""
EDM_MARKS = ("edm_mean", "edm_std", "edm_vpred.sigma_max")

TITLE_KEY = "modelspec.title"
FEW_STEP_TITLE = re.compile(r"(?<![a-z])(turbo|lightning|hyper[-_ ]?sd(?:xl)?|lcm)(?![a-z])", re.IGNORECASE)
"""Titles of models that were distilled to few steps: a single file has no scheduler to show it."""
DISTILLED_SCHEDULER = {"_class_name": "EulerDiscreteScheduler", "timestep_spacing": "trailing"}
LCM_SCHEDULER = {"_class_name": "LCMScheduler", "timestep_spacing": "leading"}
"""What the folders of such models are published with."""

LATE_BIAS = "model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias"
LATE_BIAS_SPREAD = 0.09
"""In Stable Diffusion 2's 768-pixel models the spread of this bias is above, in the 512-pixel ones below."""
V_NATIVE_SIZE = 768


def architecture_of(
    file: TensorFile, given: Architecture | None = None, prediction_type: str | None = None
) -> Architecture:
    """Which architecture the tensors are for. `given` wins; then the file's own word; then its keys.

    A `given` one that contradicts the file's marks is refused. `prediction_type` is what the user says the
    model predicts, which settles that contradiction.
    """
    identity = identify({name: file.entry(name).shape for name in file})
    if identity.kind is not FileKind.CHECKPOINT:
        named = f" ({identity.title})" if identity.title else ""
        raise ModelFileError(file.path, f"is not a checkpoint but: {identity.kind.value}{named}")
    if given is not None:
        _refuse_contradiction(file, given, prediction_type)
        return given
    if ARCHITECTURE_KEY in file.metadata or ARCHITECTURE_KEY in file:
        return _own_word(file)
    if identity.base not in CATALOGUE_NAME:
        family = identity.title or identity.base
        rule = f"is a checkpoint for {family}, which is not supported (SD 1, SD 2 and SDXL are)"
        raise ModelFileError(file.path, rule)
    _refuse_edm(file)
    known = catalogue.architecture(CATALOGUE_NAME[identity.base])
    return _with_schedule_marks(file, _with_channels(file, known))


def _refuse_edm(file: TensorFile) -> None:
    if any(mark in file for mark in EDM_MARKS):
        raise ModelFileError(
            file.path, "was trained in the EDM way, which is not supported (epsilon and v are)"
        )


def _refuse_contradiction(file: TensorFile, given: Architecture, prediction_type: str | None) -> None:
    """A configuration that says otherwise than the file would make noise of every picture."""
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
    """What the file itself says that the model predicts, if it does."""
    declared = file.metadata.get(PREDICTION_KEY, "")
    if V_MARK in file or declared.startswith("v"):
        return "v_prediction"
    return {"e": "epsilon", "s": "sample"}.get(declared[:1])


def _own_word(file: TensorFile) -> Architecture:
    try:
        if ARCHITECTURE_KEY in file.metadata:
            text: str | bytes = file.metadata[ARCHITECTURE_KEY]
        else:
            text = _bytes_of(file)
        return Architecture.from_dict(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            file.path, f"what it says of itself as {ARCHITECTURE_KEY!r} cannot be used: {error}"
        ) from error


def _bytes_of(file: TensorFile) -> bytes:
    size = prod(file.entry(ARCHITECTURE_KEY).shape)
    if size > _MAX_WORD_LENGTH:
        raise ValueError(f"it has {size} bytes, the limit is {_MAX_WORD_LENGTH}")
    return file.read(ARCHITECTURE_KEY).to(torch.uint8).numpy().tobytes()


def _with_channels(file: TensorFile, known: Architecture) -> Architecture:
    """Inpainting models read a mask and a picture beside the latent, which shows in the first convolution."""
    shape = file.entry(CHECKPOINT_MARK).shape
    if len(shape) != 4:
        raise ModelFileError(
            file.path, f"{CHECKPOINT_MARK!r} has shape {list(shape)}, which is no convolution"
        )
    pipeline = known.pipeline
    if shape[1] == INPAINTING_CHANNELS:
        pipeline = INPAINTING_PIPELINE.get(pipeline, pipeline)
    return replace(known, unet={**known.unet, "in_channels": shape[1]}, pipeline=pipeline)


def _with_schedule_marks(file: TensorFile, known: Architecture) -> Architecture:
    """Whether the model predicts v, which shows in no shape.

    Trainers leave a `v_pred` tensor or say so in the metadata. Stable Diffusion 2 files have neither; the
    768-pixel v models differ from the 512-pixel ones in the spread of one late bias, which other tools go by
    too.
    """
    declared = file.metadata.get(PREDICTION_KEY, "")
    spread = known.family == "sd2" and _late_bias_is_spread(file)
    says_v = V_MARK in file or declared.startswith("v") or (spread and not declared)
    marks: dict[str, Any] = {"prediction_type": "v_prediction" if says_v else "epsilon"}
    if ZERO_SNR_MARK in file:
        marks["rescale_betas_zero_snr"] = True
    named = FEW_STEP_TITLE.search(file.metadata.get(TITLE_KEY, ""))
    if named:
        marks |= LCM_SCHEDULER if named[1].lower() == "lcm" else DISTILLED_SCHEDULER
    scheduled = replace(known, scheduler={**known.scheduler, **marks})
    if not (spread and says_v):
        return scheduled
    unet = {**known.unet, "sample_size": V_NATIVE_SIZE // known.vae_factor}
    return replace(scheduled, title="Stable Diffusion 2, 768 pixels", native_size=V_NATIVE_SIZE, unet=unet)


def _late_bias_is_spread(file: TensorFile) -> bool:
    if LATE_BIAS not in file:
        return False
    return bool(file.read(LATE_BIAS).float().std(correction=0) > LATE_BIAS_SPREAD)
