"""Tracks a running workflow from its worker's events; stores images before it publishes them."""

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
"""Charges images to a client's quota, or raises a CalotypeError."""


class WorkflowRun:
    """One attempt at a workflow. It passes events to `tell`, in order.

    `spend` charges images beyond the number counted at admission. If it raises, the run stores none of them
    and calls `stop`.
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
        self._job, self._outcomes, self._publish, self._run_task = job, outcomes, tell, run_errand
        self._spend, self._stop = spend, stop
        self._charged = int(job.request.get("pictures", 0))
        self._saved: set[PictureFile] = set()
        self.refused: NodeFailure | None = None
        """The node that saved too many images, and the reason."""
        self.pictures: list[JobPicture] = []
        self._outputs: dict[str, Any] = {}
        self._cached: tuple[str, ...] = ()
        self._executed: list[str] = []
        self._latest: dict[str, NodeNews] = {}
        """The latest event of each kind."""
        self._pending: asyncio.Task[None] | None = None

    def hear(self, news: NodeNews, attachments: list[bytes]) -> None:
        """Handle an event; one with images, and all later ones, only after these are on disk."""
        if self._pending is not None and self._pending.done():
            self._pending = None
        if self._pending is None and not news.files:
            self._apply(news, attachments)
        else:
            self._pending = self._run_task(self._store(self._pending, news, attachments))

    async def settled(self) -> None:
        """Wait until all events are stored and published."""
        if self._pending is not None:
            await asyncio.wait({self._pending})

    def report(self, failed: NodeFailure | None = None) -> WorkflowReport:
        return WorkflowReport(
            outputs=self._outputs, cached=self._cached, executed=tuple(self._executed), failed=failed
        )

    def standing(self) -> Iterator[NodeNews]:
        """Yield the events that a new subscriber needs."""
        for kind in ("started", "cached", "executing", "progressed"):
            if kind in self._latest:
                yield self._latest[kind]

    async def _store(
        self, previous: asyncio.Task[None] | None, news: NodeNews, attachments: list[bytes]
    ) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        if self.refused is not None:
            return
        if news.files:
            try:
                self._charge(news.files)
            except CalotypeError as error:
                self.refused = self._refusal(news, error)
                await self._stop()
                return
            pictures = [
                GeneratedImage(data, made.width, made.height, file=made.file)
                for data, made in zip(attachments, news.files, strict=True)
            ]
            stored = await self._outcomes.keep(self._job.id, pictures)
            if stored is None:
                # The job has ended meanwhile, because its deadline has passed.
                return
            self.pictures += stored
            attachments = []
        self._apply(news, attachments)

    def _charge(self, files: Sequence[MadeFile]) -> None:
        # Count names: a node that runs again saves the same files again.
        self._saved.update(made.file for made in files)
        over = len(self._saved) - self._charged
        if over > 0:
            self._spend(self._job.client, over)
            self._charged += over

    def _refusal(self, news: NodeNews, error: CalotypeError) -> NodeFailure:
        node = news.node or ""
        rule = f"{self._charged} images were counted at admission and {len(self._saved)} are saved"
        return NodeFailure(
            node=node,
            node_class=self._job.request["prompt"].get(node, {}).get("class_type", ""),
            error=type(error).__name__,
            message=f"{rule}: {error}",
            traceback=(),
        )

    def _apply(self, news: NodeNews, attachments: list[bytes]) -> None:
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
        self._publish(news, attachments[0] if news.has_preview and attachments else None)
