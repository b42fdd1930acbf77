"""Models of A1111's requests, and their conversion to a GenerateRequest.

A field that is known to change the image and is not supported is rejected. Other unsupported fields and
unknown keys are accepted without effect, because every client and every fork of A1111 sends its own.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from calotype.core.errors import Problem, RequestError
from calotype.serve.http.routes.a1111.sampler_names import sampler_and_schedule
from calotype.serve.request_parsing import seed_for
from calotype.spec.constants import SAMPLERS_WITH_ETA
from calotype.spec.generate_request import MAX_SEED
from calotype.spec.validation_errors import short_repr

NAMES = {
    "cfg": "cfg_scale",
    "strength": "denoising_strength",
    "sampler": "sampler_name",
    "count": "batch_size",
    "image": "init_images",
    "model": "override_settings.sd_model_checkpoint",
}
_LORA = re.compile(r"<lora:([^:>]*)(?::([^:>]*))?(?::([^:>]*))?>")
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "alwayson_scripts": ({},),
    "enable_hr": (False,),
    "firstpass_image": ("",),
    "include_init_images": (False,),
    "infotext": ("",),
    "initial_noise_multiplier": (1, 1.0),
    "refiner_checkpoint": ("",),
    "restore_faces": (False,),
    "s_churn": (0,),
    "s_min_uncond": (0,),
    "s_noise": (1,),
    "s_tmin": (0,),
    "script_args": ([],),
    "script_name": ("",),
    "seed_resize_from_h": (-1, 0),
    "seed_resize_from_w": (-1, 0),
    "styles": ([],),
    "subseed_strength": (0,),
    "tiling": (False,),
}
"""The only supported values of these fields: any other value would change the image."""
_NEUTRAL_SETTINGS: dict[str, tuple[Any, ...]] = {
    "always_discard_next_to_last_sigma": (False,),
    "beta_dist_alpha": (0.6,),
    "beta_dist_beta": (0.6,),
    "enable_quantization": (False,),
    "eta_ancestral": (1,),
    "eta_ddim": (0,),
    "img2img_extra_noise": (0,),
    "img2img_fix_steps": (False,),
    "rho": (0,),
    "s_churn": (0,),
    "s_min_uncond": (0,),
    "s_noise": (1,),
    "sd_noise_schedule": ("Default",),
    "sgm_noise_multiplier": (False,),
    "sigma_max": (0,),
    "sigma_min": (0,),
    "skip_early_cond": (0,),
    "uni_pc_lower_order_final": (True,),
    "uni_pc_order": (3,),
    "uni_pc_skip_type": ("time_uniform",),
    "uni_pc_variant": ("bh1",),
    "use_old_karras_scheduler_sigmas": (False,),
}
"""Settings of noise levels and samplers; A1111's defaults are the only supported values."""

Number = Annotated[float, Field(allow_inf_nan=False)]


BlurRadius = Annotated[float, Field(ge=0, le=64, allow_inf_nan=False)]
ClipLayers = Annotated[int, Field(ge=0, le=13)]
"""0 and 1 skip no layer, 2 skips the last one."""


class _A1111Model(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, values: Any) -> Any:
        """Drop nulls: A1111 accepts null for every field and uses the default."""
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


class OverrideSettings(_A1111Model):
    """Settings for this request alone."""

    model_config = ConfigDict(extra="allow")

    sd_model_checkpoint: str | None = None
    """One of `/sdapi/v1/sd-models`."""
    sd_vae: str | None = None
    """File name inside the model folder's `vae/`; `Automatic` and `None` are the model's own."""
    CLIP_stop_at_last_layers: ClipLayers | None = None
    """0 and 1 skip no layer, 2 skips the last one."""


