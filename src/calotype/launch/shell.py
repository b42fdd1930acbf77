"""Renders the parts of a shell script that backends share. Runs nothing.

Every value is quoted by `shlex`; the scripts are meant to be readable.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from calotype.launch.torchrun import torchrun_options, torchrun_variables
from calotype.spec.launch import TASK, LaunchSpec

MAX_LINE_LENGTH = 100


def exports(variables: Mapping[str, str]) -> list[str]:
    """An export line for each variable."""
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def all_variables(spec: LaunchSpec) -> dict[str, str]:
    """Variables of torchrun and of the spec; the spec's override torchrun's."""
    defaults = torchrun_variables(spec) if spec.launcher == "torchrun" else {"PYTHONUNBUFFERED": "1"}
    return defaults | spec.variables()


def started(spec: LaunchSpec, *, endpoint: str, run_id: str, task: str) -> list[list[str]]:
    """The lines of the command that one node runs, as shell words: quoted, except shell variables.

    `endpoint`, `run_id` and `task` are the shell's own expressions, such as `$SLURM_JOB_ID`.
    """
    command = ["-m calotype", *(_quoted(word, task) for word in spec.words())]
    python = shlex.quote(spec.interpreter)
    if spec.launcher == "plain":
        return [[python, *command]]
    # All other options are our own numbers.
    options = torchrun_options(spec, endpoint=f'"{endpoint}"', run_id=f'"{run_id}"')
    return [[f"{python} -m torch.distributed.run"], options, command]


def continued(lines: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """One command over several lines, indented after the first; long lines are wrapped between words."""
    wrapped = [row for words in lines for row in _wrap(words)]
    return f" \\\n{indent}".join(wrapped)


def _wrap(words: Sequence[str]) -> list[str]:
    rows: list[str] = []
    for word in words:
        if rows and len(rows[-1]) + len(word) < MAX_LINE_LENGTH:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows


def _quoted(word: str, task: str) -> str:
    """Quote a word for a shell; the task's placeholder becomes the shell variable."""
    if TASK not in word:
        return shlex.quote(word)
    return f'"{task}"'.join(shlex.quote(part) if part else "" for part in word.split(TASK))
