"""Detects the kind of a file from its first bytes, never from its name."""

from enum import StrEnum

HEAD_BYTES = 512
MAX_SAFETENSORS_HEADER_BYTES_LENGTH = 100_000_000

_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
_PICKLE_PROTOCOL_OPCODE = 0x80
_HIGHEST_PICKLE_PROTOCOL = 5

# Common contents of files that are mistaken for models.
_FAMILIAR_STARTS = (
    (b"version https://git-lfs", "a Git LFS pointer: the model itself was not downloaded"),
    (b"<", "an HTML or XML page: the download returned a web page instead of the model"),
    (b"GGUF", "a GGUF model"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 (Keras) file"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x1f\x8b", "a gzip archive: unpack it first"),
    (b"7z\xbc\xaf", "a 7-Zip archive: unpack it first"),
    (b"Rar!", "a RAR archive: unpack it first"),
    (b"\x7fELF", "a Linux program"),
    (b"MZ", "a Windows program"),
    (b"{", "JSON text"),
)


class FileKind(StrEnum):
    """The known kinds of weight files; `str()` gives the name for messages."""

    SAFETENSORS = "safetensors"
    TORCH_ZIP = "torch zip pickle"
    TORCH_PICKLE = "legacy torch pickle"
    TORCH_TAR = "legacy torch tar"


def detect_kind(head: bytes, size_bytes: int) -> FileKind | None:
    """The kind of a file that starts with `head` (its first 512 bytes), or None if it is no weight file.

    Valid safetensors come first: a header of 640 bytes starts with the two bytes of a protocol-2 pickle.
    """
    if _plausible_header_length(head, size_bytes) and head[8:9] == b"{":
        return FileKind.SAFETENSORS
    if head.startswith(_ZIP_STARTS):
        return FileKind.TORCH_ZIP
    if _tar_checksum_holds(head):
        return FileKind.TORCH_TAR
    if len(head) > 1 and head[0] == _PICKLE_PROTOCOL_OPCODE and 2 <= head[1] <= _HIGHEST_PICKLE_PROTOCOL:
        return FileKind.TORCH_PICKLE
    # Broken safetensors count as safetensors, so that the strict check can report the error.
    if head[8:9] == b"{" or _plausible_header_length(head, size_bytes):
        return FileKind.SAFETENSORS
    return None


def describe_start(head: bytes) -> str:
    """A description of the first bytes for the error message."""
    for start, description in _FAMILIAR_STARTS:
        if head.startswith(start):
            return f"it looks like {description} (first bytes {head[:8]!r})"
    if head and not any(head):
        return "it starts with zero bytes only, as after an interrupted download"
    return f"its first bytes are {head[:16]!r}"


def _plausible_header_length(head: bytes, size_bytes: int) -> bool:
    length = int.from_bytes(head[:8], "little")
    return len(head) > 8 and 0 < length <= min(MAX_SAFETENSORS_HEADER_BYTES_LENGTH, size_bytes - 8)


def _tar_checksum_holds(head: bytes) -> bool:
    """Whether the first 512 bytes are a tar member; the oldest tars have no magic number, only a checksum."""
    field = head[148:156].strip(b" \0")
    if len(head) < HEAD_BYTES or not field or field.strip(b"01234567"):
        return False
    return int(field, 8) == sum(head[:148]) + 8 * ord(" ") + sum(head[156:])
