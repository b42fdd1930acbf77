"""`calotype launch`: run commands in this machine's background, on Slurm, on Kubernetes and on Ray."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli import launch_serving
from calotype.cli.common_options import AsJson
from calotype.cli.launch_options import File, GpusPerNode, LaunchOptions, Nodes, submit_launch

if TYPE_CHECKING:
    from calotype.launch.backend import Backend, JobRecord, JobStatus
    from calotype.spec.launch import LaunchSpec

app = typer.Typer(
    no_args_is_help=True,
    help="Run commands elsewhere: on Slurm, Kubernetes, Ray, or in this machine's background.",
)

Where = Annotated[
    str, typer.Option("--on", "--launch", metavar="BACK END", help="local, slurm, kubernetes or ray.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="For instance slurm.partition=gpu time_limit=12h."),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND...", help="What to run, without `calotype`: train sd2-base; options first."
    ),
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Its id, or its folder.")]
app.command("render-serving")(launch_serving.command)
# All that follows the first word is the command's, its options too.
_TAKES_COMMAND = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def _spec(
    context: typer.Context, words: list[str] | None, asked: LaunchOptions, *, ask_cluster: bool
) -> "LaunchSpec":
    """The launch of a command as it was typed, or as the file has it, that could run."""
    from calotype.cli.launch_validation import checked
    from calotype.launch.submit import settled

    name = "-".join(words[:2]) if words else "calotype"
    spec = settled(asked.spec(name, words or ()))
    return checked(context, spec, asked, ask_cluster=ask_cluster)


@app.command(context_settings=_TAKES_COMMAND)
def render(
    context: typer.Context,
    where: Where,
    words: Words = None,
    launch_file: File = None,
    sets: Sets = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the files; printed if not said.")
    ] = None,
) -> None:
    """Print what would be handed in: a file that can be used without Calotype. Asks no cluster."""
    from calotype.launch.registry import open_backend

    backend = open_backend(where)
    asked = LaunchOptions(where, launch_file, sets or (), nodes, gpus_per_node)
    rendered = backend.render(_spec(context, words, asked, ask_cluster=False))
    for name, text in rendered.files.items():
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
            typer.echo(out / name)
        else:
            typer.echo(text, nl=False)
    for note in rendered.notes:
        typer.echo(note, err=True)


@app.command(context_settings=_TAKES_COMMAND)
def submit(
    context: typer.Context,
    where: Where,
    words: Words = None,
    launch_file: File = None,
    sets: Sets = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    as_json: AsJson = False,
) -> None:
    """Hand a command in: calotype launch submit --on slurm --nodes 2 train sd2-base.

    `calotype train RECIPE --launch slurm --nodes 2` does the same.
    """
    asked = LaunchOptions(where, launch_file, sets or (), nodes, gpus_per_node)
    submit_launch(where, _spec(context, words, asked, ask_cluster=True), as_json)


@app.command()
def status(job: Job, as_json: AsJson = False) -> None:
    """Say how a job stands: pending, running, completed, failed, cancelled, timed_out or lost."""
    from calotype.cli.output import console, print_json

    record, backend = _opened(job)
    found = _status(backend, record)
    if as_json:
        print_json(
            {"id": record.id, "backend": record.backend, "handle": record.handle, **found.model_dump()}
        )
        return
    out = console()
    out.print(f"{record.id}: {_said(found)}", soft_wrap=True)
    for task in found.tasks:
        why = f" ({task.reason})" if task.reason else ""
        out.print(f"  task {task.task}: {task.state.value}{why}", soft_wrap=True)


@app.command()
def logs(
    job: Job,
    rank: Annotated[int | None, typer.Option(min=0, help="One process alone.")] = None,
    task: Annotated[int | None, typer.Option(min=0, help="One task of an array alone.")] = None,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", min=0, help="Only so many of the last.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new lines until the job is over.")
    ] = False,
) -> None:
    """Show what a job's processes printed, each line with its rank."""
    from calotype.launch.backend import LogsWanted

    record, backend = _opened(job)
    for line in backend.logs(record, LogsWanted(rank=rank, task=task, lines=lines, follow=follow)):
        typer.echo(line)


@app.command()
def cancel(job: Job) -> None:
    """End a job; a training saves first."""
    record, backend = _opened(job)
    found = _status(backend, record)
    if found.state.is_over:
        typer.echo(f"{record.id} is over already: {_said(found)}")
        return
    backend.cancel(record)
    typer.echo(f"{record.id} is told to end; calotype launch status {record.id} says when it has")


@app.command("list")
def list_jobs(as_json: AsJson = False) -> None:
    """List jobs, the newest first, with the state they were last seen in or are in now."""
    from rich.table import Table

    from calotype.cli.output import console, print_json
    from calotype.core.errors import CalotypeError
    from calotype.launch.job_store import all_records
    from calotype.launch.registry import open_backend

    rows = []
    for record in all_records():
        try:
            state = _status(open_backend(record.backend), record).state.value
        except CalotypeError as error:
            # One cluster that does not answer hides no other's jobs.
            state = f"unknown: {error}"
        rows.append((record, state))
    if as_json:
        print_json([{"id": record.id, "state": state, "folder": record.folder} for record, state in rows])
        return
    table = Table("job", "state", "back end", "handed in", "command")
    for record, state in rows:
        words = " ".join(["calotype", *record.spec.words()])
        table.add_row(record.id, state, f"{record.backend} {record.handle}", record.submitted_at, words)
    console().print(table if rows else "no jobs; hand one in with `calotype train RECIPE --launch slurm`")


@app.command()
def collect(job: Job, as_json: AsJson = False) -> None:
    """Show what a job measured: the row of a benchmark, or the points of a sweep's array so far."""
    from calotype.cli.launch_results import show_results

    record, _ = _opened(job)
    show_results(record, as_json)


def _opened(job: str) -> "tuple[JobRecord, Backend]":
    from calotype.launch.job_store import find
    from calotype.launch.registry import open_backend

    record = find(job)
    return record, open_backend(record.backend)


def _status(backend: "Backend", record: "JobRecord") -> "JobStatus":
    from calotype.launch.submit import status_of

    return status_of(backend, record)


def _said(status: "JobStatus") -> str:
    words = [status.state.value]
    words += [f"({status.reason})"] if status.reason else []
    words += [f"with code {status.exit_code}"] if status.exit_code else []
    words += [f"on {', '.join(status.nodes)}"] if status.nodes else []
    times = "once" if status.restarts == 1 else f"{status.restarts} times"
    words += [f"after being queued again {times}"] if status.restarts else []
    return " ".join(words)
