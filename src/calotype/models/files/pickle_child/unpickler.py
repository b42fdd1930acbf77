"""An unpickler that can build nothing but stand-ins. Knows no file format around the pickle."""

import pickle
from typing import Any

from calotype.models.files.pickle_child.allowlist import DROPPED, DTYPES, FUNCTIONS, NOT_DENSE, STORAGES
from calotype.models.files.pickle_child.errors import RefusedError, short_repr
from calotype.models.files.pickle_child.stubs import DType, Inert, StorageRef


class InertUnpickler(pickle.Unpickler):
    """Reads a pickle in which every name means a stand-in; `dropped` collects the names that mean nothing."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="utf-8")
        self.dropped: set[str] = set()
        self.storages: dict[str, StorageRef] = {}

    def find_class(self, module: str, name: str) -> Any:
        wanted = (module, name)
        for known in (STORAGES, DTYPES, FUNCTIONS):
            if wanted in known:
                return known[wanted]
        if wanted in DROPPED:
            self.dropped.add(f"{module}.{name}")
            return Inert
        if wanted in NOT_DENSE:
            raise RefusedError(f"holds {NOT_DENSE[wanted]}; only dense tensors are read")
        raise RefusedError(
            f"its pickle asks for {short_repr(f'{module}.{name}')}, which is not among the harmless names"
            " known in checkpoints; nothing was run"
        )

    def persistent_load(self, pid: Any) -> StorageRef:
        """A storage, by the tuple torch writes for one: ("storage", class, key, device, items[, view])."""
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise RefusedError("its pickle refers to something outside that is not a torch storage")
        _, dtype, key, _, num_items, *view = pid
        if view not in ([], [None]):
            raise RefusedError(
                "its storages are views of one another, as before torch 0.4; save it again with torch"
            )
        if not isinstance(key, str) or not isinstance(dtype, DType):
            raise RefusedError(
                f"its pickle names a storage by {short_repr(key)} of class {short_repr(dtype)}"
            )
        reference = StorageRef(key, dtype, num_items)
        if self.storages.setdefault(key, reference) != reference:
            raise RefusedError(f"its pickle describes storage {short_repr(key)} in two different ways")
        return reference
