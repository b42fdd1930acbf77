"""`calotype mig`: show, plan, change and restore the MIG slices of GPUs.

Other commands of the group are in `mig_persist.py` and `mig_deploy.py`.
"""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli import mig_deploy, mig_persist
from calotype.cli.common_options import AsJson
from calotype.cli.examples import examples
from calotype.cli.mig_apply import change_to, file_targets, read_text, wanted_layout
from calotype.cli.mig_options import Driver, Gpu, Label, Records, Wants, Yes

app = typer.Typer(
    no_args_is_help=True, help="Partition GPUs into MIG slices: plan, apply, persist and restore layouts."
)

LayoutSource = Annotated[Path, typer.Argument(help="Layout file or mig-parted configuration.")]


@app.command(epilog=examples("calotype mig status", "calotype mig status --driver simulated:gpus.json"))
def status(driver: Driver = "auto", as_json: AsJson = False) -> None:
    """Show MIG-capable GPUs, their slices with placement and UUIDs, and the processes on them."""
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
        typer.echo("no GPU here supports MIG")


@app.command(
    epilog=examples(
        'calotype mig plan "3×sd15@4,1×sdxl" --on A100-80GB',
        'calotype mig plan "*×sd15" --objective instances',
    )
)
def plan(
    wants: Wants,
    on: Annotated[
        str | None, typer.Option(help="Plan for this GPU model instead of a GPU here, for example A100-80GB.")
    ] = None,
    gpu: Gpu = 0,
    objective: Annotated[
        str, typer.Option(help="Optimize for throughput, instances, waste, or keep (existing slices).")
    ] = "throughput",
    beside: Annotated[bool, typer.Option("--add", help="Keep the existing slices and add to them.")] = False,
    most: Annotated[int, typer.Option(min=1, max=20, help="Number of layouts to show.")] = 3,
    records: Records = None,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """Find layouts for the workloads, or prove that none exists and show what would fit."""
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


@app.command(epilog=examples("calotype mig predict sd15@4 --on H100-80GB"))
def predict(
    work: Annotated[
        str, typer.Argument(help="Model and batch size, for example sd15@4; or train:NAME with --records.")
    ],
    on: Annotated[str, typer.Option(help="GPU model, for example A100-80GB.")] = "A100-80GB",
    records: Records = None,
    as_json: AsJson = False,
) -> None:
    """Predict the speed of a workload in every slice of a GPU. A prediction, not a measurement."""
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
        raise RequestError([Problem("WORK", f"{work!r} should be one model, for example sd15@4", work)])
    want = wants[0]
    rows = [
        (profile, known.predict(figures, model, profile, want.model, want.batch), want.satisfied_by(profile))
        for profile in model.profiles
    ]
    if as_json:
        print_json([{"profile": p.name, "prediction": expected, "fits": fits} for p, expected, fits in rows])
        return
    show_predictions(console(), rows)


@app.command(
    epilog=examples(
        'calotype mig apply "2g.20gb×3,1g.10gb+me"', 'calotype mig apply "3×sd15@4" --gpu 1 --yes'
    )
)
def apply(
    wants: Annotated[
        str | None,
        typer.Argument(
            help="Profiles such as 2g.20gb×3,1g.10gb+me; workloads such as 3×sd15@4; empty; or off."
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Layout file or mig-parted configuration, instead of WANTS.")
    ] = None,
    label: Label = None,
    gpu: Gpu = 0,
    beside: Annotated[bool, typer.Option("--add", help="Keep the existing slices and add to them.")] = False,
    yes: Yes = False,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """Partition a GPU. Shows the exact nvidia-smi commands; --yes runs them and rolls back on failure."""
    from calotype.core.errors import Problem, RequestError
    from calotype.mig.open_driver import open_driver

    if (wants is None) == (source is None):
        raise RequestError([Problem("WANTS", "give either WANTS or --from FILE")])
    if beside and (source is not None or (wants or "").strip().lower() in ("off", "empty")):
        rule = "adds slices, but this replaces all of them; omit --add, or name profiles or workloads"
        raise RequestError([Problem("--add", rule)])
    opened = open_driver(driver)
    if source is not None:
        change_to(opened, file_targets(opened, source, label), yes=yes, as_json=as_json)
        return
    change_to(opened, {gpu: wanted_layout(opened, gpu, wants or "", beside=beside)}, yes=yes, as_json=as_json)


@app.command(epilog=examples("calotype mig restore layout.json --yes"))
def restore(
    source: LayoutSource,
    label: Label = None,
    yes: Yes = False,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """Restore a saved layout. Only differences are changed, so it is safe to repeat."""
    from calotype.mig.open_driver import open_driver

    opened = open_driver(driver)
    change_to(opened, file_targets(opened, source, label), yes=yes, as_json=as_json)


@app.command(
    epilog=examples("calotype mig export --out layout.json", "calotype mig export --format mig-parted")
)
def export(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output file. Default: stdout.")] = None,
    style: Annotated[str, typer.Option("--format", help="layout (with placement) or mig-parted.")] = "layout",
    driver: Driver = "auto",
) -> None:
    """Export the present layout of the GPUs."""
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


@app.command(
    "assert",
    epilog=examples(
        "calotype mig assert layout.json", "calotype mig assert mig-parted.yaml --label all-1g.10gb"
    ),
)
def assert_(
    source: LayoutSource, label: Label = None, driver: Driver = "auto", as_json: AsJson = False
) -> None:
    """Check that the GPUs have the layout of a file; exit code 7 if they do not."""
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
        typer.echo("the GPUs have this layout")
    else:
        typer.echo("the GPUs differ; these commands would change them:\n  " + "\n  ".join(wrong), err=True)
    if wrong:
        raise typer.Exit(int(ExitCode.GPU_REFUSED))


@app.command(epilog=examples("calotype mig check mig-parted.yaml"))
def check(
    source: Annotated[Path, typer.Argument(help="mig-parted configuration.")], as_json: AsJson = False
) -> None:
    """Check every configuration of a mig-parted file against the known GPU models; needs no GPU."""
    from calotype.cli.output import print_json
    from calotype.mig.mig_parted import parse_parted, validated

    found = validated(parse_parted(read_text(source), str(source)))
    if as_json:
        print_json(found)
        return
    for name, verdict in found.items():
        typer.echo(f"{name}: {', '.join(verdict.suits) or 'no known GPU model'}")
        for unknown in verdict.unjudged:
            typer.echo(f"  not checked: {unknown}")


# --help lists the commands in this order, which is the order of use.
mig_persist.add_to(app)
mig_deploy.add_to(app)
