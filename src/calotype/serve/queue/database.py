"""One thread that owns a SQLite connection, so that no event loop waits for a disk.

Calls that wait together are committed together: the disk is asked to keep things once for all of them. Knows
nothing of what the calls do. One must do nothing but read and write the database: it may be run again.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MOST_TOGETHER = 256


@dataclass(eq=False)
class _Call(Generic[T]):
    work: Work[T]
    durable: bool = True
    answer: Future[T] = field(default_factory=Future)

    def succeed_or_fail(self, outcome: T | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class Database(Generic[S]):
    """A connection, and the only thread that uses it."""

    def __init__(self, connection: sqlite3.Connection, look: Work[S]) -> None:
        self._connection, self._look = connection, look
        self.seen = look(connection)
        """What `look` answers of all that is committed; anew before anybody is told that something is."""
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="job-queue", daemon=True)
        self._thread.start()

    async def call(self, work: Work[T], *, durable: bool = True) -> T:
        """Run `work` in a transaction; when this returns, it is committed.

        What is not `durable` outlives this process, but a loss of power only if something durable came later.
        """
        call = _Call(work, durable)
        self._calls.put(call)
        return await asyncio.wrap_future(call.answer)

    def close(self) -> None:
        """Finish what was asked, and close."""
        self._calls.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while True:
            waiting, last = self._waiting()
            group = [call for call in waiting if call.answer.set_running_or_notify_cancel()]
            try:
                self._run(group)
            # A mistake of ours; nobody must wait for ever because of it.
            except BaseException as error:
                for call in group:
                    if not call.answer.done():
                        call.answer.set_exception(error)
            if last:
                self._connection.close()
                return

    def _waiting(self) -> tuple[list[_Call[Any]], bool]:
        """All calls that wait now, at least one; and whether there will be no more."""
        group: list[_Call[Any]] = []
        call = self._calls.get()
        while call is not None:
            group.append(call)
            if len(group) == MOST_TOGETHER:
                return group, False
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _run(self, group: list[_Call[Any]]) -> None:
        try:
            outcomes = self._together(group)
        except BaseException as error:
            self._roll_back()
            if len(group) > 1:
                # What a full disk refuses is told to the one that asked for it, not to its neighbours.
                for call in group:
                    self._run([call])
                return
            outcomes = [error]
        for call, outcome in zip(group, outcomes, strict=True):
            call.succeed_or_fail(outcome)

    def _roll_back(self) -> None:
        # A refused COMMIT may have ended the transaction itself.
        with suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")

    def _together(self, group: list[_Call[Any]]) -> list[Any]:
        durable = any(call.durable for call in group)
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        before = self._connection.total_changes
        self._connection.execute("BEGIN")
        outcomes = [self._one(call.work) for call in group]
        changed = self._connection.total_changes != before
        seen = self._look(self._connection) if changed else self.seen
        self._connection.execute("COMMIT")
        self.seen = seen
        return outcomes

    def _one(self, work: Work[Any]) -> Any:
        """What a call answers; one that refuses leaves no trace and does not disturb the others."""
        self._connection.execute("SAVEPOINT call")
        try:
            outcome = work(self._connection)
        except sqlite3.Error:
            raise
        except Exception as error:
            self._connection.execute("ROLLBACK TO call")
            outcome = error
        self._connection.execute("RELEASE call")
        return outcome
