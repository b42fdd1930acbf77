"""Opens any known kind of weight file as tensors; converts old pickles and caches the converted copy.

`pickle_sandbox` reads the pickle safely.
"""

from pathlib import Path

from calotype.core.errors import ModelFileError
from calotype.core.paths import cache_dir
from calotype.core.progress import Progress
from calotype.models.files.pickle_sandbox import convert_pickle, provenance
from calotype.models.files.safe_open import OpenedFile, open_model_file
from calotype.models.files.safetensors_reader import Origin, TensorFile, open_safetensors
from calotype.models.files.sniff import FileKind


def open_tensors(path: Path, *, inside: Path | None = None, progress: Progress | None = None) -> TensorFile:
    """Open a weight file by its content, whatever its name. This process never unpickles."""
    opened = open_model_file(path, inside=inside)
    try:
        if opened.kind is FileKind.SAFETENSORS:
            return TensorFile(opened)
        converted = _open_converted(opened, progress)
    except BaseException:
        opened.close()
        raise
    opened.close()
    return converted


def _open_converted(opened: OpenedFile, progress: Progress | None) -> TensorFile:
    origin = Origin(opened.path, opened.kind, opened.sha256(progress))
    copy = cache_dir() / "converted" / f"{origin.sha256}.safetensors"
    if not _usable(copy, origin):
        try:
            convert_pickle(opened, copy, sha256=origin.sha256, progress=progress)
        except OSError as error:
            rule = f"{copy.parent} cannot be written: {error.strerror}; set CALOTYPE_CACHE to another folder"
            raise ModelFileError(opened.path, f"needs conversion, but {rule}") from None
    return open_safetensors(copy, origin=origin)


def _usable(copy: Path, origin: Origin) -> bool:
    """Whether a cached conversion is valid: it passes the strict check and the current rules made it."""
    if not copy.exists():
        return False
    try:
        with open_safetensors(copy, origin=origin) as tensors:
            return tensors.metadata == provenance(origin.sha256)
    except ModelFileError:
        return False
