"""`calotype bench serve`: load on a deployment, and on a plain diffusers server beside it."""

import shlex
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from calotype.bench.serve.clients import Interface
    from calotype.bench.serve.load_generator import Load
    from calotype.bench.serve.run import Phase, ServePlan
    from calotype.bench.serve.targets import Target
    from calotype.core.progress import Progress
    from calotype.serve.lifecycle.config import DeploymentConfig
    from calotype.spec.records.measurement import Measurement

_LOAD, _REQUEST, _BESIDE = "The load", "What is asked", "Beside it"


def command(
    model: Annotated[str, typer.Argument(help="Catalogue name, file, folder or random:NAME.")] = "emoji",
    clients: Annotated[
        int | None, typer.Option(min=1, help="Each asks again when it is answered. 8.", rich_help_panel=_LOAD)
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Instead: arrivals a second, at random.", rich_help_panel=_LOAD),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(min=1e-3, help="Seconds. Default: 60.", rich_help_panel=_LOAD)
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Instead: how many.", rich_help_panel=_LOAD)
    ] = None,
    warmup: Annotated[float, typer.Option(min=0, help="Seconds before.", rich_help_panel=_LOAD)] = 5.0,
    solo: Annotated[
        int, typer.Option(min=0, help="Requests one by one, before the load.", rich_help_panel=_LOAD)
    ] = 10,
    few: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Then so many clients, who wait for their answers; say it again for others.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(
            min=0.01,
            max=1,
            help="Then arrivals at this share of the load; say it again for others.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(min=1e-3, help="Seconds that goodput counts.", rich_help_panel=_LOAD),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1e-3, help="Seconds for a request.", rich_help_panel=_LOAD)
    ] = 600.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the arrivals.", rich_help_panel=_LOAD)] = 0,
    interface: Annotated[
        str, typer.Option(help="http (/v1/jobs), openai or grpc.", rich_help_panel=_REQUEST)
    ] = "http",
    steps: Annotated[int, typer.Option(help="Sampling steps.", rich_help_panel=_REQUEST)] = 20,
    cfg: Annotated[float, typer.Option(help="Guidance; 1 is off.", rich_help_panel=_REQUEST)] = 7.5,
    width: Annotated[int | None, typer.Option("--width", "-W", rich_help_panel=_REQUEST)] = None,
    height: Annotated[int | None, typer.Option("--height", "-H", rich_help_panel=_REQUEST)] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="A plain diffusers server too.", rich_help_panel=_BESIDE)
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="The engine without a server too.", rich_help_panel=_BESIDE)
    ] = False,
    batches: Annotated[
        str, typer.Option(help="Batch sizes of --offline.", rich_help_panel=_BESIDE)
    ] = "1,2,4,8,16",
    deployment: Annotated[str | None, typer.Option(help="One that runs, instead of one of its own.")] = None,
    engine: Annotated[str, typer.Option(help="calotype; or nothing, to measure all else.")] = "calotype",
    preset: Annotated[str, typer.Option(help="Optimisations.")] = "fast",
    precision: Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda:N, a UUID or auto.")] = "auto",
    max_rows: Annotated[int | None, typer.Option(help="Rows of one UNet evaluation.")] = None,
    models: ModelsFolder = None,
    api_key: Annotated[str | None, typer.Option(envvar="CALOTYPE_API_KEY", help="If asked for.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for records.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a deployment under load: calotype bench serve --clients 64 --duration 60 --plain.

    Starts a deployment in a folder of its own and stops it in the end; Ctrl-C does, too, and the records of
    what was over by then are in --out. Fails if a request was lost or done twice.
    """
    from calotype.bench.serve.run import ServePlan
    from calotype.bench.serve.targets import known_deployment, stoppable, temporary_deployment
    from calotype.cli.progress import show_progress
    from calotype.serve.lifecycle.config import DeploymentConfig
    from calotype.spec.bench_job import BASELINE_SAMPLER

    sizes = {"width": width, "height": height}
    plan = ServePlan(
        load=_load(clients, rate, duration, requests, warmup, seed),
        interface=_interface(interface),
        request={
            "steps": steps,
            "cfg": cfg,
            **BASELINE_SAMPLER,
            **{name: value for name, value in sizes.items() if value is not None},
        },
        target_s=target,
        solo=solo,
        few=tuple(few or ()),
        shares=tuple(share or ()),
        timeout_s=timeout,
        api_key=api_key,
    )
    wanted = DeploymentConfig.parse(
        {
            "name": "bench",
            "models": (model,),
            "devices": (device,),
            "preset": preset,
            "precision": precision,
            "max_rows": max_rows,
            "models_folder": models,
            "engine": engine,
        }
    )
    beside = _Beside(plain, _batches(batches) if offline else ())
    _check(wanted, beside)
    with stoppable(), show_progress() as bar:
        if deployment is not None:
            measured = _measure(nullcontext(known_deployment(deployment)), plan, beside, bar, out)
        else:
            measured = _measure(temporary_deployment(wanted, bar.describe), plan, beside, bar, out)
    _show(measured, out, as_json)
    if not measured.adds_up:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Beside:
    """What else is measured."""

    plain: bool
    batches: tuple[int, ...]


@dataclass(frozen=True)
class _Measured:
    """All that a run came to."""

    target: "Target"
    plan: "ServePlan"
    phases: "list[Phase]"
    offline: "list[Measurement]"

    @property
    def adds_up(self) -> bool:
        from calotype.bench.serve.report import adds_up

        return adds_up(self.phases)


def _load(
    clients: int | None,
    rate: float | None,
    duration: float | None,
    requests: int | None,
    warmup: float,
    seed: int,
) -> "Load":
    from calotype.bench.serve.load_generator import Load
    from calotype.core.errors import Problem, RequestError

    problems = [
        Problem(one, f"--{one} and --{other} are two ways to say how much; give one of them")
        for one, other, given in (
            ("clients", "rate", clients is not None and rate is not None),
            ("duration", "requests", duration is not None and requests is not None),
        )
        if given
    ]
    if problems:
        raise RequestError(problems)
    return Load(
        clients=clients or (8 if rate is None else None),
        rate=rate,
        duration_s=duration or (60.0 if requests is None else None),
        requests=requests,
        warmup_s=warmup,
        seed=seed,
    )


def _interface(name: str) -> "Interface":
    from calotype.bench.serve.clients import INTERFACES
    from calotype.core.errors import Problem, RequestError, did_you_mean

    found = next((known for known in INTERFACES if known == name), None)
    if found is None:
        raise RequestError([Problem("interface", f"no interface {name!r}; {did_you_mean(name, INTERFACES)}")])
    return found


def _batches(text: str) -> tuple[int, ...]:
    from calotype.core.errors import Problem, RequestError

    try:
        found = tuple(int(word) for word in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise RequestError([Problem("batches", f"{text!r} should be numbers and commas: 1,4,8")])
    return found


def _check(plan: "DeploymentConfig", beside: _Beside) -> None:
    from calotype.core.errors import Problem, RequestError

    if plan.engine != "calotype" and (beside.plain or beside.batches):
        rule = f"{plan.engine!r} makes no pictures to set beside others'; leave out --plain and --offline"
        raise RequestError([Problem("engine", rule, plan.engine)])


def _measure(
    started: "AbstractContextManager[Target]",
    plan: "ServePlan",
    beside: _Beside,
    bar: "Progress",
    out: Path | None,
) -> _Measured:
    """One after the other: nobody shares the machine with what is measured. Each is kept when it is over."""
    import asyncio
    import sys
    from datetime import UTC, datetime

    from calotype.bench.records.store import append
    from calotype.bench.serve.measurement import as_measurement
    from calotype.bench.serve.run import on_baseline, on_deployment
    from calotype.bench.serve.targets import baseline_server
    from calotype.core.fingerprint import fingerprint
    from calotype.spec.records.measurement import FILE

    at, machine, words = datetime.now(UTC), fingerprint(), shlex.join(["calotype", *sys.argv[1:]])

    def keep(record: "Measurement") -> None:
        if out is not None:
            append(out / FILE, record)

    def finished(phase: "Phase", device: str) -> None:
        told = as_measurement(
            phase, target, plan, device=device, machine=machine, command=words, started_at=at
        )
        keep(told)

    bar.start("starting a deployment", 2)
    with started as target:
        phases, device = asyncio.run(on_deployment(target, plan, bar, finished))
    wanted = target.plan
    if beside.plain:
        bar.start("starting a plain server", 2)
        place = None if wanted.devices[0] == "auto" else wanted.devices[0]
        with baseline_server(wanted.models[0], place, wanted.precision, wanted.models_folder) as url:
            phases.append(asyncio.run(on_baseline(url, plan, bar)))
        finished(phases[-1], device)
    pure = []
    if beside.batches:
        # It alone brings torch, whose memory and seconds nobody else should pay for.
        from calotype.bench.serve.offline import offline

        pure = offline(wanted, plan.request, beside.batches, bar, keep)
    return _Measured(target, plan, phases, pure)


def _show(measured: _Measured, out: Path | None, as_json: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from calotype.bench.serve import report
    from calotype.cli.output import console, print_json
    from calotype.spec.records.measurement import FILE

    if as_json:
        print_json(report.as_values(measured.phases, measured.offline))
        return
    headings, rows = report.table_of(measured.phases)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console().print(table)
    idle = measured.target.plan.engine.startswith("nothing")
    for line in report.sentences(measured.phases, measured.offline, idle=idle):
        typer.echo(line)
    if out is not None:
        typer.echo(f"records: {out / FILE}")
