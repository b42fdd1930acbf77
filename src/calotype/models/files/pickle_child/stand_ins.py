"""What a pickle gets when it asks for a class or function: an inert thing of ours, or a refusal. Never the real one.

Knows the names torch and its trainers put into checkpoints. Values are not checked here but in `placement`,
because a pickle can still change things after it has made them.
"""

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from calotype.models.files.pickle_child.refused import RefusedError, shown


class DType(NamedTuple):
    """Stands for a torch dtype, or for a class of storage that holds one."""

    name: str


class StorageRef(NamedTuple):
    """Bytes that tensors look into, by the key the file keeps them under. Every field is as the pickle gave it."""

    key: Any
    dtype: Any
    num_items: Any


class TensorRef(NamedTuple):
    """A tensor as the pickle describes it. Every field is as the pickle gave it."""

    storage: Any
    offset: Any
    shape: Any
    strides: Any
    dtype: Any


class _Unchangeable(type):
    """Pickles can set attributes; classes they get hold of must stay what they are."""

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        raise RefusedError(f"its pickle tries to change {cls.__name__}.{name}")


class Inert(metaclass=_Unchangeable):
    """Stands for a harmless object that is not weights: takes whatever it is given and keeps nothing."""

    __slots__ = ()

    def __new__(cls, *_: object) -> "Inert":
        return super().__new__(cls)

    def __init__(self, *_: object) -> None:
        pass

    def ignore(self, *_: object) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = ignore


class Dictionary(dict[Any, Any], metaclass=_Unchangeable):
    """Stands for OrderedDict; the attributes that state dicts carry (`_metadata`) are dropped."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


class Parameters(Dictionary):
    """Stands for torch's ParameterDict, which textual inversion files hold: its parameters, nothing else."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict) and isinstance(state.get("_parameters"), dict):
            self.update(state["_parameters"])


class Rebuild:
    """Stands for one of torch's rebuilding functions; only notes what it was asked to build."""

    __slots__ = ("_describe",)
    _describe: Callable[..., object]

    def __init__(self, describe: Callable[..., object]) -> None:
        object.__setattr__(self, "_describe", describe)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise RefusedError(f"its pickle tries to change a function's {name}")

    def __call__(self, *arguments: Any) -> object:
        return self._describe(*arguments)


def _tensor_v1(storage: Any, offset: Any, shape: Any, strides: Any, *_: object) -> TensorRef:
    return TensorRef(storage, offset, shape, strides, getattr(storage, "dtype", None))


def _tensor_v2(
    storage: Any, offset: Any, shape: Any, strides: Any, _grad: object, _hooks: object, flags: object = None
) -> TensorRef:
    _refuse_flags(flags)
    return _tensor_v1(storage, offset, shape, strides)


def _tensor_v3(
    storage: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    _grad: object,
    _hooks: object,
    dtype: Any,
    flags: object = None,
) -> TensorRef:
    _refuse_flags(flags)
    return TensorRef(storage, offset, shape, strides, dtype)


def _refuse_flags(flags: object) -> None:
    # Torch keeps "conjugate" and "negative" as lazy flags; the stored bytes are then not the values.
    if flags:
        raise RefusedError(
            "a tensor carries lazy flags (conj or neg); save it again after resolve_conj().resolve_neg()"
        )


def _from_type(rebuild: object, _kind: object, arguments: Any, _state: object) -> object:
    if not isinstance(rebuild, Rebuild):
        raise RefusedError("a tensor with attributes is rebuilt by something that is no torch function")
    return rebuild(*arguments)


_STORAGES = {
    **{("torch", f"{name}Storage"): DType(dtype) for name, dtype in (
        ("Double", "F64"), ("Float", "F32"), ("Half", "F16"), ("BFloat16", "BF16"), ("Long", "I64"), ("Int", "I32"),
        ("Short", "I16"), ("Char", "I8"), ("Byte", "U8"), ("Bool", "BOOL"), ("ComplexFloat", "C64"),
    )},
    ("torch.storage", "UntypedStorage"): DType("U8"),
    ("torch.storage", "TypedStorage"): DType("U8"),
    ("torch", "UntypedStorage"): DType("U8"),
}  # fmt: skip

