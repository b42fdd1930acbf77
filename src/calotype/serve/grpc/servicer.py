"""The methods of calotype.proto. Knows nothing of keys, sockets or status codes."""

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
    """Each method as the proto says it."""

    def __init__(self, service: Service, decoder: ImageDecoder) -> None:
        self._service, self._decoder = service, decoder

    async def Generate(self, request: pb.Submission, context: Context) -> pb.Generated:
        """Wait for the pictures; who cancels the call cancels the job."""
        job = await self._begin(request, context)
        job = await wait_for_job(self._service, job)
        pictures = await self._files(done(job))
        return pb.Generated(job=job_message(job), pictures=pictures)

    async def GenerateStream(
        self, request: pb.GenerateStreamRequest, context: Context
    ) -> AsyncIterator[pb.Progress]:
        """Tell of each step; who cancels the call cancels the job."""
        job = await self._begin(request.submission, context)
        first = True
        async with aclosing(stream_job(self._service, job, previews=request.previews)) as told:
            async for item in told:
                job = item.job
                if job.state not in FINAL_STATES:
                    message = job_message(job, with_request=first)
                    yield pb.Progress(job=message, preview=item.preview)
                    first = False
        yield pb.Progress(job=job_message(job), pictures=await self._files(done(job)))

    async def Submit(self, request: pb.Submission, context: Context) -> pb.Job:
        """The job outlives the call, so the call's deadline is not its own."""
        return job_message(
            await submit_shielded(self._service, client_of(), await self._asked(plain(request), context))
        )

    async def Get(self, request: pb.JobId, context: Context) -> pb.Job:
        """A job as it stands."""
        return job_message(await self._service.job(request.id, client=client_of().can_see))

    async def List(self, request: pb.ListRequest, context: Context) -> pb.JobPage:
        """Some jobs, newest first."""
        limit = request.limit if request.HasField("limit") else DEFAULT_PAGE
        if not 1 <= limit <= MAX_PAGE:
            raise RequestError([Problem("limit", f"{limit} is not from 1 to {MAX_PAGE}", limit)])
        jobs = await self._service.jobs(
            client=client_of().can_see,
            state=parse_state(request.state),
            limit=limit,
            before=request.before if request.HasField("before") else None,
        )
        following = cursor_after(jobs) if len(jobs) == limit else None
        return pb.JobPage(jobs=[job_message(job) for job in jobs], next=following)

    async def Cancel(self, request: pb.JobId, context: Context) -> pb.Job:
        """Ask for a stop."""
        return job_message(await self._service.cancel(request.id, client=client_of().can_see))

    async def Picture(self, request: pb.PictureRequest, context: Context) -> pb.PictureFile:
        """One finished picture."""
        job = await self._service.job(request.job_id, client=client_of().can_see)
        if not 0 <= request.index < len(job.pictures):
            raise NotFoundError(
                f"job {job.id} has {len(job.pictures)} pictures, counted from 0; {request.index} is none"
            )
        data = await self._service.picture(job.id, request.index, client=client_of().can_see)
        return pb.PictureFile(png=data, sha256=job.pictures[request.index].sha256)

    async def Models(self, request: pb.ModelsRequest, context: Context) -> pb.LoadedModels:
        """The models that are ready."""
        return models_message(tuple(await self._service.models()))

    async def Load(self, request: pb.ModelName, context: Context) -> pb.LoadedModels:
        """Have a model ready."""
        client_of().require_admin()
        name = check_name("model", request.model)
        return models_message(tuple(await self._service.load_model(name)))

    async def Unload(self, request: pb.ModelName, context: Context) -> pb.LoadedModels:
        """Let a model go."""
        client_of().require_admin()
        name = check_name("model", request.model)
        return models_message(tuple(await self._service.unload_model(name)))

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.DeploymentStatus:
        """The deployment as it stands; process ids for admins only."""
        return status_message(visible_status(client_of(), self._service.status()))

    async def _begin(self, request: pb.Submission, context: Context) -> Job:
        """A job whose deadline is the call's, where that is the earlier one."""
        values = plain(request)
        left_s = context.time_remaining()
        if left_s is not None:
            if left_s <= 0:
                raise TooSlowError("the call's deadline was over before its job could be accepted")
            asked_s = values.get("deadline_s", MAX_DEADLINE_S)
            # A deadline that is wrong by itself stays to be refused.
            values["deadline_s"] = min(left_s, asked_s) if asked_s > 0 else asked_s
        return await submit_shielded(
            self._service, client_of(), await self._asked(values, context), waited_for=True
        )

    async def _asked(self, values: dict[str, Any], context: Context) -> ParsedRequest:
        given = {name: values.pop(name, None) for name in ("image", "mask")}
        asked = parse_submission(values, **given)
        images = ClientImages(self._decoder, _client_of(context))
        for name, data in given.items():
            if data is not None:
                await images.checked(data, name)
        return asked

    async def _files(self, job: Job) -> list[bytes]:
        return [await self._service.picture(job.id, index) for index in range(len(job.pictures))]


def _client_of(context: Context) -> str:
    """A client by its key's name; without keys, by its address without the port."""
    name = client_of().name
    return f"{name}@{context.peer().rpartition(':')[0]}" if name == LOCAL else name
