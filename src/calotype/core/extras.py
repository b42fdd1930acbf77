"""Optional dependencies: the packages of each extra, and the error for a missing one."""

from importlib.util import find_spec

from calotype.core.errors import ExitCode, NotFoundError

EXTRAS = {
    "serve": (
        "fastapi",
        "grpc",
        "grpc_health",
        "grpc_reflection",
        "httpx",
        "prometheus_client",
        "google.protobuf",
        "python_multipart",
        "uvicorn",
        "websockets",
    ),
    "query": ("duckdb",),
    "train": ("tensorboard", "torchao", "wandb"),
    "data": ("resvg_py",),
    "cloud": ("obstore",),
    "cluster": ("ray",),
    "kubernetes": ("kubernetes",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
}
"""Modules that each extra of pyproject.toml makes importable, by the names that `import` takes."""


class MissingExtraError(NotFoundError):
    """A missing optional package; the message states what needs it and how to install it."""

    exit_code = ExitCode.BAD_REQUEST

    def __init__(self, module: str, extra: str, what: str = "this command") -> None:
        self.module, self.extra = module, extra
        super().__init__(f"{what} needs {module}: pip install 'calotype[{extra}]'")


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """The error with the command that installs the module; None if the module is in no extra."""
    name = error.name or ""
    for extra, modules in EXTRAS.items():
        for module in modules:
            # Python reports the outermost missing package: `google` for `google.protobuf`.
            if name == module or name.startswith(f"{module}.") or module.startswith(f"{name}."):
                return MissingExtraError(module, extra)
    return None


def require_extra(extra: str) -> None:
    """Raise MissingExtraError unless all modules of an extra are installed, without importing them."""
    for module in EXTRAS[extra]:
        if not _installed(module):
            raise MissingExtraError(module, extra)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
