"""`/sdapi/v1` for clients of A1111's web UI. Knows nothing of its settings but what clients cannot miss."""

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
    """The settings that can be read."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)
    sd_model_checkpoint: str | None = None
    """The model of requests that name none."""
    sd_vae: str = AUTOMATIC
    CLIP_stop_at_last_layers: int = 1


class Made(BaseModel):
    """Pictures, as A1111's clients read them."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    images: list[str]
    """PNG files as base64."""
    parameters: dict[str, Any]
    """What was asked."""
    info: str
    """JSON text: what was made, seed by seed."""


class Progress(BaseModel):
    """How far your running job is."""

    progress: float
    eta_relative: float
    state: dict[str, Any]
    current_image: str | None
    textinfo: str | None


class SamplerEntry(BaseModel):
    """A sampler that can be asked for."""

    name: str
    aliases: list[str]
    options: dict[str, str]


class SchedulerEntry(BaseModel):
    """A schedule that can be asked for."""

    name: str
    label: str


class ModelTitle(BaseModel):
    """A model that can be asked for."""

    title: str
    model_name: str
    hash: str | None
    sha256: str | None
    """Of what is loaded."""
    filename: str
    config: str | None = None


BODIES: list[type[BaseModel]] = [Txt2Img, Img2Img, Options]


@router.post("/txt2img", openapi_extra=described(as_json=Txt2Img))
async def txt2img(
    request: Request, reach: AppStateDep, caller: ClientDep, idempotency_key: IdempotencyKey = None
) -> Made:
    """Make pictures of a text.

    Disconnecting cancels them, unless there is an `Idempotency-Key`.
    """
    body = await json_body(request, Txt2Img, reach)
    return await _made(request, reach, caller, body, idempotency_key)


@router.post("/img2img", openapi_extra=described(as_json=Img2Img))
async def img2img(
    request: Request,
    reach: AppStateDep,
    caller: ClientDep,
    images: Images,
    idempotency_key: IdempotencyKey = None,
) -> Made:
    """Make pictures from a picture.

    Disconnecting cancels them, unless there is an `Idempotency-Key`.
    """
    body = await json_body(request, Img2Img, reach)
    image = from_base64(body.init_images[0], "init_images")
    await images.checked(image, "init_images")
    mask = None
    if body.mask is not None:
        change = blurred_mask(body.blur, inverted=body.inpainting_mask_invert == 1)
        mask = await images.changed(from_base64(body.mask, "mask"), "mask", change)
    return await _made(request, reach, caller, body, idempotency_key, image, mask)


@router.get("/progress")
async def progress(
    reach: AppStateDep,
    caller: ClientDep,
    skip_current_image: Annotated[bool, Query(description="Leave the preview out.")] = False,
) -> Progress:
    """How far your oldest running job is, and what it looked like last; all zero where none runs.

    Previews are made from the first asking on, until there has been none for some seconds.
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
        # Somebody may have had it forgotten since it was listed.
        with suppress(NotFoundError):
            await reach.service.cancel(job.id)
    return {}


@router.get("/samplers")
async def samplers() -> list[SamplerEntry]:
    """What `sampler_name` may be."""
    return [
        SamplerEntry(name=name, aliases=[ours], options={"scheduler": automatic_scheduler(ours)})
        for name, ours in SAMPLER_NAMES.items()
    ]


@router.get("/schedulers")
async def schedulers() -> list[SchedulerEntry]:
    """What `scheduler` may be."""
    names = {AUTOMATIC.lower(): AUTOMATIC, **SCHEDULER_NAMES}
    return [SchedulerEntry(name=name, label=label) for name, label in names.items()]


@router.get("/sd-models")
async def sd_models(reach: AppStateDep, surroundings: SystemInfoDep) -> list[ModelTitle]:
    """The models that can be asked for; those that are loaded come first and have their hashes."""
    hashes = {model.name: model.sha256 for model in await reach.service.models()}
    files = await surroundings.model_files()
    names = dict.fromkeys([*hashes, *(one["name"] for one in files if one["folder"] == "checkpoints")])
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
    """The settings that hold for requests which say nothing else."""
    loaded = await reach.service.models()
    return Options(sd_model_checkpoint=loaded[0].name if loaded else None)


@router.post("/options", openapi_extra=described(as_json=Options))
async def set_options(request: Request, reach: AppStateDep) -> dict[str, Any]:
    """Taken where nothing would change: settings belong to requests, as `override_settings`."""
    now = (await options(reach)).model_dump()
    asked = (await json_body(request, Options, reach)).model_dump(exclude_unset=True)
    found = [
        Problem(name, f"stays {now[name]!r}; send it with each request, in `override_settings`", value)
        for name, value in asked.items()
        if value != now[name]
    ]
    if found:
        raise RequestError(found)
    return {}


async def _made(
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
    # Pictures that were sent are not sent back.
    parameters = body.model_dump(mode="json", exclude={"init_images", "mask"})
    return Made(images=images, parameters=parameters, info=json.dumps(_info(body, job)))


def _info(body: Txt2Img, job: Job) -> dict[str, Any]:
    seeds = [picture.seed for picture in job.pictures]
    width, height = (job.pictures[0].width, job.pictures[0].height) if job.pictures else (0, 0)
    sampler = body.named_sampler
    ours, schedule = sampler_and_schedule(sampler, body.scheduler)
    # Without the schedule that old clients name in one with the sampler: the next entry says it.
    known = next(name for name, value in SAMPLER_NAMES.items() if value == ours)
    told = (
        f"{body.prompt}\nNegative prompt: {body.negative_prompt}\nSteps: {body.steps}, Sampler: {known}, "
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
        "infotexts": [f"{told}{seed}" for seed in seeds],
        "job_timestamp": time.strftime("%Y%m%d%H%M%S", time.gmtime(job.created_at)),
        "job": job.id,
    }


def _progress(job: Job | None, preview: bytes | None) -> Progress:
    done_share, left_s = 0.0, 0.0
    if job is not None and job.steps_total:
        done_share = job.steps_done / job.steps_total
        if job.started_at is not None and done_share:
            left_s = max(0.0, (time.time() - job.started_at) * (1 / done_share - 1))
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
    return Progress(progress=done_share, eta_relative=left_s, state=state, current_image=image, textinfo=None)
