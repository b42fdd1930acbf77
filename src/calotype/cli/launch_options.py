"""Options that send a command elsewhere instead of running it here, and what they do.

`calotype train` and `calotype bench` share them with `calotype launch`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from calotype.launch.backend import Backend
    from calotype.spec.launch import LaunchSpec

Where = Annotated[
    str | None,
    typer.Option(
        "--launch",
        metavar="BACK END",
        help="Run it there instead: local, slurm, kubernetes, ray (docs/launching.md).",
    ),
]
File = Annotated[
    Path | None, typer.Option("--launch-file", help="With --launch: a YAML file of its settings.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--launch-set", metavar="KEY=VALUE", help="With --launch: for instance slurm.partition=gpu."
    ),
]
Nodes = Annotated[int | None, typer.Option(help="With --launch: how many machines.")]
GpusPerNode = Annotated[int | None, typer.Option(help="With --launch: GPUs of each.")]

OF_A_LAUNCH = {
    "launch": "--launch",
    "launch_file": "--launch-file",
    "launch_set": "--launch-set",
    "nodes": "--nodes",
    "gpus_per_node": "--gpus-per-node",
}
"""What is said of a launch: parameters and their options."""
_OURS = (*OF_A_LAUNCH, "as_json")
"""What is said of the launch and its answer, and so is no part of what is launched."""


@dataclass(frozen=True)
class LaunchOptions:
    """What was said of a launch on the command line."""

    where: str | None
    file: Path | None = None
    sets: Sequence[str] = ()
    nodes: int | None = None
    gpus_per_node: int | None = None

    def elsewhere(self) -> bool:
        """Whether to launch; refuses settings of a launch without one."""
        from calotype.core.errors import Problem, RequestError

        if self.where is not None:
            return True
        given = {
            "--launch-file": self.file,
            "--launch-set": self.sets or None,
            "--nodes": self.nodes,
            "--gpus-per-node": self.gpus_per_node,
        }
        lonely = [name for name, value in given.items() if value is not None]
        if lonely:
            rule = "says something about a launch; add --launch local, slurm, kubernetes or ray"
            raise RequestError([Problem(lonely[0], rule)])
        return False

    def spec(self, name: str, command: Sequence[str], **more: Any) -> "LaunchSpec":
        """The launch of a command, or of the one in the file; `name` if nobody says another."""
        from calotype.launch.load_spec import read_spec

        given = {"nodes": self.nodes, "gpus_per_node": self.gpus_per_node, "command": tuple(command) or None}
        said = {key: value for key, value in {**given, **more}.items() if value is not None}
        return read_spec(self.file, said, self.sets, usual={"name": job_name(name)})

    def with_gpus(self, spec: "LaunchSpec", most: int | None = None) -> "LaunchSpec":
        """As many GPUs as a node there has, but no more than `most`, where nobody said how many."""
        from calotype.launch.backend import KnowsItsNodes
        from calotype.launch.registry import open_backend

        backend = open_backend(self.where or "")
        if "gpus_per_node" in spec.model_fields_set or not isinstance(backend, KnowsItsNodes):
            return spec
        there = backend.gpus_of_a_node(spec)
        number = there if most is None else min(there, most)
        why = f"a node of {self.where} has {there}; --gpus-per-node says otherwise"
        typer.echo(f"{number} GPUs on each node: {why}", err=True)
        return spec.changed(gpus_per_node=number)


def job_name(text: str) -> str:
    """Something like `text` that may be a job's name."""
    from calotype.spec.launch_sections import MAX_JOB_NAME_LENGTH

    stem = Path(text).stem if text.endswith((".yaml", ".yml")) else text
    plain = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:MAX_JOB_NAME_LENGTH].strip("-")
    return plain if plain[:1].isalpha() else f"job-{plain}"[:MAX_JOB_NAME_LENGTH].strip("-")


def typed(context: typer.Context, leave_out: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The arguments and options of the command that is running, as they were given; none of a launch."""
    arguments: list[str] = []
    options: list[str] = []
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        source = context.get_parameter_source(name)
        if name in (*_OURS, *leave_out) or source is None or source.name != "COMMANDLINE" or value is None:
            continue
        values = [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
        if parameter.param_type_name == "argument":
            arguments += values
        else:
            option = max(parameter.opts, key=len)
            options += [option] if value is True else [f"{option}={each}" for each in values]
    return arguments, options


def submit_launch(where: str, spec: "LaunchSpec", as_json: bool) -> None:
    """Submit, and say how to go on."""
    from calotype.cli.output import print_json
    from calotype.launch.registry import open_backend
    from calotype.launch.submit import submit

    backend: Backend = open_backend(where)
    record, rendered = submit(backend, spec)
    for note in rendered.notes:
        typer.echo(note, err=True)
    if as_json:
        print_json(record)
        return
    typer.echo(f"{record.id} is handed in as {where} {record.handle}; everything is in {record.folder}")
    typer.echo(f"calotype launch status {record.id} · logs {record.id} --follow · cancel {record.id}")