class Txt2Img(_A1111Model):
    """A text-to-image request of A1111's clients."""

    prompt: str = ""
    """What the image shows; `<lora:name:strength>` applies a LoRA."""
    negative_prompt: str = ""
    seed: Annotated[int, Field(ge=-1, le=MAX_SEED)] = -1
    """−1 selects a random seed, the same one for the same `Idempotency-Key`."""
    steps: int = 20
    cfg_scale: float = 7.0
    width: int | None = None
    """Default: the size of the start image, or the model's native size."""
    height: int | None = None
    """Default: the size of the start image, or the model's native size."""
    sampler_name: str | None = None
    """One of `/sdapi/v1/samplers`, optionally followed by a schedule; default `Euler`."""
    sampler_index: str | None = None
    """An older name of `sampler_name`."""
    scheduler: str | None = None
    """One of `/sdapi/v1/schedulers`; default `Automatic`."""
    n_iter: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of batches."""
    batch_size: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Images per batch; the deployment decides how many run at a time."""
    eta: float | None = None
    """Noise that each step adds; no effect with samplers that add none."""
    denoising_strength: float | None = None
    """How far to depart from the start image; no effect without one."""
    override_settings: OverrideSettings = OverrideSettings()
    send_images: bool = True
    """Whether the response contains the images."""
    alwayson_scripts: dict[str, Any] | None = None
    clip_skip: ClipLayers | None = None
    """Like the setting `CLIP_stop_at_last_layers`, which overrides it."""
    comments: dict[str, Any] | None = None
    disable_extra_networks: bool | None = None
    """True treats `<lora:…>` as plain text."""
    do_not_save_grid: bool | None = None
    do_not_save_samples: bool | None = None
    enable_hr: bool | None = None
    firstphase_height: int | None = None
    firstphase_width: int | None = None
    firstpass_image: str | None = None
    force_task_id: str | None = None
    hr_additional_modules: list[str] | None = None
    hr_cfg: Number | None = None
    hr_checkpoint_name: str | None = None
    hr_distilled_cfg: Number | None = None
    hr_negative_prompt: str | None = None
    hr_prompt: str | None = None
    hr_resize_x: int | None = None
    hr_resize_y: int | None = None
    hr_sampler_name: str | None = None
    hr_scale: Number | None = None
    hr_scheduler: str | None = None
    hr_second_pass_steps: int | None = None
    hr_upscaler: str | None = None
    infotext: str | None = None
    override_settings_restore_afterwards: bool | None = None
    refiner_checkpoint: str | None = None
    refiner_switch_at: Number | None = None
    restore_faces: bool | None = None
    s_churn: Number | None = None
    s_min_uncond: Number | None = None
    s_noise: Number | None = None
    s_tmax: Number | None = None
    s_tmin: Number | None = None
    save_images: bool | None = None
    script_args: list[Any] | None = None
    script_name: str | None = None
    seed_resize_from_h: int | None = None
    seed_resize_from_w: int | None = None
    styles: list[str] | None = None
    subseed: int | None = None
    subseed_strength: Number | None = None
    tiling: bool | None = None

    @property
    def named_sampler(self) -> str:
        """The sampler's name as the client sent it."""
        return self.sampler_name or self.sampler_index or "Euler"

    def request_values(self, idempotency_key: str | None) -> dict[str, Any]:
        """Return the values of a GenerateRequest."""
        self._check_neutral()
        sampler, schedule = sampler_and_schedule(self.named_sampler, self.scheduler)
        prompt, loras = (self.prompt, []) if self.disable_extra_networks else loras_in(self.prompt)
        skipped = self.override_settings.CLIP_stop_at_last_layers or self.clip_skip
        vae = self.override_settings.sd_vae
        return {
            "prompt": prompt,
            "negative_prompt": self.negative_prompt,
            "seed": seed_for(idempotency_key) if self.seed == -1 else self.seed,
            "steps": self.steps,
            "cfg": self.cfg_scale,
            "width": self.width,
            "height": self.height,
            "sampler": sampler,
            "schedule": schedule,
            "count": self.n_iter * self.batch_size,
            # Clients always send eta, whatever the sampler.
            "eta": self.eta if sampler in SAMPLERS_WITH_ETA else None,
            "loras": loras,
            "clip_skip": skipped - 1 if skipped else 0,
            "vae": None if vae in (None, "", "Automatic", "None") else vae,
        }

    def _check_neutral(self) -> None:
        problems = [
            Problem(name, f"{short_repr(value)} is not supported; leave it out", value)
            for name, neutral in _NEUTRAL.items()
            if (value := getattr(self, name, None)) is not None and _without_empty(value) not in neutral
        ]
        settings = self.override_settings.model_extra or {}
        for name, neutral in _NEUTRAL_SETTINGS.items():
            value = settings.get(name)
            if value is not None and value not in neutral:
                rule = f"{short_repr(value)} is not supported; use {neutral[0]!r} or leave it out"
                problems.append(Problem(f"override_settings.{name}", rule, value))
        if problems:
            raise RequestError(problems)


class Img2Img(Txt2Img):
    """An image-to-image request of A1111's clients."""

    init_images: Annotated[list[str], Field(min_length=1, max_length=1)]
    """The start image, as base64 or as a data URL."""
    mask: str | None = None
    """White areas are repainted."""
    mask_blur: BlurRadius | None = None
    """Radius of the mask's soft edge, in pixels of the mask; default: `mask_blur_x` and `mask_blur_y`."""
    mask_blur_x: BlurRadius = 4
    mask_blur_y: BlurRadius = 4
    inpainting_mask_invert: Annotated[int, Field(ge=0, le=1)] = 0
    """1 repaints black areas instead."""
    denoising_strength: float | None = 0.75
    image_cfg_scale: Number | None = None
    include_init_images: bool | None = None
    initial_noise_multiplier: Number | None = None
    inpaint_full_res: bool | int | None = None
    inpaint_full_res_padding: int | None = None
    inpainting_fill: Annotated[int, Field(ge=0, le=3)] | None = None
    latent_mask: str | None = None
    mask_round: bool | None = None
    resize_mode: Annotated[int, Field(ge=0, le=3)] | None = None

    def request_values(self, idempotency_key: str | None) -> dict[str, Any]:
        """Return the values of a GenerateRequest."""
        return {**super().request_values(idempotency_key), "strength": self.denoising_strength}

    @property
    def blur(self) -> tuple[float, float]:
        """Radii of the mask's soft edge: horizontal and vertical."""
        if self.mask_blur is not None:
            return self.mask_blur, self.mask_blur
        return self.mask_blur_x, self.mask_blur_y


def _without_empty(value: Any) -> Any:
    """Drop entries without effect: empty style names and scripts without arguments."""
    if isinstance(value, list):
        return [item for item in value if item != ""]
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if not isinstance(item, dict) or item.get("args")}
    return value


def loras_in(prompt: str) -> tuple[str, list[dict[str, Any]]]:
    """Split a prompt into the text without `<lora:name:strength>`, and the LoRAs."""
    loras = []
    for name, strength, text_strength in _LORA.findall(prompt):
        use: dict[str, Any] = {"name": name, "strength": _number(strength or "1", prompt)}
        if text_strength:
            # A1111 writes the text encoder's strength first.
            use = {**use, "strength": _number(text_strength, prompt), "text_strength": use["strength"]}
        loras.append(use)
    return _LORA.sub("", prompt), loras


def _number(text: str, prompt: str) -> float:
    try:
        return float(text)
    except ValueError:
        rule = f"{short_repr(text)} is not a LoRA's strength; write <lora:name:0.8>"
        raise RequestError([Problem("prompt", rule, prompt)]) from None
