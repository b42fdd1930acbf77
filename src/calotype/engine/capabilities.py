"""Checks what a model can do, when it is loaded and before a request runs on it."""

from __future__ import annotations

import logging
from dataclasses import asdict

from calotype.core.errors import ModelFileError, Problem, RequestError
from calotype.engine.image_inputs import Inputs
from calotype.engine.img2img import takes_mask_channels
from calotype.models.model import Model
from calotype.models.sampling_defaults import ends_at_least_noise, sampling_defaults
from calotype.sampling import TrainingSchedule, training_schedule
from calotype.sampling.api import sampler_options
from calotype.spec.generate_request import GenerateRequest, MicroConditioning

DEFAULT_STRENGTH = 0.75
"""Default strength with an input image: high enough to follow a prompt, low enough to keep the image."""

OTHER_NOISE = ("EDM", "FlowMatch")
"""Name prefixes of schedulers whose noise is not defined by betas."""
UNGIVEN = {
    "time_cond_proj_dim": "the guidance scale, as consistency-distilled models do",
    "class_embed_type": "a class",
    "num_class_embeds": "a class",
}
"""Settings of UNets with inputs that we do not provide, and these inputs."""

OTHER_CHANNELS = {5: "depth", 7: "x4 upscaler", 8: "InstructPix2Pix"}
"""Number of input channels → the model family it identifies."""

_log = logging.getLogger(__name__)


def schedule_of(model: Model) -> TrainingSchedule:
    """The noise levels the model was trained on, from its scheduler's configuration."""
    config = model.architecture.scheduler
    kind = str(config.get("_class_name"))
    if kind.startswith(OTHER_NOISE):
        rule = f"its scheduler is {kind}, which is not supported; only schedulers with betas are"
        raise ModelFileError(model.identity.reference, rule)
    if config.get("trained_betas") is not None:
        raise ModelFileError(
            model.identity.reference, "its scheduler lists trained_betas, which are not supported"
        )
    try:
        return training_schedule(
            config.get("beta_schedule", "scaled_linear"),
            float(config.get("beta_start", 0.00085)),
            float(config.get("beta_end", 0.012)),
            int(config.get("num_train_timesteps", 1000)),
            bool(config.get("rescale_betas_zero_snr", False)),
            steps_offset=int(config.get("steps_offset") or 0),
            ends_at_least_noise=ends_at_least_noise(config),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(model.identity.reference, f"its scheduler cannot be used: {error}") from None


def check_model(model: Model) -> None:
    """Refuse a UNet with inputs that we do not provide."""
    latent, reads = model.architecture.latent_channels, int(model.unet.config.in_channels)
    if reads != latent and not takes_mask_channels(model):
        supported = f"{latent} (text to image) and {2 * latent + 1} (inpainting) are known"
        family = f"; {OTHER_CHANNELS[reads]} models read {reads}" if reads in OTHER_CHANNELS else ""
        rule = f"its UNet reads {reads} channels; {supported}{family}"
        raise ModelFileError(model.identity.reference, rule)
    for setting, what in UNGIVEN.items():
        if model.unet.config.get(setting) is not None:
            rule = f"its UNet reads {what} ({setting}), which is not supported"
            raise ModelFileError(model.identity.reference, rule)
    added = model.unet.config.get("addition_embed_type")
    if added and (added, model.architecture.family) != ("text_time", "sdxl"):
        rule = f"its UNet reads {added!r} beside the prompt (addition_embed_type), which is not supported"
        raise ModelFileError(model.identity.reference, rule)


def resolve_defaults(model: Model, request: GenerateRequest, inputs: Inputs) -> GenerateRequest:
    """Fill in the model's defaults, and refuse what it cannot do, with every problem at once."""
    native = model.architecture.native_size
    width, height = inputs.size() or (native, native)
    strength = request.strength
    if strength is None:
        strength = DEFAULT_STRENGTH if inputs.image is not None and inputs.mask is None else 1.0
    resolved = request.settled(asdict(sampling_defaults(model.architecture))).with_changes(
        width=request.width or width, height=request.height or height, strength=strength
    )
    problems = _unsupported(model, resolved)
    if problems:
        raise RequestError(problems)
    _warn_of_ignored(model, resolved, inputs)
    return resolved


def _unsupported(model: Model, request: GenerateRequest) -> list[Problem]:
    architecture, problems = model.architecture, []
    for field, side in (("width", request.width), ("height", request.height)):
        if side and side % architecture.vae_factor:
            rule = f"{side} is not a multiple of {architecture.vae_factor}, which this model needs"
            problems.append(Problem(field, rule, side))
    if request.eta is not None and "eta" not in sampler_options(request.sampler):
        rule = f"sampler {request.sampler!r} has no eta; leave it out"
        problems.append(Problem("eta", rule, request.eta))
    deepest = min(int(config["num_hidden_layers"]) for config in architecture.text_encoders) - 1
    if request.clip_skip > deepest:
        rule = (
            f"{request.clip_skip} is too large; this model's text encoders can skip at most {deepest} layers"
        )
        problems.append(Problem("clip_skip", rule, request.clip_skip))
    if request.micro != MicroConditioning() and architecture.family != "sdxl":
        problems.append(
            Problem("micro", f"{architecture.title} does not read sizes and crops; only SDXL does")
        )
    return problems


def _warn_of_ignored(model: Model, request: GenerateRequest, inputs: Inputs) -> None:
    if request.negative_prompt and request.cfg == 1:
        _log.warning("negative_prompt has no effect at cfg 1, which disables guidance")
    if (
        inputs.image is not None
        and inputs.mask is None
        and request.strength == 1
        and not takes_mask_channels(model)
    ):
        _log.warning("the image has no effect at strength 1, which starts from pure noise")
