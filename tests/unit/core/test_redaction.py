"""What clients are told of errors that name files."""

from __future__ import annotations

from pathlib import Path

import pytest

from calotype.core.errors import ModelFileError, NotFoundError, Problem, RequestError
from calotype.core.redaction import redact_paths, remove_paths


def test_files_have_names_and_no_places(tmp_path: Path) -> None:
    folder = tmp_path / "my models"
    error = ModelFileError(folder / "a b.ckpt", "is cut short")
    assert str(folder) in str(error)
    assert redact_paths(error) == "a b.ckpt: is cut short"
    assert redact_paths(NotFoundError(f"no 'x' in {tmp_path}/loras; did you mean 'y'?")) == (
        "no 'x' in loras; did you mean 'y'?"
    )
    assert redact_paths(OSError(28, "No space left on device", str(folder / "part"))) == (
        "[Errno 28] No space left on device: 'part'"
    )


@pytest.mark.parametrize(
    "text",
    [
        "ask /v1/jobs for it",
        "see https://example.org/tmp/x",
        "in/tmp/x and a/b",
        "/tmp",
        "1/2 of 3/4",
        "'/v1/x'",
    ],
)
def test_what_only_looks_like_a_path_stays(text: str) -> None:
    assert remove_paths(text) == text


def test_what_a_client_sent_is_shown_as_it_was_sent(tmp_path: Path) -> None:
    error = RequestError([Problem("model", f"{str(tmp_path)!r} is not a usable name", str(tmp_path))])
    assert str(tmp_path) in redact_paths(error)


def test_lines_of_a_traceback_too(tmp_path: Path) -> None:
    assert remove_paths(f'  File "{tmp_path}/lib/node.py", line 3, in run\n') == (
        '  File "node.py", line 3, in run\n'
    )
