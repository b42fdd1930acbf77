"""Implements WorkflowService with a deployment and its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from calotype.core.errors import CalotypeError
from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.repository.enqueue import NewJob
from calotype.serve.queue.repository.uploads import Upload
from calotype.serve.scheduler.deployment import Deployment
from calotype.serve.workflow.admission import WorkflowAdmission
from calotype.serve.workflow.service import AcceptedWorkflow
from calotype.spec.job import PictureFile
from calotype.spec.workflow import WorkflowSubmission


class DeploymentWorkflowService:
    """Accepts workflows and stores uploads for them."""

    def __init__(self, deployment: Deployment, queue: JobQueue, admission: WorkflowAdmission) -> None:
        self._deployment, self._queue, self._admission = deployment, queue, admission

    async def submit(self, submission: WorkflowSubmission, *, client: str) -> AcceptedWorkflow:
        """Accept a workflow; it is on disk on return."""
        try:
            return await self._submit(submission, client)
        except CalotypeError as error:
            self._deployment.metrics.refused.labels(type(error).__name__).inc()
            raise

    async def _submit(self, submission: WorkflowSubmission, client: str) -> AcceptedWorkflow:
        # In a thread: admission lists folders, and a graph can be large.
        named = await asyncio.to_thread(self._admission.named, submission.prompt)
        given = await self._given(client, named)
        checked = await asyncio.to_thread(self._admission.checked, submission, given)
        self._admission.check_there(checked, await self._queue.missing(client, checked.inputs))
        new = NewJob(
            kind="workflow",
            client=client,
            model=checked.model,
            request={
                "prompt": submission.prompt,
                "extra_data": submission.extra_data,
                "client_id": submission.client_id,
                "number": submission.number,
                "front": submission.front,
                "outputs": list(checked.validation.outputs),
                "pictures": checked.pictures,
            },
            id=submission.prompt_id,
            number=submission.number,
            front=submission.front,
            priority=submission.priority,
            deadline_s=submission.deadline_s,
            cost=checked.cost,
            inputs=checked.inputs,
        )
        job = await self._deployment.accept(new, (), checked.pictures)
        return AcceptedWorkflow(job, checked.validation.node_errors)

    async def _given(self, client: str, named: Mapping[str, PictureFile]) -> list[PictureFile]:
        """Return those of a graph's images that the client has uploaded; listings may omit some uploads."""
        missing = set(await self._queue.missing(client, named))
        given = [file for called, file in named.items() if called not in missing]
        if missing:
            # Admission will reject the graph; the error suggests the nearest names.
            given += [upload.file for upload in await self._queue.uploads(client)]
        return given

    async def unended(self, *, client: str | None = None) -> int:
        return await self._queue.unended("workflow", client)

    async def object_info(self, *, client: str, name: str | None = None) -> Mapping[str, Any]:
        given = [upload.file for upload in await self._queue.uploads(client)]
        return await asyncio.to_thread(self._admission.described, given, name)

    def num_nodes(self) -> int:
        return len(self._admission.registry)

    def left_out(self) -> Sequence[tuple[str, str]]:
        return [(entry.package, entry.reason) for entry in self._admission.registry.left_out]

    async def model_files(self, folder: str) -> Sequence[str]:
        return await asyncio.to_thread(self._admission.catalogue().files, folder)

    async def upload(
        self, file: PictureFile, data: bytes, *, client: str, overwrite: bool = False
    ) -> PictureFile:
        self._admission.check_given(data)
        return await self._queue.upload(client, file, data, overwrite=overwrite)

    async def uploads(self, *, client: str | None = None) -> Sequence[Upload]:
        return await self._queue.uploads(client)

    async def remove_upload(self, file: PictureFile, *, client: str) -> None:
        await self._queue.remove_upload(client, file)

    async def picture(self, file: PictureFile, *, client: str, others: bool = False) -> bytes:
        return await self._queue.named(file, client, others=others)
