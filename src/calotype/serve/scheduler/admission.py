"""What is looked at before a job is accepted: the model, the limits, memory, given pictures.

Knows nothing of the queue, and loads no torch: how much memory a request takes, a function given to it says.
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
"""Stands for a side that is left to the model: no model here has a smaller one by far."""

FindModel = Callable[[str], None]
"""Raises NotFoundError, or another error of a model's, if there is no such model to load."""
Fits = Callable[[GenerateRequest, LoadedModel, WorkerStatus], None]
"""Raises DoesNotFitError if a worker could not do the request even with nothing else to do."""


class Admission:
    """Decides what may be queued."""

    def __init__(
        self, settings: DeploymentSettings, find_model: FindModel | None = None, fits: Fits | None = None
    ) -> None:
        self._settings, self._find_model, self._fits = settings, find_model, fits or picture_fits

    def of(self, settings: DeploymentSettings) -> Admission:
        """The same for other settings."""
        return Admission(settings, self._find_model, self._fits)

    def model_of(self, wanted: str | None, loaded: Iterable[LoadedModel]) -> str:
        """The name of the model that is meant; refused if nobody has it or could load it."""
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
        """The request, which says what was given with it; refused if it is over limits, with all of them."""
        names = {place: blob_name(data) for place, data in given.items()}
        problems = [
            *_over_limits(request, self._settings.limits),
            *_bad_pictures(given, self._settings.limits),
            *_other_pictures(request, names),
        ]
        if problems:
            raise RequestError(problems)
        unsaid = [place for place in names if getattr(request, place) is None]
        if not unsaid:
            return request
        return request.with_changes(
            **{place: {"path": IN_MEMORY, "sha256": names[place]} for place in unsaid}
        )

    def check_memory(self, request: GenerateRequest, model: str, workers: Sequence[WorkerStatus]) -> None:
        """Refuse what no worker that has the model has the memory for."""
        refusal: DoesNotFitError | None = None
        for worker in workers:
            for held in worker.models:
                if model in (held.name, held.sha256):
                    try:
                        self._fits(request, held, worker)
                    except DoesNotFitError as error:
                        refusal = error
                    else:
                        return
        if refusal is not None:
            raise refusal


def picture_fits(request: GenerateRequest, model: LoadedModel, worker: WorkerStatus) -> None:
    """By what the worker said when it loaded the model; what is left to the model is its to judge."""
    if request.width is None or request.height is None or model.max_pixels is None:
        return
    pixels = request.width * request.height
    if pixels > model.max_pixels:
        side = isqrt(model.max_pixels) // 8 * 8
        raise DoesNotFitError(
            f"{request.width}×{request.height} is {pixels} pixels; worker {worker.name} with {model.name!r} "
            f"has memory for {model.max_pixels} of one picture at most; ask for {side}×{side} or less"
        )


def _over_limits(request: GenerateRequest, limits: RequestLimits) -> Iterator[Problem]:
    width, height = request.width or DEFAULT_SIDE, request.height or DEFAULT_SIDE
    if width * height > limits.max_pixels:
        rule = f"{width}×{height} is {width * height} pixels, the limit here is {limits.max_pixels}"
        yield Problem("request.width", f"{rule}; make it smaller", request.width)
    if request.count > limits.max_count:
        rule = f"{request.count} pictures, the limit of one job here is {limits.max_count}"
        yield Problem("request.count", f"{rule}; send several jobs", request.count)
    if request.steps > limits.max_steps:
        rule = f"{request.steps} steps, the limit here is {limits.max_steps}"
        yield Problem("request.steps", rule, request.steps)


def _bad_pictures(given: dict[str, bytes], limits: RequestLimits) -> Iterator[Problem]:
    """By their headers: whoever reads the pixels is ready for anything."""
    for place, data in given.items():
        if len(data) > limits.max_given_bytes:
            yield Problem(place, f"is {len(data)} bytes, the limit here is {limits.max_given_bytes}")
            continue
        try:
            width, height = _size_of(data)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            yield Problem(place, f"is too large, the limit here is {limits.max_given_pixels} pixels: {error}")
            continue
        # Damaged files make Pillow raise nearly anything.
        except Exception:
            yield Problem(place, f"is not a {', '.join(READABLE)} that can be read")
            continue
        if width * height > limits.max_given_pixels:
            rule = f"is {width}×{height}, the limit here is {limits.max_given_pixels} pixels; scale it down"
            yield Problem(place, rule)


def _size_of(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data), formats=READABLE) as image:
        return image.size


def _other_pictures(request: GenerateRequest, names: dict[str, str]) -> Iterator[Problem]:
    """A request may name the pictures that came with it, and no file of the server's."""
    for place in ("image", "mask"):
        said = getattr(request, place)
        if said is not None and names.get(place) != said.sha256:
            rule = "names another picture than came with the request; send the picture itself"
            yield Problem(f"request.{place}", rule)
