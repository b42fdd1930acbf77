"""The program of a decoding process: reads requests from stdin and writes responses to stdout.

It ends at the end of its standard input. It imports no torch and starts in about 0.2 s.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from calotype.core.errors import RequestError
from calotype.imaging.image_io import TooManyPixelsError, decode_image
from calotype.serve.decoding.frames import BrokenPipeToProcessError, read_frame, write_frame
from calotype.serve.decoding.operations import Operation, applied, check_attachment


def main() -> None:
    """Answer requests until standard input ends."""
    # Ctrl-C in a terminal reaches this process too; the server decides when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Output of a library must not get between two responses.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            values, attachments = read_frame(requests)
        except BrokenPipeToProcessError:
            return
        write_frame(answers, *_answer(values, attachments))


def _answer(values: dict[str, Any], attachments: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    operation = Operation(values["operation"], values["arguments"], *attachments[1:])
    field = values["field"]
    try:
        check_attachment(operation, field, values["most_pixels"])
        image = decode_image(
            attachments[0], f"the given {field}", field=field, most_pixels=values["most_pixels"]
        )
        return {"kind": "done"}, [applied(image, operation)]
    except TooManyPixelsError as error:
        return {"kind": "larger", "width": error.width, "height": error.height}, []
    except RequestError as error:
        problems = [[problem.field, problem.message] for problem in error.problems]
        return {"kind": "refused", "problems": problems}, []
    # The server reports a bug; this process continues.
    except Exception as error:
        return {"kind": "failed", "reason": f"{type(error).__name__}: {error}"}, []


if __name__ == "__main__":
    main()
