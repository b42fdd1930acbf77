"""`calotype mig`: look at GPU slices, plan them, change them without fear.

Keeping them: `mig_keeping`; serving from them: `mig_deploying`.
"""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli import mig_deploy, mig_persist
from calotype.cli.common_options import AsJson
from calotype.cli.mig_apply import change_to, file_targets, read_text, wanted_layout
from calotype.cli.mig_options import Driver, Gpu, Label, Records, Wants, Yes

app = typer.Typer(no_args_is_help=True, help="Cut GPUs into slices (MIG): plan, apply, persist, put back.")

LayoutSource = Annotated[Path, typer.Argument(help="A layout file, or a mig-parted configuration.")]


@app.command()
def status(driver: Driver = "auto", as_json: AsJson = False) -> None:
    """GPUs that can be cut, their slices with places and UUIDs, and what runs inside."""
    from calotype.cli.mig_tables import show_state, state_json
    from calotype.cli.output import console, print_json
    from calotype.mig.open_driver import open_driver

    states = open_driver(driver).read()
    if as_json:
        print_json([state_json(state) for state in states])
        return
    for state in states:
        show_state(console(), state)
    if not states:
        typer.echo("no GPU here can be cut into slices")


@app.command()
def plan(
    wants: Wants,
    on: Annotated[
        str | None, typer.Option(help="A GPU of the table, for instance A100-80GB; no GPU is needed.")
    ] = None,
    gpu: Gpu = 0,
    objective: Annotated[
        str, typer.Option(help="throughput, instances, waste or keep (what is there).")
    ] = "throughput",
    beside: Annotated[bool, typer.Option("--add", help="Beside the slices that are there.")] = False,
    most: Annotated[int, typer.Option(min=1, max=20, help="Layouts to show.")] = 3,
    records: Records = None,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """Find layouts for WANTS, or prove that there is none and say what would fit."""
    from calotype.cli.mig_tables import plan_json, show_plans
    from calotype.cli.output import console, print_json
    from calotype.core.errors import Problem, RequestError, did_you_mean
    from calotype.mig.driver import gpu_at
    from calotype.mig.layout import EMPTY
    from calotype.mig.measured_speeds import with_records
    from calotype.mig.open_driver import open_driver
    from calotype.mig.performance_model import shipped
    from calotype.mig.planner import Objective, PlanRequest, plans
    from calotype.mig.profiles import model_named
    from calotype.mig.request_syntax import parse_requests

    if objective not in list(Objective):
        rule = f"{objective!r} is not an objective; {did_you_mean(objective, list(Objective))}"
        raise RequestError([Problem("--objective", rule, objective)])
    state = None if on else gpu_at(open_driver(driver), gpu)
    model, existing = (state.model, state.layout) if state else (model_named(on or ""), EMPTY)
    figures = with_records(shipped(), records or ())
    question = PlanRequest(
        gpu=model,
        wants=parse_requests(wants, model, figures),
        figures=figures,
        objective=Objective(objective),
        existing=existing,
        locked=existing.slices if beside else (),
    )
    found = plans(question, most)
    if as_json:
        print_json([plan_json(each, model) for each in found])
        return
    show_plans(console(), question, found)


@app.command()
def predict(
    work: Annotated[str, typer.Argument(help="A model, for instance sd15@4; train:NAME with --records.")],
    on: Annotated[str, typer.Option(help="A GPU of the table.")] = "A100-80GB",
    records: Records = None,
    as_json: AsJson = False,
) -> None:
    """The speed to expect of WORK in every slice of a GPU. A prediction, not a measurement."""
    from calotype.cli.mig_tables import show_predictions
    from calotype.cli.output import console, print_json
    from calotype.core.errors import Problem, RequestError
    from calotype.mig import performance_model as known
    from calotype.mig.measured_speeds import with_records
    from calotype.mig.profiles import model_named
    from calotype.mig.request_syntax import parse_requests

    model = model_named(on)
    figures = with_records(known.shipped(), records or ())
    wants = parse_requests(work, model, figures).fixed
    if len(wants) != 1 or wants[0].model is None:
        raise RequestError([Problem("WORK", f"{work!r} should be one model, for instance sd15@4", work)])
    want = wants[0]
    rows = [
        (profile, known.predict(figures, model, profile, want.model, want.batch), want.satisfied_by(profile))
        for profile in model.profiles
    ]
    if as_json:
        print_json([{"profile": p.name, "prediction": expected, "fits": fits} for p, expected, fits in rows])
        return
    show_predictions(console(), rows)


@app.command()
def apply(
    wants: Annotated[
        str | None,
        typer.Argument(help="Shapes such as 2g.20gb×3,1g.10gb+me; work such as 3×sd15@4; 'empty' or 'off'."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A layout file or mig-parted configuration instead.")
    ] = None,
    label: Label = None,
    gpu: Gpu = 0,
    beside: Annotated[bool, typer.Option("--add", help="Beside the slices that are there.")] = False,
    yes: Yes = False,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """Cut a GPU. Shows the exact nvidia-smi commands; with --yes does it, or puts everything back."""
    from calotype.core.errors import Problem, RequestError
    from calotype.mig.open_driver import open_driver

    if (wants is None) == (source is None):
        raise RequestError([Problem("WANTS", "give either WANTS or --from FILE")])
    if beside and (source is not None or (wants or "").strip().lower() in ("off", "empty")):
        rule = (
            "adds slices, and this says what all of them are to be; leave --add out, or name shapes or work"
        )
        raise RequestError([Problem("--add", rule)])
    opened = open_driver(driver)
    if source is not None:
        change_to(opened, file_targets(opened, source, label), yes=yes, as_json=as_json)
        return
    change_to(opened, {gpu: wanted_layout(opened, gpu, wants or "", beside=beside)}, yes=yes, as_json=as_json)


@app.command()
def restore(
    source: LayoutSource,
    label: Label = None,
    yes: Yes = False,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """Bring GPUs back to a saved layout; only what differs is changed, so it may run any number of times."""
    from calotype.mig.open_driver import open_driver

    opened = open_driver(driver)
    change_to(opened, file_targets(opened, source, label), yes=yes, as_json=as_json)


@app.command()
def export(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file; stdout if not said.")] = None,
    style: Annotated[str, typer.Option("--format", help="layout (with places) or mig-parted.")] = "layout",
    driver: Driver = "auto",
) -> None:
    """Write what the GPUs are cut into now."""
    from calotype.core.errors import Problem, RequestError
    from calotype.core.paths import atomic_write
    from calotype.mig.layout_file import saved
    from calotype.mig.mig_parted import as_parted
    from calotype.mig.open_driver import open_driver

    if style not in ("layout", "mig-parted"):
        raise RequestError([Problem("--format", f"{style!r} should be layout or mig-parted", style)])
    states = open_driver(driver).read()
    text = as_parted(states) if style == "mig-parted" else saved(states).text()
    if out is None:
        typer.echo(text, nl=False)
        return
    with atomic_write(out, "w") as file:
        file.write(text)
    typer.echo(f"wrote {out}")


@app.command("assert")
def assert_(
    source: LayoutSource, label: Label = None, driver: Driver = "auto", as_json: AsJson = False
) -> None:
    """Check that the GPUs are cut as a file says; ends with 7 when they are not."""
    from calotype.cli.output import print_json
    from calotype.core.errors import ExitCode
    from calotype.mig.diff import diff
    from calotype.mig.driver import gpu_at
    from calotype.mig.open_driver import open_driver

    opened = open_driver(driver)
    wrong = []
    for index, target in file_targets(opened, source, label).items():
        state = gpu_at(opened, index)
        wrong += diff(state, target).commands(index)
    if as_json:
        print_json({"as_described": not wrong, "missing": wrong})
    elif not wrong:
        typer.echo("the GPUs are cut as it says")
    else:
        typer.echo("the GPUs differ; what would bring them there:\n  " + "\n  ".join(wrong), err=True)
    if wrong:
        raise typer.Exit(int(ExitCode.GPU_REFUSED))


@app.command()
def check(
    source: Annotated[Path, typer.Argument(help="A mig-parted configuration.")], as_json: AsJson = False
) -> None:
    """Check every configuration of a mig-parted file against the table of GPUs; no GPU is needed."""
    from calotype.cli.output import print_json
    from calotype.mig.mig_parted import parse_parted, validated

    found = validated(parse_parted(read_text(source), str(source)))
    if as_json:
        print_json(found)
        return
    for name, verdict in found.items():
        typer.echo(f"{name}: {', '.join(verdict.suits) or 'no GPU in the table'}")
        for unknown in verdict.unjudged:
            typer.echo(f"  not judged: {unknown}")


# Help lists verbs in this order: the way an operator goes.
mig_persist.add_to(app)
mig_deploy.add_to(app)
