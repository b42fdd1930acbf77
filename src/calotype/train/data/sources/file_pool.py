"""A pool that keeps a limited number of files open, per process."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

MAX_OPEN = 128


class _Closable(Protocol):
    def close(self) -> None: ...


File = TypeVar("File", bound=_Closable)


class OpenFiles(Generic[File]):
    """Files by number, opened on demand; the least recently used one is closed to make room.

    A copy sent to another process opens its own files.
    """

    def __init__(self, open_file: Callable[[int], File], most_open: int = MAX_OPEN) -> None:
        self._open_file, self._most_open = open_file, most_open
        self._open: OrderedDict[int, File] = OrderedDict()

    def get(self, number: int) -> File:
        file = self._open.get(number)
        if file is None:
            while len(self._open) >= self._most_open:
                self._open.popitem(last=False)[1].close()
            file = self._open[number] = self._open_file(number)
        self._open.move_to_end(number)
        return file

    def close(self) -> None:
        """Close all; they are opened again on demand."""
        while self._open:
            self._open.popitem()[1].close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": OrderedDict()}
