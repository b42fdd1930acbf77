"""Runs the sandboxed process: parse the task, drop privileges, convert, report in one line of JSON.

Every failure becomes a report, because the parent has no other information for the user.
"""

import codecs
import io
import json
import os
import pickle
from typing import Any

from calotype.models.files.pickle_child.errors import RefusedError
from calotype.models.files.pickle_child.sandbox import SandboxLimits, enter_sandbox
from calotype.models.files.pickle_child.tensor_copy import write_tensors
from calotype.models.files.pickle_child.torch_formats import PositionedFile, check_crc32, read_raw, read_zip
from calotype.models.files.pickle_child.validation import place_tensors

# The parent reads the report after this process has ended, so it must fit into a pipe: 4 KiB always fit.
_MAX_RULE_LENGTH = 1000
_MAX_NAMES_REPORTED = 20
_MAX_NAME_REPORTED_LENGTH = 60


def main(task_json: str) -> None:
    task = json.loads(task_json)
    report = _attempt(task)
    os.write(1, json.dumps(report).encode())
    # Under the system-call filter, a regular interpreter shutdown would fail.
    os._exit(0)


def _attempt(task: dict[str, Any]) -> dict[str, Any]:
    limits = SandboxLimits(**task["limits"])
    try:
        return _convert(task, limits)
    except RefusedError as error:
        rule = str(error)
    except MemoryError:
        rule = f"reading it takes more than the allowed {limits.memory_bytes} bytes of memory"
    except (EOFError, pickle.UnpicklingError) as error:
        rule = f"its pickle is damaged: {error}"
    except OSError as error:
        rule = f"could not be converted: {error.strerror}"
    except Exception as error:
        rule = f"is malformed ({type(error).__name__}: {error})"
    return {"refused": _ascii(rule, _MAX_RULE_LENGTH)}


def _convert(task: dict[str, Any], limits: SandboxLimits) -> dict[str, Any]:
    file = io.BufferedReader(PositionedFile(task["input"], task["size_bytes"]))
    # The zip reader decodes old names with it, and modules cannot be loaded inside the sandbox.
    codecs.lookup("cp437")
    protections = enter_sandbox(limits)
    read = read_zip if task["is_zip"] else read_raw
    checkpoint = read(file, task["size_bytes"])
    findings = place_tensors(checkpoint)
    for key in sorted(findings.storage_keys):
        check_crc32(task["input"], f"storage {key!r}", checkpoint.storages[key])
    written = write_tensors(
        task["input"], task["output"], findings.tensors, task["metadata"], limits.output_bytes
    )
    return {
        "tensors": len(findings.tensors),
        "written_bytes": written,
        "dropped_values": findings.dropped_values,
        "left_out": _shortened(findings.left_out),
        "placeholders": _shortened(sorted(checkpoint.dropped_names)),
        "protections": protections,
    }


def _shortened(names: list[str]) -> list[str]:
    return [_ascii(name, _MAX_NAME_REPORTED_LENGTH) for name in names[:_MAX_NAMES_REPORTED]]


def _ascii(text: str, most_characters: int) -> str:
    return text.encode("ascii", "backslashreplace").decode()[:most_characters]
