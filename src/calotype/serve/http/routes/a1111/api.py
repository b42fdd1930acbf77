"""`/sdapi/v1`: routes for clients of A1111's web UI, with the settings that these clients require."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.serve.auth import Client
from calotype.serve.decoding.operations import blurred_mask
from calotype.serve.errors import done
from calotype.serve.http.dependencies import (
    AppState,
    AppStateDep,
    ClientDep,
    IdempotencyKey,
    Images,
    SystemInfoDep,
)
from calotype.serve.http.disconnect import wait_until_disconnect
from calotype.serve.http.request_body import as_base64, described, from_base64, json_body
from calotype.serve.http.routes.a1111.sampler_names import (
    AUTOMATIC,
    SAMPLER_NAMES,
    SCHEDULER_NAMES,
    automatic_scheduler,
    sampler_and_schedule,
    scheduler_label,
)
from calotype.serve.http.routes.a1111.schemas import NAMES, Img2Img, Txt2Img
from calotype.serve.job_waiting import submit_shielded
from calotype.serve.request_parsing import parse_submission, rename_error_fields
from calotype.spec.job import Job

router = APIRouter(prefix="/sdapi/v1", tags=["A1111"])


class Options(BaseModel):
    """The readable settings."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)
    sd_model_checkpoint: str | None = None
    """The default model."""
    sd_vae: str = AUTOMATIC
    CLIP_stop_at_last_layers: int = 1


