"""Validates a job before it is accepted: the model, the limits, memory and input images.

Loads no torch: a function passed in estimates how much memory a request takes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isqrt

from PIL import Image

from calotype.core.errors import DoesNotFitError, NotFoundError, Problem, RequestError, did_you_mean
from calotype.engine.image_inputs import IN_MEMORY
from calotype.imaging.image_io import READABLE
from calotype.serve.ipc.messages import LoadedModel
from calotype.serve.queue.blob_store import blob_name
from calotype.serve.scheduler.settings import DeploymentSettings, RequestLimits
from calotype.serve.service import WorkerStatus
from calotype.spec.generate_request import GenerateRequest

DEFAULT_SIDE = 512
"""Assumed where a request leaves a side to the model: no model here has a much smaller default."""

FindModel = Callable[[str], None]
"""Raises NotFoundError, or another model error, if there is no such model to load."""
Fits = Callable[[GenerateRequest, LoadedModel, WorkerStatus], None]
"""Raises DoesNotFitError if a worker has too little memory for the request even when idle."""


class Admission:
    """Decides what may be queued."""

    def __init__(
        self, settings: DeploymentSettings, find_model: FindModel | None = None, fits: Fits | None = None
    ) -> None:
        self._settings, self._find_model, self._fits = settings, find_model, fits or picture_fits

    def of(self, settings: DeploymentSettings) -> Admission:
        """The same checks with other settings."""
        return Admission(settings, self._find_model, self._fits)

    def model_of(self, wanted: str | None, loaded: Iterable[LoadedModel]) -> str:
        """The name of the requested model; raises if no worker has it or can load it."""
        if wanted is None:
            return self._settings.models[0]
        names = {*self._settings.models, *(model.name for model in loaded)}
        if wanted in names or any(wanted == model.sha256 for model in loaded):
            return wanted
        if self._find_model is None:
            raise NotFoundError(f"no model {wanted[:80]!r} here; {did_you_mean(wanted[:80], names)}")
        self._find_model(wanted)
        return wanted

    def checked(self, request: GenerateRequest, given: dict[str, bytes]) -> GenerateRequest:
        """The request with the hashes of its input images; raises RequestError with all problems."""
        names = {field: blob_name(data) for field, data in given.items()}
        problems = [
            *_over_limits(request, self._settings.limits),
            *_bad_pictures(given, self._settings.limits),
            *_other_pictures(request, names),
        ]
        if problems:
            raise RequestError(problems)
        missing = [field for field in names if getattr(request, field) is None]
        if not missing:
            return request
        return request.with_changes(
            **{field: {"path": IN_MEMORY, "sha256": names[field]} for field in missing}
        )

    def check_memory(self, request: GenerateRequest, model: str, workers: Sequence[WorkerStatus]) -> None:
        """Raise DoesNotFitError if no worker that has the model has enough memory."""
        refusal: DoesNotFitError | None = None
        for worker in workers:
            for loaded in worker.models:
                if model in (loaded.name, loaded.sha256):
                    try:
                        self._fits(request, loaded, worker)
                    except DoesNotFitError as error:
                        refusal = error
                    else:
                        return
        if refusal is not None:
            raise refusal


def picture_fits(request: GenerateRequest, model: LoadedModel, worker: WorkerStatus) -> None:
    """Check the limit that the worker reported for the model; sizes left to the model are not checked."""
    if request.width is None or request.height is None or model.max_pixels is None:
        return
    pixels = request.width * request.height
    if pixels > model.max_pixels:
        side = isqrt(model.max_pixels) // 8 * 8
        raise DoesNotFitError(
            f"{request.width}×{request.height} is {pixels} pixels; worker {worker.name} with {model.name!r} "
            f"has memory for {model.max_pixels} in one image; ask for {side}×{side} or less"
        )


def _over_limits(request: GenerateRequest, limits: RequestLimits) -> Iterator[Problem]:
    width, height = request.width or DEFAULT_SIDE, request.height or DEFAULT_SIDE
    if width * height > limits.max_pixels:
        rule = f"{width}×{height} is {width * height} pixels, the limit here is {limits.max_pixels}"
        yield Problem("request.width", f"{rule}; make it smaller", request.width)
    if request.count > limits.max_count:
        rule = f"{request.count} images, the limit of one job here is {limits.max_count}"
        yield Problem("request.count", f"{rule}; send several jobs", request.count)
    if request.steps > limits.max_steps:
        rule = f"{request.steps} steps, the limit here is {limits.max_steps}"
        yield Problem("request.steps", rule, request.steps)


def _bad_pictures(given: dict[str, bytes], limits: RequestLimits) -> Iterator[Problem]:
    """Check file headers only; the code that decodes pixels handles damaged files itself."""
    for field, data in given.items():
        if len(data) > limits.max_given_bytes:
            yield Problem(field, f"is {len(data)} bytes, the limit here is {limits.max_given_bytes}")
            continue
        try:
            width, height = _size_of(data)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            yield Problem(field, f"is too large, the limit here is {limits.max_given_pixels} pixels: {error}")
            continue
        # Damaged files make Pillow raise nearly anything.
        except Exception:
            yield Problem(field, f"is not a {', '.join(READABLE)} that can be read")
            continue
        if width * height > limits.max_given_pixels:
            rule = f"is {width}×{height}, the limit here is {limits.max_given_pixels} pixels; scale it down"
            yield Problem(field, rule)


def _size_of(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data), formats=READABLE) as image:
        return image.size


def _other_pictures(request: GenerateRequest, names: dict[str, str]) -> Iterator[Problem]:
    """A request may name the images sent with it, and no files of the server."""
    for field in ("image", "mask"):
        named = getattr(request, field)
        if named is not None and names.get(field) != named.sha256:
            rule = "names another image than was sent with the request; send the image itself"
            yield Problem(f"request.{field}", rule)
