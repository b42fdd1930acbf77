"""Implements the methods of calotype.proto."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.core.paths import check_name
from calotype.serve.auth import LOCAL
from calotype.serve.decoding.decoder import ClientImages, ImageDecoder
from calotype.serve.disclosure import visible_status
from calotype.serve.errors import TooSlowError, done
from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.grpc.calotype_pb2_grpc import CalotypeServicer
from calotype.serve.grpc.converters import job_message, models_message, parse_state, plain, status_message
from calotype.serve.grpc.interceptor import Context, client_of
from calotype.serve.job_waiting import stream_job, submit_shielded, wait_for_job
from calotype.serve.pagination import cursor_after
from calotype.serve.request_parsing import ParsedRequest, parse_submission
from calotype.serve.service import Service
from calotype.spec.job import FINAL_STATES, Job

MAX_PAGE = 200
DEFAULT_PAGE = 50
MAX_DEADLINE_S = 7 * 86400.0


class Servicer(CalotypeServicer):
    """The methods as documented in the proto file."""

    def __init__(self, service: Service, decoder: ImageDecoder) -> None:
        self._service, self._decoder = service, decoder

    async def Generate(self, request: pb.Submission, context: Context) -> pb.Generated:
        """Wait for the images; cancelling the call cancels the job."""
        job = await self._begin(request, context)
        job = await wait_for_job(self._service, job)
        pictures = await self._files(done(job))
        return pb.Generated(job=job_message(job), pictures=pictures)

    async def GenerateStream(
        self, request: pb.GenerateStreamRequest, context: Context
    ) -> AsyncIterator[pb.Progress]:
        """Report each step; cancelling the call cancels the job."""
        job = await self._begin(request.submission, context)
        first = True
        async with aclosing(stream_job(self._service, job, previews=request.previews)) as updates:
            async for item in updates:
                job = item.job
                if job.state not in FINAL_STATES:
                    message = job_message(job, with_request=first)
                    yield pb.Progress(job=message, preview=item.preview)
                    first = False
        yield pb.Progress(job=job_message(job), pictures=await self._files(done(job)))

    async def Submit(self, request: pb.Submission, context: Context) -> pb.Job:
        """Submit a job; it outlives the call, so the call's deadline does not apply to it."""
        return job_message(
            await submit_shielded(self._service, client_of(), await self._parse(plain(request), context))
        )

    async def Get(self, request: pb.JobId, context: Context) -> pb.Job:
        """Return a job in its current state."""
        return job_message(await self._service.job(request.id, client=client_of().can_see))

    async def List(self, request: pb.ListRequest, context: Context) -> pb.JobPage:
        """List jobs, newest first."""
        limit = request.limit if request.HasField("limit") else DEFAULT_PAGE
        if not 1 <= limit <= MAX_PAGE:
            raise RequestError([Problem("limit", f"{limit} is not from 1 to {MAX_PAGE}", limit)])
        jobs = await self._service.jobs(
            client=client_of().can_see,
            state=parse_state(request.state),
            limit=limit,
            before=request.before if request.HasField("before") else None,
        )
        next_cursor = cursor_after(jobs) if len(jobs) == limit else None
        return pb.JobPage(jobs=[job_message(job) for job in jobs], next=next_cursor)

    async def Cancel(self, request: pb.JobId, context: Context) -> pb.Job:
        """Cancel a job."""
        return job_message(await self._service.cancel(request.id, client=client_of().can_see))

    async def Picture(self, request: pb.PictureRequest, context: Context) -> pb.PictureFile:
        """Return one finished image."""
        job = await self._service.job(request.job_id, client=client_of().can_see)
        if not 0 <= request.index < len(job.pictures):
            raise NotFoundError(
                f"job {job.id} has {len(job.pictures)} images, counted from 0; "
                f"there is no image {request.index}"
            )
        data = await self._service.picture(job.id, request.index, client=client_of().can_see)
        return pb.PictureFile(png=data, sha256=job.pictures[request.index].sha256)

    async def Models(self, request: pb.ModelsRequest, context: Context) -> pb.LoadedModels:
        """List the loaded models."""
        return models_message(tuple(await self._service.models()))

    async def Load(self, request: pb.ModelName, context: Context) -> pb.LoadedModels:
        """Load a model."""
        client_of().require_admin()
        name = check_name("model", request.model)
        return models_message(tuple(await self._service.load_model(name)))

    async def Unload(self, request: pb.ModelName, context: Context) -> pb.LoadedModels:
        """Unload a model."""
        client_of().require_admin()
        name = check_name("model", request.model)
        return models_message(tuple(await self._service.unload_model(name)))

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.DeploymentStatus:
        """Return the deployment's status; process ids for admins only."""
        return status_message(visible_status(client_of(), self._service.status()))

    async def _begin(self, request: pb.Submission, context: Context) -> Job:
        """Submit a job whose deadline is no later than the call's."""
        values = plain(request)
        left_s = context.time_remaining()
        if left_s is not None:
            if left_s <= 0:
                raise TooSlowError("the call's deadline passed before the job was accepted; allow more time")
            deadline_s = values.get("deadline_s", MAX_DEADLINE_S)
            # Keep an invalid deadline, so that validation rejects it.
            values["deadline_s"] = min(left_s, deadline_s) if deadline_s > 0 else deadline_s
        return await submit_shielded(
            self._service, client_of(), await self._parse(values, context), waited_for=True
        )

    async def _parse(self, values: dict[str, Any], context: Context) -> ParsedRequest:
        image_data = {name: values.pop(name, None) for name in ("image", "mask")}
        parsed = parse_submission(values, **image_data)
        images = ClientImages(self._decoder, _client_of(context))
        for name, data in image_data.items():
            if data is not None:
                await images.checked(data, name)
        return parsed

    async def _files(self, job: Job) -> list[bytes]:
        return [await self._service.picture(job.id, index) for index in range(len(job.pictures))]


def _client_of(context: Context) -> str:
    """Return the name of the client's key; without keys, its address without the port."""
    name = client_of().name
    return f"{name}@{context.peer().rpartition(':')[0]}" if name == LOCAL else name
