"""Converts an old torch pickle to safetensors in a separate, sandboxed process that outputs only tensors.

This process never unpickles: it starts `pickle_child`, waits, and checks the result like any other file.
`torch.load(weights_only=True)` is not used, because it has been broken more than once.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from calotype.core.errors import ModelFileError
from calotype.core.paths import atomic_write
from calotype.core.progress import Progress, Silent
from calotype.models.files.pickle_child import bootstrap
from calotype.models.files.pickle_child.sandbox import SandboxLimits
from calotype.models.files.safe_open import OpenedFile
from calotype.models.files.safetensors_header import read_header
from calotype.models.files.sniff import FileKind

_RULES_VERSION = "1"
_PROGRESS_INTERVAL_S = 0.2
_PASSED_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion wrote and what it left out."""

    tensors: int
    """Number of tensors written."""
    written_bytes: int
    """The size of the safetensors file."""
    dropped_values: int
    """Number of values among the weights that are not tensors, such as numbers and texts."""
    left_out: tuple[str, ...]
    """Entries outside the weights that were skipped, such as optimizer states."""
    placeholders: tuple[str, ...]
    """Known harmless classes that the pickle names; none of their code ran."""
    protections: tuple[str, ...]
    """The sandbox protections that were active: namespaces, no_new_privs, rlimits, seccomp."""


def provenance(sha256: str) -> dict[str, str]:
    """The metadata of a converted file: the digest of its source and the version of the rules."""
    return {"format": "pt", "converted_from_sha256": sha256, "conversion_rules": _RULES_VERSION}


def convert_pickle(
    opened: OpenedFile,
    destination: Path,
    *,
    sha256: str | None = None,
    limits: SandboxLimits | None = None,
    progress: Progress | None = None,
) -> ConversionReport:
    """Convert a torch pickle to safetensors at `destination`; a rejected file leaves no output."""
    if opened.kind is FileKind.TORCH_TAR:
        rule = "is a torch checkpoint in the tar format of before 2017; open it with torch and save it again"
        raise ModelFileError(opened.path, rule)
    if opened.kind is FileKind.SAFETENSORS:
        raise ModelFileError(opened.path, "is safetensors already; there is nothing to convert")
    limits = limits or SandboxLimits.for_file(opened.size_bytes)
    metadata = provenance(sha256 or opened.sha256(progress))
    with atomic_write(destination, "w+b") as target:
        report = _run_child(opened, target, metadata, limits, progress or Silent())
        opened.check_unchanged()
        _check_result(opened.path, target, report)
    return report


def _run_child(
    opened: OpenedFile, target: IO[bytes], metadata: dict[str, str], limits: SandboxLimits, progress: Progress
) -> ConversionReport:
    task = {
        "input": opened.fd,
        "output": target.fileno(),
        "is_zip": opened.kind is FileKind.TORCH_ZIP,
        "size_bytes": opened.size_bytes,
        "metadata": metadata,
        "limits": dataclasses.asdict(limits),
    }
    child = subprocess.Popen(  # noqa: S603 - our own interpreter and script; the task is JSON of numbers and digests
        [sys.executable, "-I", "-S", "-X", "utf8", bootstrap.__file__, json.dumps(task)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(opened.fd, target.fileno()),
        env={name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ},
        cwd="/",
    )
    with child:
        try:
            _wait(child, opened, target, limits.wall_s, progress)
        finally:
            child.kill()
        # Only after it has ended: a hostile process could send without end, but a pipe's capacity is finite.
        output, _ = child.communicate()
    if child.returncode != 0:
        raise ModelFileError(opened.path, _exit_reason(child.returncode, limits))
    return _parse_report(opened.path, output)


def _wait(
    child: subprocess.Popen[bytes], opened: OpenedFile, target: IO[bytes], wall_s: float, progress: Progress
) -> None:
    """Wait for the child to end and report progress by the size of the output."""
    deadline = time.monotonic() + wall_s
    progress.start(f"converting {opened.path.name}", opened.size_bytes)
    written = 0
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        try:
            child.wait(min(left_s, _PROGRESS_INTERVAL_S))
        except subprocess.TimeoutExpired:
            if left_s == 0:
                rule = f"is not converted: reading it takes longer than the allowed {wall_s} seconds"
                raise ModelFileError(opened.path, rule) from None
            now = os.fstat(target.fileno()).st_size
            progress.advance(now - written)
            written = now
        else:
            return


def _exit_reason(returncode: int, limits: SandboxLimits) -> str:
    if returncode == -signal.SIGXCPU:
        return f"is not converted: reading it takes more than the allowed {limits.cpu_s} seconds of CPU time"
    if returncode == -signal.SIGKILL:
        return "is not converted: the system killed the process reading it, probably for lack of memory"
    if returncode < 0:
        return f"is malformed: the process reading it died with {signal.Signals(-returncode).name}"
    return f"could not be read: the process reading it exited with status {returncode}"


def _parse_report(path: Path, output: bytes) -> ConversionReport:
    """Parse and validate the child's report; a compromised child could send anything."""
    try:
        report = json.loads(output)
        if "refused" in report:
            raise ModelFileError(path, _printable(report["refused"]))
        return ConversionReport(
            tensors=int(report["tensors"]),
            written_bytes=int(report["written_bytes"]),
            dropped_values=int(report["dropped_values"]),
            left_out=tuple(map(_printable, report["left_out"])),
            placeholders=tuple(map(_printable, report["placeholders"])),
            protections=tuple(map(_printable, report["protections"])),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ModelFileError(path, "could not be read: the process reading it gave no report") from None


def _printable(text: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(text))


def _check_result(path: Path, target: IO[bytes], report: ConversionReport) -> None:
    with OpenedFile(path, os.dup(target.fileno())) as written:
        header = read_header(written)
    if len(header.tensors) != report.tensors:
        rule = f"its conversion holds {len(header.tensors)} tensors, but {report.tensors} were reported"
        raise ModelFileError(path, rule)
