"""A workflow that a worker runs, as its news say: pictures are kept before anybody hears of them.

Knows nothing of workers or of what comes of the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from calotype.serve.deployment.outcomes import Outcomes
from calotype.serve.messages import NodeNews
from calotype.serve.queue.made import MadePicture
from calotype.spec.job import JobPicture, NodeFailure, WorkflowReport

Tell = Callable[[NodeNews, bytes | None], None]
RunErrand = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class WorkflowRun:
    """One attempt at a workflow. `tell` hears its news, in order."""

    def __init__(self, job_id: str, outcomes: Outcomes, tell: Tell, run_errand: RunErrand) -> None:
        self._job_id, self._outcomes, self._tell, self._run_errand = job_id, outcomes, tell, run_errand
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
        if news.files:
            pictures = [
                MadePicture(data, made.width, made.height, file=made.file)
                for data, made in zip(attachments, news.files, strict=True)
            ]
            kept = await self._outcomes.keep(self._job_id, pictures)
            if kept is None:
                # It has ended meanwhile, because its deadline has passed.
                return
            self.pictures += kept
            attachments = []
        self._note(news, attachments)

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
