"""Maps the global names that pickled checkpoints use to harmless stubs. Any other name is rejected.

The names are those that torch, its trainers and NumPy write to checkpoints.
"""

from typing import Any

from calotype.models.files.pickle_child.errors import RefusedError
from calotype.models.files.pickle_child.stubs import Dictionary, DType, Parameters, Rebuild, TensorRef


def _tensor_v1(storage: Any, offset: Any, shape: Any, strides: Any) -> TensorRef:
    return TensorRef(storage, offset, shape, strides, getattr(storage, "dtype", None))


def _tensor_v2(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> TensorRef:
    _requires_grad, _hooks, *flags = rest
    _refuse_flags(flags)
    return _tensor_v1(storage, offset, shape, strides)


def _tensor_v3(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> TensorRef:
    _requires_grad, _hooks, dtype, *flags = rest
    _refuse_flags(flags)
    return TensorRef(storage, offset, shape, strides, dtype)


def _refuse_flags(flags: list[Any]) -> None:
    # Torch keeps "conjugate" and "negative" as lazy flags; the stored bytes are then not the values.
    if any(flags):
        raise RefusedError("a tensor is conjugated or negated lazily; resolve that with torch and save again")


def _from_type(rebuild: object, _kind: object, arguments: Any, _state: object) -> object:
    if not isinstance(rebuild, Rebuild):
        raise RefusedError("a tensor with attributes is rebuilt by something that is no torch function")
    return rebuild(*arguments)


_RAW_BYTES = DType("U8")
STORAGES = {
    ("torch", "BFloat16Storage"): DType("BF16"),
    ("torch", "BoolStorage"): DType("BOOL"),
    ("torch", "ByteStorage"): DType("U8"),
    ("torch", "CharStorage"): DType("I8"),
    ("torch", "ComplexFloatStorage"): DType("C64"),
    ("torch", "DoubleStorage"): DType("F64"),
    ("torch", "FloatStorage"): DType("F32"),
    ("torch", "HalfStorage"): DType("F16"),
    ("torch", "IntStorage"): DType("I32"),
    ("torch", "LongStorage"): DType("I64"),
    ("torch", "ShortStorage"): DType("I16"),
    ("torch", "UntypedStorage"): _RAW_BYTES,
    ("torch.storage", "TypedStorage"): _RAW_BYTES,
    ("torch.storage", "UntypedStorage"): _RAW_BYTES,
}

DTYPES = {
    ("torch", "bfloat16"): DType("BF16"),
    ("torch", "bool"): DType("BOOL"),
    ("torch", "complex64"): DType("C64"),
    ("torch", "float16"): DType("F16"),
    ("torch", "float32"): DType("F32"),
    ("torch", "float64"): DType("F64"),
    ("torch", "float8_e4m3fn"): DType("F8_E4M3"),
    ("torch", "float8_e4m3fnuz"): DType("F8_E4M3FNUZ"),
    ("torch", "float8_e5m2"): DType("F8_E5M2"),
    ("torch", "float8_e5m2fnuz"): DType("F8_E5M2FNUZ"),
    ("torch", "float8_e8m0fnu"): DType("F8_E8M0"),
    ("torch", "int16"): DType("I16"),
    ("torch", "int32"): DType("I32"),
    ("torch", "int64"): DType("I64"),
    ("torch", "int8"): DType("I8"),
    ("torch", "uint16"): DType("U16"),
    ("torch", "uint32"): DType("U32"),
    ("torch", "uint64"): DType("U64"),
    ("torch", "uint8"): DType("U8"),
}

FUNCTIONS: dict[tuple[str, str], object] = {
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

# Checkpoints also hold state of Lightning, OmegaConf, NumPy and torch's schedulers. It is not needed, so an
# inert stub replaces all of it.
DROPPED = {
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

NOT_DENSE = {
    ("torch._utils", "_rebuild_sparse_tensor"): "a sparse tensor",
    ("torch._utils", "_rebuild_sparse_csr_tensor"): "a sparse tensor",
    ("torch._utils", "_rebuild_nested_tensor"): "a nested tensor",
    ("torch._utils", "_rebuild_qtensor"): "a quantized tensor",
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): "a meta tensor without values",
}
