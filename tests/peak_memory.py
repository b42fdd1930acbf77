"""How much memory tensors take at once. Knows nothing of models."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Living(TorchDispatchMode):
    """While it is entered, `most` is the largest sum of bytes made so far and not let go of."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self._bytes = 0, dict[int, int]()

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for each in made if isinstance(made, list | tuple) else [made]:
            if isinstance(each, Tensor):
                self._note(each.untyped_storage())
        return made

    def _note(self, storage: torch.UntypedStorage) -> None:
        place = storage._cdata
        if place not in self._bytes:
            self._bytes[place] = storage.nbytes()
            weakref.finalize(storage, self._bytes.pop, place, None)
        self.most = max(self.most, sum(self._bytes.values()))
