"""`calotype launch`: run commands on Slurm, Kubernetes or Ray, or in the background of this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli import launch_serving
from calotype.cli.common_options import AsJson
from calotype.cli.examples import examples
from calotype.cli.launch_options import File, GpusPerNode, LaunchOptions, Nodes, submit_launch

if TYPE_CHECKING:
    from calotype.launch.backend import Backend, JobRecord, JobStatus
    from calotype.spec.launch import LaunchSpec

app = typer.Typer(
    no_args_is_help=True,
    help="Run commands as jobs: on Slurm, Kubernetes or Ray, or in the background of this machine.",
)

Where = Annotated[
    str,
    typer.Option("--on", "--launch", metavar="BACK END", help="Back end: local, slurm, kubernetes or ray."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Launch setting, for example slurm.partition=gpu or time_limit=12h; repeatable.",
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND...",
        help="Command to run, without `calotype`, after all launch options: train sd2-base.",
    ),
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Job id or job folder.")]
app.command(
    "render-serving",
    epilog=examples(
        "calotype launch render-serving sdxl --image registry.example/calotype-serve:1",
        "calotype launch render-serving --file serving.yaml --set max_replicas=4 --out manifests",
    ),
)(launch_serving.command)
# Everything from the first argument on belongs to the command, including its options.
_TAKES_COMMAND = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def _spec(
    context: typer.Context, words: list[str] | None, options: LaunchOptions, *, ask_cluster: bool
) -> "LaunchSpec":
    """The validated launch of the typed command, or of the command in the launch file."""
    from calotype.cli.launch_validation import checked
    from calotype.launch.submit import settled

    name = "-".join(words[:2]) if words else "calotype"
    spec = settled(options.spec(name, words or ()))
    return checked(context, spec, options, ask_cluster=ask_cluster)


@app.command(
    context_settings=_TAKES_COMMAND,
    epilog=examples("calotype launch render --on slurm --nodes 2 train sd2-base"),
)
def render(
    context: typer.Context,
    where: Where,
    words: Words = None,
    launch_file: File = None,
    sets: Sets = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output folder. Default: print to stdout.")
    ] = None,
) -> None:
    """Print the job file of a command, usable without Calotype. Contacts no cluster."""
    from calotype.launch.registry import open_backend

    backend = open_backend(where)
    options = LaunchOptions(where, launch_file, sets or (), nodes, gpus_per_node)
    rendered = backend.render(_spec(context, words, options, ask_cluster=False))
    for name, text in rendered.files.items():
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
            typer.echo(out / name)
        else:
            typer.echo(text, nl=False)
    for note in rendered.notes:
        typer.echo(note, err=True)


@app.command(
    context_settings=_TAKES_COMMAND,
    epilog=examples(
        "calotype launch submit --on slurm --nodes 2 --gpus-per-node 8 train sd2-base",
        "calotype launch submit --on local bench ceiling",
    ),
)
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
    """Submit a command as a job.

    `calotype train RECIPE --launch slurm --nodes 2` is a short form for training.
    """
    options = LaunchOptions(where, launch_file, sets or (), nodes, gpus_per_node)
    submit_launch(where, _spec(context, words, options, ask_cluster=True), as_json)


@app.command(epilog=examples("calotype launch status train-sd2-base-1a2b"))
def status(job: Job, as_json: AsJson = False) -> None:
    """Show the state of a job: pending, running, completed, failed, cancelled, timed_out or lost."""
    from calotype.cli.output import console, print_json

    record, backend = _opened(job)
    found = _status(backend, record)
    if as_json:
        print_json(
            {"id": record.id, "backend": record.backend, "handle": record.handle, **found.model_dump()}
        )
        return
    out = console()
    out.print(f"{record.id}: {_describe(found)}", soft_wrap=True)
    for task in found.tasks:
        why = f" ({task.reason})" if task.reason else ""
        out.print(f"  task {task.task}: {task.state.value}{why}", soft_wrap=True)


@app.command(
    epilog=examples(
        "calotype launch logs train-sd2-base-1a2b --follow",
        "calotype launch logs train-sd2-base-1a2b --rank 0 -n 100",
    )
)
def logs(
    job: Job,
    rank: Annotated[int | None, typer.Option(min=0, help="Only the process of this rank.")] = None,
    task: Annotated[int | None, typer.Option(min=0, help="Only this task of a job array.")] = None,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=0, help="Only the last N lines.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines until the job ends.")
    ] = False,
) -> None:
    """Show the output of the processes of a job, each line with its rank."""
    from calotype.launch.backend import LogsWanted

    record, backend = _opened(job)
    for line in backend.logs(record, LogsWanted(rank=rank, task=task, lines=lines, follow=follow)):
        typer.echo(line)


@app.command(epilog=examples("calotype launch cancel train-sd2-base-1a2b"))
def cancel(job: Job) -> None:
    """Cancel a job; training saves a checkpoint first."""
    record, backend = _opened(job)
    found = _status(backend, record)
    if found.state.is_over:
        typer.echo(f"{record.id} has already ended: {_describe(found)}")
        return
    backend.cancel(record)
    typer.echo(f"{record.id} is being cancelled; check with calotype launch status {record.id}")


@app.command("list", epilog=examples("calotype launch list"))
def list_jobs(as_json: AsJson = False) -> None:
    """List jobs and their states, newest first."""
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
            # An unreachable cluster must not hide the jobs of others.
            state = f"unknown: {error}"
        rows.append((record, state))
    if as_json:
        print_json([{"id": record.id, "state": state, "folder": record.folder} for record, state in rows])
        return
    table = Table("job", "state", "back end", "submitted", "command")
    for record, state in rows:
        words = " ".join(["calotype", *record.spec.words()])
        table.add_row(record.id, state, f"{record.backend} {record.handle}", record.submitted_at, words)
    console().print(table if rows else "no jobs; submit one with `calotype train RECIPE --launch slurm`")


@app.command(
    epilog=examples(
        "calotype launch collect bench-inference-1a2b", "calotype launch collect bench-inference-1a2b --json"
    )
)
def collect(job: Job, as_json: AsJson = False) -> None:
    """Show the benchmark results of a job: the row of a training, or the points of a sweep so far."""
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


def _describe(status: "JobStatus") -> str:
    words = [status.state.value]
    words += [f"({status.reason})"] if status.reason else []
    words += [f"with code {status.exit_code}"] if status.exit_code else []
    words += [f"on {', '.join(status.nodes)}"] if status.nodes else []
    times = "once" if status.restarts == 1 else f"{status.restarts} times"
    words += [f"after being requeued {times}"] if status.restarts else []
    return " ".join(words)
