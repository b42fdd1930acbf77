"""Options that submit a command as a job instead of running it here.

`calotype train`, `calotype bench` and `calotype launch` share them.
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
        help="Submit as a job: local, slurm, kubernetes or ray (see docs/launching.md).",
    ),
]
File = Annotated[
    Path | None, typer.Option("--launch-file", help="With --launch: YAML file with launch settings.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--launch-set",
        metavar="KEY=VALUE",
        help="With --launch: launch setting, for example slurm.partition=gpu; repeatable.",
    ),
]
Nodes = Annotated[int | None, typer.Option(help="With --launch: number of nodes.")]
GpusPerNode = Annotated[int | None, typer.Option(help="With --launch: GPUs per node.")]

OF_A_LAUNCH = {
    "launch": "--launch",
    "launch_file": "--launch-file",
    "launch_set": "--launch-set",
    "nodes": "--nodes",
    "gpus_per_node": "--gpus-per-node",
}
"""Parameters that configure a launch, with their options."""
_NOT_FORWARDED = (*OF_A_LAUNCH, "as_json")
"""Parameters of the launch itself and of its output; the launched command does not get them."""


@dataclass(frozen=True)
class LaunchOptions:
    """The launch options of one command line."""

    where: str | None
    file: Path | None = None
    sets: Sequence[str] = ()
    nodes: int | None = None
    gpus_per_node: int | None = None

    def elsewhere(self) -> bool:
        """Whether to launch; raises for launch settings without --launch."""
        from calotype.core.errors import Problem, RequestError

        if self.where is not None:
            return True
        given = {
            "--launch-file": self.file,
            "--launch-set": self.sets or None,
            "--nodes": self.nodes,
            "--gpus-per-node": self.gpus_per_node,
        }
        unused = [name for name, value in given.items() if value is not None]
        if unused:
            rule = "is a launch setting; add --launch local, slurm, kubernetes or ray"
            raise RequestError([Problem(unused[0], rule)])
        return False

    def spec(self, name: str, command: Sequence[str], **more: Any) -> "LaunchSpec":
        """The launch of `command`, or of the command in the file; `name` is the default job name."""
        from calotype.launch.load_spec import read_spec

        given = {"nodes": self.nodes, "gpus_per_node": self.gpus_per_node, "command": tuple(command) or None}
        values = {key: value for key, value in {**given, **more}.items() if value is not None}
        return read_spec(self.file, values, self.sets, usual={"name": job_name(name)})

    def with_gpus(self, spec: "LaunchSpec", most: int | None = None) -> "LaunchSpec":
        """Set the GPUs per node to those a node has, at most `most`, unless the spec sets them."""
        from calotype.launch.backend import KnowsItsNodes
        from calotype.launch.registry import open_backend

        backend = open_backend(self.where or "")
        if "gpus_per_node" in spec.model_fields_set or not isinstance(backend, KnowsItsNodes):
            return spec
        available = backend.gpus_of_a_node(spec)
        number = available if most is None else min(available, most)
        why = f"a node of {self.where} has {available}; override with --gpus-per-node"
        typer.echo(f"{number} GPUs on each node: {why}", err=True)
        return spec.changed(gpus_per_node=number)


def job_name(text: str) -> str:
    """A valid job name similar to `text`."""
    from calotype.spec.launch_sections import MAX_JOB_NAME_LENGTH

    stem = Path(text).stem if text.endswith((".yaml", ".yml")) else text
    plain = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:MAX_JOB_NAME_LENGTH].strip("-")
    return plain if plain[:1].isalpha() else f"job-{plain}"[:MAX_JOB_NAME_LENGTH].strip("-")


def typed(context: typer.Context, leave_out: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The given arguments and options of the running command, without launch options."""
    arguments: list[str] = []
    options: list[str] = []
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        source = context.get_parameter_source(name)
        if (
            name in (*_NOT_FORWARDED, *leave_out)
            or source is None
            or source.name != "COMMANDLINE"
            or value is None
        ):
            continue
        values = [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
        if parameter.param_type_name == "argument":
            arguments += values
        else:
            option = max(parameter.opts, key=len)
            options += [option] if value is True else [f"{option}={each}" for each in values]
    return arguments, options


def submit_launch(where: str, spec: "LaunchSpec", as_json: bool) -> None:
    """Submit a job and print the commands that follow it."""
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
    typer.echo(f"{record.id} is submitted as {where} {record.handle}; its files are in {record.folder}")
    typer.echo(f"calotype launch status {record.id} · logs {record.id} --follow · cancel {record.id}")