_DTYPES = {("torch", name): DType(dtype) for name, dtype in (
    ("float64", "F64"), ("float32", "F32"), ("float16", "F16"), ("bfloat16", "BF16"), ("complex64", "C64"),
    ("float8_e4m3fn", "F8_E4M3"), ("float8_e5m2", "F8_E5M2"), ("float8_e8m0fnu", "F8_E8M0"),
    ("float8_e4m3fnuz", "F8_E4M3FNUZ"), ("float8_e5m2fnuz", "F8_E5M2FNUZ"), ("bool", "BOOL"), ("uint8", "U8"),
    ("int8", "I8"), ("int16", "I16"), ("int32", "I32"), ("int64", "I64"), ("uint16", "U16"), ("uint32", "U32"),
    ("uint64", "U64"),
)}  # fmt: skip

_FUNCTIONS: dict[tuple[str, str], object] = {
    ("torch._utils", "_rebuild_tensor"): Rebuild(_tensor_v1),
    ("torch._utils", "_rebuild_tensor_v2"): Rebuild(_tensor_v2),
    ("torch._utils", "_rebuild_tensor_v3"): Rebuild(_tensor_v3),
    ("torch._utils", "_rebuild_parameter"): Rebuild(lambda data, *_: data),
    ("torch._utils", "_rebuild_parameter_with_state"): Rebuild(lambda data, *_: data),
    ("torch._tensor", "_rebuild_from_type_v2"): Rebuild(_from_type),
    ("torch", "Size"): Rebuild(tuple),
    ("collections", "OrderedDict"): Dictionary,
    ("torch.nn.modules.container", "ParameterDict"): Parameters,
}

# Beside the weights, checkpoints hold what a trainer left there. None of it is used; each name is here because
# real Stable Diffusion files have it.
_DROPPED = {
    *(
        ("torch", f"{kind}Tensor")
        for kind in ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Byte", "Bool")
    ),
    *((module, name) for module in ("__builtin__", "builtins") for name in ("set", "frozenset", "object")),
    *((module, "_reconstructor") for module in ("copy_reg", "copyreg")),
    *(
        (f"numpy.{core}.multiarray", name)
        for core in ("core", "_core")
        for name in ("scalar", "_reconstruct")
    ),
    *(
        (f"{package}.callbacks.{module}", name)
        for package in ("pytorch_lightning", "lightning.pytorch")
        for module, name in (("model_checkpoint", "ModelCheckpoint"), ("early_stopping", "EarlyStopping"))
    ),
    ("_codecs", "encode"),
    ("argparse", "Namespace"),
    ("collections", "Counter"),
    ("collections", "defaultdict"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("omegaconf.base", "ContainerMetadata"),
    ("omegaconf.base", "Metadata"),
    ("omegaconf.dictconfig", "DictConfig"),
    ("omegaconf.listconfig", "ListConfig"),
    ("omegaconf.nodes", "AnyNode"),
    ("pathlib", "PosixPath"),
    ("pytorch_lightning.utilities.parsing", "AttributeDict"),
    ("torch", "Tensor"),
    ("torch", "device"),
    ("torch.nn.parameter", "Parameter"),
    ("typing", "Any"),
}

_NOT_DENSE = {
    ("torch._utils", "_rebuild_sparse_tensor"): "a sparse tensor",
    ("torch._utils", "_rebuild_sparse_csr_tensor"): "a sparse tensor",
    ("torch._utils", "_rebuild_nested_tensor"): "a nested tensor",
    ("torch._utils", "_rebuild_qtensor"): "a quantized tensor",
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): "a meta tensor without values",
}


class InertUnpickler(pickle.Unpickler):
    """Reads a pickle in which every name means a stand-in; `dropped` collects the names that mean nothing."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="utf-8")
        self.dropped: set[str] = set()
        self.storages: dict[str, StorageRef] = {}

    def find_class(self, module: str, name: str) -> Any:
        wanted = (module, name)
        for known in (_STORAGES, _DTYPES, _FUNCTIONS):
            if wanted in known:
                return known[wanted]
        if wanted in _DROPPED:
            self.dropped.add(f"{module}.{name}")
            return Inert
        if wanted in _NOT_DENSE:
            raise RefusedError(f"holds {_NOT_DENSE[wanted]}; only dense tensors are read")
        raise RefusedError(
            f"its pickle asks for {shown(f'{module}.{name}')}, which is not among the harmless names known in"
            " checkpoints; nothing was run"
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
            raise RefusedError(f"its pickle names a storage by {shown(key)} of class {shown(dtype)}")
        reference = StorageRef(key, dtype, num_items)
        if self.storages.setdefault(key, reference) != reference:
            raise RefusedError(f"its pickle describes storage {shown(key)} in two different ways")
        return reference
