"""The root of the command line: registers the commands and turns errors into messages and exit codes."""

import errno
import os
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from calotype.cli import (
    bench,
    compare,
    data,
    deployments,
    engine,
    generate,
    keys,
    launch,
    mig,
    models,
    profile,
    query,
    report,
    serve,
    train,
    update,
)
from calotype.cli import workflow as run_workflow
from calotype.cli.doctor.command import command as doctor
from calotype.cli.examples import examples
from calotype.cli.value_checks import check_values_of
from calotype.core.errors import DISK_FULL_CODES, CalotypeError, ExitCode, RequestError
from calotype.core.extras import missing_extra
from calotype.version import VERSION

_EXIT_CODES = (
    "Exit codes: 0 success · 1 bug in calotype · 2 bad request or usage · 3 bad or unsafe model file · "
    "4 not found · 5 does not fit in memory · 6 needs the network · 7 the GPU or its driver refused · "
    "8 other processes of the run were lost · 9 disk full · 130 cancelled · "
    "141 output closed by its reader."
)

_READ_ONLY_CODES = (errno.EROFS, errno.EACCES, errno.EPERM)
_DISK_CODES = (
    *DISK_FULL_CODES,
    *_READ_ONLY_CODES,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
)
"""Errors of the file system that the user has to fix."""


class _Root(TyperGroup):
    """Checks the values of all parameters and reports invalid ones like any other bad request."""

    def invoke(self, ctx: Any) -> object:
        check_values_of(self)
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            raise _as_request_error(error) from error


def _as_request_error(error: typer.BadParameter) -> Exception:
    from pydantic import ValidationError

    from calotype.spec.validation_errors import problem_of_one

    if error.param is None or not isinstance(error.__cause__, ValidationError):
        return error
    return RequestError([problem_of_one(max(error.param.opts, key=len), error.__cause__)])


app = typer.Typer(
    name="calotype",
    cls=_Root,
    help="Stable Diffusion on data-center GPUs: generate images, serve, train and benchmark models.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command(
    "generate",
    epilog=examples(
        'calotype generate "a red apple"',
        'calotype generate "a castle" -m sd15 --steps 30 -n 4 --out castles',
        "calotype generate --from castles/a-castle-seed7.png --cfg 5",
    ),
)(generate.command)
app.command(
    "run",
    epilog=examples("calotype run workflow.json", "calotype run workflow.json --set 3.seed=5 --out results"),
)(run_workflow.command)
app.command(
    "compare",
    epilog=examples(
        'calotype compare --presets fast,int8 --out runs/compare "a red apple"',
        "calotype compare --presets fast,fp8:bf16 -m sdxl --prompts-file prompts.txt -o runs/sdxl",
    ),
)(compare.command)
app.command("doctor", epilog=examples("calotype doctor", "calotype doctor --json"))(doctor)
app.command(
    "report",
    epilog=examples(
        "calotype report runs/sweep --out report",
        'calotype report runs/a runs/b.jsonl --out report --title "H200, May"',
    ),
)(report.command)
app.command(
    "serve",
    epilog=examples("calotype serve", "calotype serve sd15 sdxl --device cuda:0 --device cuda:1 --port 8080"),
)(serve.serve)
app.command(
    "deploy",
    epilog=examples(
        "calotype deploy sdxl --name prod --device all",
        "calotype deploy sdxl --name prod --engine ray --replicas 4",
    ),
)(serve.deploy)
app.command(
    "query",
    epilog=examples(
        'calotype query calotype "a red apple"',
        'calotype query gpu1:50051 "a castle" -m sdxl -n 4 --seed 7 --out castles',
    ),
)(query.command)
app.command("deployments", epilog=examples("calotype deployments", "calotype deployments --json"))(
    deployments.deployments
)
app.command("logs", epilog=examples("calotype logs calotype", "calotype logs prod -n 200 --follow"))(
    deployments.logs
)
app.command("undeploy", epilog=examples("calotype undeploy prod", "calotype undeploy prod --now --purge"))(
    deployments.undeploy
)
app.command(
    "update",
    epilog=examples(
        "calotype update prod", "calotype update prod sdxl --preset max-throughput --max-replicas 8"
    ),
)(update.update)
app.add_typer(keys.app, name="keys")
app.add_typer(models.app, name="models")
app.add_typer(train.app, name="train")
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
app.add_typer(profile.app, name="profile")
app.add_typer(engine.app, name="engine")
app.add_typer(mig.app, name="mig")
app.add_typer(launch.app, name="launch")


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"calotype {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    del version


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Any error but a CalotypeError, a disk error or a missing extra is a bug and shows its traceback.
    """
    try:
        _replace_unencodable()
        app(arguments)
    except SystemExit as stop:
        return _exit_code_of(stop)
    except CalotypeError as error:
        _print_error(f"error: {error}")
        return int(error.exit_code)
    except OSError as error:
        if error.errno not in _DISK_CODES:
            raise
        _print_error(f"error: {_disk_message(error)}")
        return int(ExitCode.DISK_FULL if error.errno in DISK_FULL_CODES else ExitCode.BAD_REQUEST)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        _print_error(f"error: {missing}")
        return int(missing.exit_code)
    except KeyboardInterrupt:
        _print_error("cancelled")
        return int(ExitCode.CANCELLED)
    return int(ExitCode.OK)


def _replace_unencodable() -> None:
    """Print a question mark for characters that the encoding of the terminal lacks, instead of failing."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _print_error(message: str) -> None:
    """Print to stderr; a closed terminal does not change the exit code."""
    try:
        print(message, file=sys.stderr)
    except OSError:
        # Python flushes stderr again at exit, which would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _exit_code_of(stop: SystemExit) -> int:
    """The exit code; typer prints nothing at Ctrl-C and exits with 1 at a broken pipe."""
    cause = stop.__context__
    if isinstance(cause, BrokenPipeError):
        return int(ExitCode.READER_LEFT)
    if cause is not None and isinstance(cause.__cause__, KeyboardInterrupt):
        _print_error("cancelled")
    return stop.code if isinstance(stop.code, int) else int(ExitCode.OK)


def _disk_message(error: OSError) -> str:
    """The file, the error of the system and a fix."""
    fixes = {
        **dict.fromkeys(DISK_FULL_CODES, "free some space, or "),
        **dict.fromkeys(_READ_ONLY_CODES, "make it writable, or "),
    }
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}; {fixes.get(error.errno or 0, '')}choose another path"
