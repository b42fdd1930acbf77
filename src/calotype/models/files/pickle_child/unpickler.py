"""An unpickler that can build only stubs."""

import pickle
from typing import Any

from calotype.models.files.pickle_child.allowlist import DROPPED, DTYPES, FUNCTIONS, NOT_DENSE, STORAGES
from calotype.models.files.pickle_child.errors import RefusedError, short_repr
from calotype.models.files.pickle_child.stubs import DType, Inert, StorageRef


class InertUnpickler(pickle.Unpickler):
    """Reads a pickle and replaces every name by a stub; `dropped` collects the names with inert stubs."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="utf-8")
        self.dropped: set[str] = set()
        self.storages: dict[str, StorageRef] = {}

    def find_class(self, module: str, name: str) -> Any:
        key = (module, name)
        for stubs in (STORAGES, DTYPES, FUNCTIONS):
            if key in stubs:
                return stubs[key]
        if key in DROPPED:
            self.dropped.add(f"{module}.{name}")
            return Inert
        if key in NOT_DENSE:
            raise RefusedError(f"holds {NOT_DENSE[key]}; only dense tensors are read")
        raise RefusedError(
            f"its pickle names {short_repr(f'{module}.{name}')}, which is not on the list of harmless names;"
            " nothing was run"
        )

    def persistent_load(self, pid: Any) -> StorageRef:
        """A storage, from the tuple that torch writes: ("storage", class, key, device, items[, view])."""
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise RefusedError("its pickle refers to an external object that is not a torch storage")
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
