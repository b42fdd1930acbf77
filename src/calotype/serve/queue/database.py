"""Runs SQLite calls in one thread that owns the connection, so that no event loop waits for a disk.

Calls that wait at the same time are committed together, with one sync of the disk. A call must only read and
write the database, because it may run more than once.

A group that writes takes the write lock first (BEGIN IMMEDIATE). While another process has that lock, writing
calls are retried until the connection's busy timeout; reading calls are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MAX_GROUP = 256
_LOCK_RETRY_S = 0.01
"""Interval between two attempts to take the write lock from another process."""
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class _LockedError(Exception):
    """Another process has the write lock; `error` is SQLite's error."""

    def __init__(self, error: sqlite3.OperationalError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(eq=False)
class _Call(Generic[T]):
    work: Work[T]
    durable: bool = True
    writes: bool = True
    give_up_at: float | None = None
    """When a call that waits for the write lock fails, by the monotonic clock."""
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
        """The result of `look` on all committed data; updated before a caller learns of its commit."""
        (self._busy_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
        self._blocked: list[_Call[Any]] = []
        """Writing calls that wait until another process releases the write lock."""
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="job-queue", daemon=True)
        self._thread.start()

    async def call(self, work: Work[T], *, durable: bool = True, writes: bool = True) -> T:
        """Run `work` in a transaction; when this returns, it is committed.

        A call that is not `durable` survives the end of this process, but a power failure only if a durable
        one follows.
        With `writes` false, `work` only reads and needs no write lock.
        """
        call = _Call(work, durable and writes, writes)
        self._calls.put(call)
        return await asyncio.wrap_future(call.answer)

    def close(self) -> None:
        """Finish the waiting calls, and close."""
        self._calls.put(None)
        self._thread.join()

    def _serve(self) -> None:
        closing = False
        while True:
            waiting, last = self._next_group()
            closing = closing or last
            group = self._blocked + [call for call in waiting if call.answer.set_running_or_notify_cancel()]
            self._blocked = []
            try:
                self._run(group)
            # A bug must not leave callers waiting forever.
            except BaseException as error:
                for call in group:
                    if not call.answer.done():
                        call.answer.set_exception(error)
            if closing and not self._blocked:
                self._connection.close()
                return

    def _next_group(self) -> tuple[list[_Call[Any]], bool]:
        """All calls that wait now, and whether they are the last; at least one unless some are blocked."""
        group: list[_Call[Any]] = []
        try:
            call = self._calls.get(timeout=_LOCK_RETRY_S if self._blocked else None)
            while call is not None:
                group.append(call)
                if len(group) == MAX_GROUP:
                    return group, False
                call = self._calls.get_nowait()
        except queue.Empty:
            return group, False
        return group, True

    def _run(self, group: list[_Call[Any]]) -> None:
        """Run calls in one transaction; calls that need a taken write lock stay blocked."""
        if not group:
            return
        try:
            outcomes = self._run_transaction(group)
        except _LockedError as locked:
            self._run([call for call in group if not call.writes])
            self._block([call for call in group if call.writes], locked.error)
            return
        except BaseException as error:
            self._roll_back()
            if len(group) > 1:
                # Run them one by one, so that only the call that the disk refuses fails.
                for call in group:
                    self._run([call])
                return
            outcomes = [error]
        for call, outcome in zip(group, outcomes, strict=True):
            call.succeed_or_fail(outcome)

    def _block(self, calls: list[_Call[Any]], error: sqlite3.OperationalError) -> None:
        """Keep calls for the next attempt; fail those that have waited for the whole busy timeout."""
        now = time.monotonic()
        for call in calls:
            call.give_up_at = call.give_up_at or now + self._busy_ms / 1000
            if now < call.give_up_at:
                self._blocked.append(call)
            else:
                call.succeed_or_fail(error)

    def _roll_back(self) -> None:
        # A refused COMMIT may have ended the transaction itself.
        with suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")

    def _run_transaction(self, group: list[_Call[Any]]) -> list[Any]:
        durable = any(call.durable for call in group)
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        before = self._connection.total_changes
        self._begin(write=any(call.writes for call in group))
        outcomes = [self._run_call(call.work) for call in group]
        changed = self._connection.total_changes != before
        seen = self._look(self._connection) if changed else self.seen
        self._connection.execute("COMMIT")
        self.seen = seen
        return outcomes

    def _begin(self, *, write: bool) -> None:
        if not write:
            self._connection.execute("BEGIN")
            return
        # SQLite's own wait would block this thread, and with it every reading call.
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in _LOCKED:
                raise _LockedError(error) from error
            raise
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {self._busy_ms}")

    def _run_call(self, work: Work[Any]) -> Any:
        """A call's result or exception; an exception rolls back that call only."""
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
