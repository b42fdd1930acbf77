"""Which process is which, for as long as a machine runs. Starts and ends none."""

from pathlib import Path


def born(pid: int) -> int | None:
    """When a process was started, in ticks since the machine was; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The program's name stands in brackets and may hold anything.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])