class Made(BaseModel):
    """Generated images, as A1111's clients read them."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    images: list[str]
    """PNG files as base64."""
    parameters: dict[str, Any]
    """The request."""
    info: str
    """JSON text that describes the images, seed by seed."""


class Progress(BaseModel):
    """The progress of your running job."""

    progress: float
    eta_relative: float
    state: dict[str, Any]
    current_image: str | None
    textinfo: str | None


class SamplerEntry(BaseModel):
    """An available sampler."""

    name: str
    aliases: list[str]
    options: dict[str, str]


class SchedulerEntry(BaseModel):
    """An available schedule."""

    name: str
    label: str


class ModelTitle(BaseModel):
    """An available model."""

    title: str
    model_name: str
    hash: str | None
    sha256: str | None
    """The hash of a loaded model."""
    filename: str
    config: str | None = None


BODIES: list[type[BaseModel]] = [Txt2Img, Img2Img, Options]


@router.post("/txt2img", openapi_extra=described(as_json=Txt2Img))
async def txt2img(
    request: Request, reach: AppStateDep, caller: ClientDep, idempotency_key: IdempotencyKey = None
) -> Made:
    """Generate images from a prompt.

    A disconnect cancels the job, unless the client sent an `Idempotency-Key`.
    """
    body = await json_body(request, Txt2Img, reach)
    return await _generate(request, reach, caller, body, idempotency_key)


@router.post("/img2img", openapi_extra=described(as_json=Img2Img))
async def img2img(
    request: Request,
    reach: AppStateDep,
    caller: ClientDep,
    images: Images,
    idempotency_key: IdempotencyKey = None,
) -> Made:
    """Generate images from an image.

    A disconnect cancels the job, unless the client sent an `Idempotency-Key`.
    """
    body = await json_body(request, Img2Img, reach)
    image = from_base64(body.init_images[0], "init_images")
    await images.checked(image, "init_images")
    mask = None
    if body.mask is not None:
        change = blurred_mask(body.blur, inverted=body.inpainting_mask_invert == 1)
        mask = await images.changed(from_base64(body.mask, "mask"), "mask", change)
    return await _generate(request, reach, caller, body, idempotency_key, image, mask)


@router.get("/progress")
async def progress(
    reach: AppStateDep,
    caller: ClientDep,
    skip_current_image: Annotated[bool, Query(description="Omit the preview.")] = False,
) -> Progress:
    """Return the progress of your oldest running job and its latest preview; all zero if none runs.

    The worker makes previews from the first call until no call has come for some seconds.
    """
    running = await reach.service.jobs(client=caller.can_see, state="running", kind="pictures", limit=200)
    if not running:
        return _progress(None, None)
    preview = None if skip_current_image else reach.service.poll_preview(running[-1].id)
    return _progress(running[-1], preview)


@router.post("/interrupt")
async def interrupt(reach: AppStateDep, caller: ClientDep) -> dict[str, Any]:
    """Cancel your running jobs."""
    for job in await reach.service.jobs(client=caller.name, state="running", kind="pictures", limit=200):
        # Another request may have deleted the job after the listing.
        with suppress(NotFoundError):
            await reach.service.cancel(job.id)
    return {}


@router.get("/samplers")
async def samplers() -> list[SamplerEntry]:
    """List the values of `sampler_name`."""
    return [
        SamplerEntry(name=name, aliases=[ours], options={"scheduler": automatic_scheduler(ours)})
        for name, ours in SAMPLER_NAMES.items()
    ]


@router.get("/schedulers")
async def schedulers() -> list[SchedulerEntry]:
    """List the values of `scheduler`."""
    names = {AUTOMATIC.lower(): AUTOMATIC, **SCHEDULER_NAMES}
    return [SchedulerEntry(name=name, label=label) for name, label in names.items()]


@router.get("/sd-models")
async def sd_models(reach: AppStateDep, surroundings: SystemInfoDep) -> list[ModelTitle]:
    """List the available models; loaded ones come first and have a hash."""
    hashes = {model.name: model.sha256 for model in await reach.service.models()}
    files = await surroundings.model_files()
    names = dict.fromkeys([*hashes, *(file["name"] for file in files if file["folder"] == "checkpoints")])
    return [
        ModelTitle(
            title=name,
            model_name=name,
            hash=hashes[name][:10] if name in hashes else None,
            sha256=hashes.get(name),
            filename=name,
        )
        for name in names
    ]


@router.get("/options")
async def options(reach: AppStateDep) -> Options:
    """Return the default settings."""
    loaded = await reach.service.models()
    return Options(sd_model_checkpoint=loaded[0].name if loaded else None)


@router.post("/options", openapi_extra=described(as_json=Options))
async def set_options(request: Request, reach: AppStateDep) -> dict[str, Any]:
    """Accept settings that change nothing: each request carries its own in `override_settings`."""
    current = (await options(reach)).model_dump()
    requested = (await json_body(request, Options, reach)).model_dump(exclude_unset=True)
    problems = [
        Problem(name, f"stays {current[name]!r}; send it with each request, in `override_settings`", value)
        for name, value in requested.items()
        if value != current[name]
    ]
    if problems:
        raise RequestError(problems)
    return {}


async def _generate(
    request: Request,
    reach: AppState,
    caller: Client,
    body: Txt2Img,
    key: str | None,
    image: bytes | None = None,
    mask: bytes | None = None,
) -> Made:
    model = body.override_settings.sd_model_checkpoint
    values = {"request": body.request_values(key), "model": model, "idempotency_key": key}
    with rename_error_fields(NAMES):
        job = await submit_shielded(reach.service, caller, parse_submission(values, image, mask))
    job = done(await wait_until_disconnect(request, reach.service, job))
    images = []
    if body.send_images:
        for index in range(len(job.pictures)):
            images.append(as_base64(await reach.service.picture(job.id, index)))  # noqa: PERF401 - awaits
    # Do not send the client's own images back.
    parameters = body.model_dump(mode="json", exclude={"init_images", "mask"})
    return Made(images=images, parameters=parameters, info=json.dumps(_info(body, job)))


def _info(body: Txt2Img, job: Job) -> dict[str, Any]:
    seeds = [picture.seed for picture in job.pictures]
    width, height = (job.pictures[0].width, job.pictures[0].height) if job.pictures else (0, 0)
    sampler = body.named_sampler
    ours, schedule = sampler_and_schedule(sampler, body.scheduler)
    # Drop the schedule that old clients append to the sampler: the next entry names it.
    label = next(name for name, value in SAMPLER_NAMES.items() if value == ours)
    infotext = (
        f"{body.prompt}\nNegative prompt: {body.negative_prompt}\nSteps: {body.steps}, Sampler: {label}, "
        f"Schedule type: {scheduler_label(schedule)}, CFG scale: {body.cfg_scale}, "
        f"Size: {width}x{height}, Model: {job.model}, Seed: "
    )
    return {
        "prompt": body.prompt,
        "all_prompts": [body.prompt] * len(seeds),
        "negative_prompt": body.negative_prompt,
        "all_negative_prompts": [body.negative_prompt] * len(seeds),
        "seed": seeds[0] if seeds else body.seed,
        "all_seeds": seeds,
        "width": width,
        "height": height,
        "sampler_name": sampler,
        "cfg_scale": body.cfg_scale,
        "steps": body.steps,
        "batch_size": body.batch_size,
        "sd_model_name": job.model,
        "denoising_strength": body.denoising_strength,
        "index_of_first_image": 0,
        "infotexts": [f"{infotext}{seed}" for seed in seeds],
        "job_timestamp": time.strftime("%Y%m%d%H%M%S", time.gmtime(job.created_at)),
        "job": job.id,
    }


def _progress(job: Job | None, preview: bytes | None) -> Progress:
    fraction_done, left_s = 0.0, 0.0
    if job is not None and job.steps_total:
        fraction_done = job.steps_done / job.steps_total
        if job.started_at is not None and fraction_done:
            left_s = max(0.0, (time.time() - job.started_at) * (1 / fraction_done - 1))
    state = {
        "skipped": False,
        "interrupted": False,
        "job": job.id if job else "",
        "job_count": 1 if job else 0,
        "job_no": 0,
        "sampling_step": job.steps_done if job else 0,
        "sampling_steps": job.steps_total if job else 0,
    }
    image = as_base64(preview) if preview else None
    return Progress(
        progress=fraction_done, eta_relative=left_s, state=state, current_image=image, textinfo=None
    )
