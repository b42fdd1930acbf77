"""The architecture of a single original file: from its own description, or from what its tensors show.

Knows nothing of modules; the tensors themselves are read by `weights`.
"""

import json
from dataclasses import replace

from calotype.core.errors import ModelFileError
from calotype.models import catalogue
from calotype.models.architecture import Architecture
from calotype.models.files.tensor_file import TensorFile
from calotype.models.identify import FileKind, identify

ARCHITECTURE_KEY = "calotype.architecture"
"""Where our own writer leaves the architecture in a safetensors file's metadata."""

CATALOGUE_NAME = {"sd1": "sd15", "sd2": "sd2-base", "sdxl": "sdxl"}
FIRST_CONVOLUTION = "model.diffusion_model.input_blocks.0.0.weight"
LAST_ATTENTION_BIAS = "model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias"


def architecture_of(file: TensorFile, given: Architecture | None = None) -> Architecture:
    """Which architecture the file's tensors are for. `given` wins; then the file's own word; then its keys."""
    identity = identify({name: file.entry(name).shape for name in file.keys()})
    if identity.kind is not FileKind.CHECKPOINT:
        raise ModelFileError(file.path, f"is not a checkpoint but: {identity.kind.value}")
    if given is not None:
        return given
    if ARCHITECTURE_KEY in file.metadata:
        return _own_word(file)
    if identity.base not in CATALOGUE_NAME:
        raise ModelFileError(file.path, f"is a checkpoint for {identity.base}, which is not supported (SD 1, SD 2, SDXL are)")
    known = catalogue.architecture(CATALOGUE_NAME[identity.base])
    in_channels = file.entry(FIRST_CONVOLUTION).shape[1]
    return replace(
        known,
        unet={**known.unet, "in_channels": in_channels},
        scheduler={**known.scheduler, **_schedule_marks(file, identity.base)},
    )


def _own_word(file: TensorFile) -> Architecture:
    try:
        return Architecture.from_dict(json.loads(file.metadata[ARCHITECTURE_KEY]))
    except (ValueError, TypeError, KeyError) as error:
        raise ModelFileError(file.path, f"its metadata {ARCHITECTURE_KEY!r} cannot be read: {error}") from error


def _schedule_marks(file: TensorFile, base: str) -> dict[str, object]:
    """Whether the model predicts v, which shows in no shape.

    Trainers leave a `v_pred` tensor or say so in the metadata. Stable Diffusion 2 files have neither; the 768-pixel v
    models differ from the 512-pixel ones in the spread of one late bias, which is the mark other tools use too.
    """
    declared = file.metadata.get("modelspec.prediction_type", "")
    zero_snr = {"rescale_betas_zero_snr": True} if "ztsnr" in file.keys() else {}
    if "v_pred" in file.keys() or declared.startswith("v"):
        return {"prediction_type": "v_prediction", **zero_snr}
    late_bias = LAST_ATTENTION_BIAS
    if base == "sd2" and not declared and late_bias in file.keys() and file.read(late_bias).float().std() > 0.09:
        return {"prediction_type": "v_prediction"}
    return {"prediction_type": "epsilon", **zero_snr}
