"""The command line's root: gathers the verbs, turns errors into messages and exit codes.

Knows no verb's insides.
"""

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
    "Exit codes: 0 done · 1 a bug in calotype · 2 bad request or usage · 3 bad or unsafe model file · "
    "4 not found · 5 does not fit in memory · 6 needs the network · 7 the GPU or its driver refused · "
    "8 other processes of the run were lost · 9 the disk is full · 130 cancelled · "
    "141 nobody read its output to the end."
)

_LOCKED = (errno.EROFS, errno.EACCES, errno.EPERM)
_OF_THE_DISK = (*DISK_FULL_CODES, *_LOCKED, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)
"""What a file system says no with, and no code of ours can help."""


class _Root(TyperGroup):
    """Checks all values, and tells of those that an option does not take as of any other bad request."""

    def invoke(self, ctx: Any) -> object:
        check_values_of(self)
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            raise _explained(error) from error


def _explained(error: typer.BadParameter) -> Exception:
    from pydantic import ValidationError

    from calotype.spec.validation_errors import problem_of_one

    if error.param is None or not isinstance(error.__cause__, ValidationError):
        return error
    return RequestError([problem_of_one(max(error.param.opts, key=len), error.__cause__)])


app = typer.Typer(
    name="calotype",
    cls=_Root,
    help="Stable Diffusion on data-centre GPUs: generate, serve, train, measure, slice, scale.",
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


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"calotype {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    del version


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code.

    All but a CalotypeError, and a disk that refuses, is a bug and shows its trace.
    """
    try:
        _print_whatever_comes()
        app(arguments)
    except SystemExit as stop:
        return _ended(stop)
    except CalotypeError as error:
        _say(f"error: {error}")
        return int(error.exit_code)
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        _say(f"error: {_told(error)}")
        return int(ExitCode.DISK_FULL if error.errno in DISK_FULL_CODES else ExitCode.BAD_REQUEST)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        _say(f"error: {missing}")
        return int(missing.exit_code)
    except KeyboardInterrupt:
        _say("cancelled")
        return int(ExitCode.CANCELLED)
    return int(ExitCode.OK)


def _print_whatever_comes() -> None:
    """A name or a sign that a terminal's encoding lacks costs a question mark, not the command."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _say(words: str) -> None:
    """To whoever still reads; a terminal that was closed changes no exit code."""
    try:
        print(words, file=sys.stderr)
    except OSError:
        # Python tries once more at its end, and would fail by that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _ended(stop: SystemExit) -> int:
    """The exit code; typer ends in silence at Ctrl-C, and as at a bug where nobody reads on."""
    before = stop.__context__
    if isinstance(before, BrokenPipeError):
        return int(ExitCode.READER_LEFT)
    if before is not None and isinstance(before.__cause__, KeyboardInterrupt):
        _say("cancelled")
    return stop.code if isinstance(stop.code, int) else int(ExitCode.OK)


def _told(error: OSError) -> str:
    """What the system says, of which file, and what to do."""
    fixes = {
        **dict.fromkeys(DISK_FULL_CODES, "make room there, or "),
        **dict.fromkeys(_LOCKED, "make it writable, or "),
    }
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}; {fixes.get(error.errno or 0, '')}name another place"
