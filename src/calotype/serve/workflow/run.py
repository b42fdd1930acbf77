"""A workflow that a worker runs, as its news say: pictures are kept before anybody hears of them.

Knows nothing of workers or of what comes of the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from calotype.core.errors import CalotypeError
from calotype.serve.ipc.messages import MadeFile, NodeNews
from calotype.serve.queue.generated_image import GeneratedImage
from calotype.serve.scheduler.job_results import ResultRecorder
from calotype.spec.job import Job, JobPicture, NodeFailure, PictureFile, WorkflowReport

Publish = Callable[[NodeNews, bytes | None], None]
RunTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
Spend = Callable[[str, int], None]
"""Counts pictures of a client, or refuses them with a CalotypeError."""


class WorkflowRun:
    """One attempt at a workflow. `tell` hears its news, in order.

    What it saves beyond what was counted when it was accepted is counted by `spend`; what that refuses is
    not kept, and `stop` is to end it.
    """

    def __init__(
        self,
        job: Job,
        outcomes: ResultRecorder,
        tell: Publish,
        run_errand: RunTask,
        spend: Spend,
        stop: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._job, self._outcomes, self._tell, self._run_errand = job, outcomes, tell, run_errand
        self._spend, self._stop = spend, stop
        self._paid = int(job.request.get("pictures", 0))
        self._saved: set[PictureFile] = set()
        self.refused: NodeFailure | None = None
        """The node that saved too much, and why that is so."""
        self.pictures: list[JobPicture] = []
        self._outputs: dict[str, Any] = {}
        self._cached: tuple[str, ...] = ()
        self._executed: list[str] = []
        self._latest: dict[str, NodeNews] = {}
        """The last news of each kind."""
        self._under_way: asyncio.Task[None] | None = None

    def hear(self, news: NodeNews, attachments: list[bytes]) -> None:
        """Take news in; what has pictures, and all that comes after it, once these are on disk."""
        if self._under_way is not None and self._under_way.done():
            self._under_way = None
        if self._under_way is None and not news.files:
            self._note(news, attachments)
        else:
            self._under_way = self._run_errand(self._keep(self._under_way, news, attachments))

    async def settled(self) -> None:
        """Once everything heard is kept and told."""
        if self._under_way is not None:
            await asyncio.wait({self._under_way})

    def report(self, failed: NodeFailure | None = None) -> WorkflowReport:
        return WorkflowReport(
            outputs=self._outputs, cached=self._cached, executed=tuple(self._executed), failed=failed
        )

    def standing(self) -> Iterator[NodeNews]:
        """What somebody has to hear who comes now."""
        for kind in ("started", "cached", "executing", "progressed"):
            if kind in self._latest:
                yield self._latest[kind]

    async def _keep(
        self, before: asyncio.Task[None] | None, news: NodeNews, attachments: list[bytes]
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        if self.refused is not None:
            return
        if news.files:
            try:
                self._count(news.files)
            except CalotypeError as error:
                self.refused = self._refusal(news, error)
                await self._stop()
                return
            pictures = [
                GeneratedImage(data, made.width, made.height, file=made.file)
                for data, made in zip(attachments, news.files, strict=True)
            ]
            kept = await self._outcomes.keep(self._job.id, pictures)
            if kept is None:
                # It has ended meanwhile, because its deadline has passed.
                return
            self.pictures += kept
            attachments = []
        self._note(news, attachments)

    def _count(self, files: Sequence[MadeFile]) -> None:
        # By name: a node that is run again saves the same files again.
        self._saved.update(made.file for made in files)
        over = len(self._saved) - self._paid
        if over > 0:
            self._spend(self._job.client, over)
            self._paid += over

    def _refusal(self, news: NodeNews, error: CalotypeError) -> NodeFailure:
        node = news.node or ""
        rule = f"it was counted as {self._paid} pictures when it was handed in and has {len(self._saved)}"
        return NodeFailure(
            node=node,
            node_class=self._job.request["prompt"].get(node, {}).get("class_type", ""),
            error=type(error).__name__,
            message=f"{rule}: {error}",
            traceback=(),
        )

    def _note(self, news: NodeNews, attachments: list[bytes]) -> None:
        match news.happened:
            case "cached":
                self._cached = news.nodes
            case "executing":
                self._latest.pop("progressed", None)
            case "executed" if news.node is not None:
                self._executed.append(news.node)
                self._latest.pop("executing", None)
                self._latest.pop("progressed", None)
        if news.node is not None and news.ui is not None:
            self._outputs[news.node] = news.ui
        self._latest[news.happened] = news
        self._tell(news, attachments[0] if news.has_preview and attachments else None)
