"""`calotype bench serve`: measure a deployment under load, with a plain diffusers server as baseline."""

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

_LOAD, _REQUEST, _BASELINES = "Load", "Request", "Baselines"


def command(
    model: Annotated[
        str, typer.Argument(help="Model: catalogue name, file, folder or random:NAME.")
    ] = "emoji",
    clients: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Closed loop: concurrent clients, each with one request at a time. Default: 8.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            help="Open loop: mean random arrivals per second, instead of --clients.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(min=1e-3, help="Duration of the load in seconds. Default: 60.", rich_help_panel=_LOAD),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="Number of requests, instead of --duration.", rich_help_panel=_LOAD),
    ] = None,
    warmup: Annotated[float, typer.Option(min=0, help="Warm-up in seconds.", rich_help_panel=_LOAD)] = 5.0,
    solo: Annotated[
        int, typer.Option(min=0, help="Requests sent one at a time before the load.", rich_help_panel=_LOAD)
    ] = 10,
    few: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Then measure with this many closed-loop clients; repeatable.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(
            min=0.01,
            max=1,
            help="Then measure open-loop arrivals at this share of the throughput; repeatable.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(min=1e-3, help="Latency target in seconds for goodput.", rich_help_panel=_LOAD),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1e-3, help="Timeout of a request in seconds.", rich_help_panel=_LOAD)
    ] = 600.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random arrivals.", rich_help_panel=_LOAD)] = 0,
    interface: Annotated[
        str,
        typer.Option(help="Interface to load: http (/v1/jobs), openai or grpc.", rich_help_panel=_REQUEST),
    ] = "http",
    steps: Annotated[int, typer.Option(help="Number of sampling steps.", rich_help_panel=_REQUEST)] = 20,
    cfg: Annotated[
        float, typer.Option(help="Classifier-free guidance scale; 1 turns it off.", rich_help_panel=_REQUEST)
    ] = 7.5,
    width: Annotated[
        int | None, typer.Option("--width", "-W", help="Image width in pixels.", rich_help_panel=_REQUEST)
    ] = None,
    height: Annotated[
        int | None, typer.Option("--height", "-H", help="Image height in pixels.", rich_help_panel=_REQUEST)
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Also measure a plain diffusers server.", rich_help_panel=_BASELINES),
    ] = False,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline", help="Also measure the engine without a server.", rich_help_panel=_BASELINES
        ),
    ] = False,
    batches: Annotated[
        str, typer.Option(help="Batch sizes of --offline, comma-separated.", rich_help_panel=_BASELINES)
    ] = "1,2,4,8,16",
    deployment: Annotated[
        str | None, typer.Option(help="Running deployment to measure. Default: start a temporary one.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="calotype, or nothing for a fake engine that measures the serving overhead.")
    ] = "calotype",
    preset: Annotated[str, typer.Option(help="Optimization preset; see `calotype engine presets`.")] = "fast",
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16. Default: fp16 on a GPU, fp32 on a CPU.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Device of the temporary deployment: cpu, cuda:N, a UUID or auto.")
    ] = "auto",
    max_rows: Annotated[int | None, typer.Option(help="Maximum rows of one UNet evaluation.")] = None,
    models: ModelsFolder = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="CALOTYPE_API_KEY", help="API key, if the deployment requires one.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output folder for the records.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure throughput and latency of a deployment under load.

    Starts a temporary deployment and stops it at the end or at Ctrl-C; --out then holds the records of the
    finished phases. Fails if a request was lost or executed twice.
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
    baselines = _Baselines(plain, _batches(batches) if offline else ())
    _check(wanted, baselines)
    with stoppable(), show_progress() as bar:
        if deployment is not None:
            measured = _measure(nullcontext(known_deployment(deployment)), plan, baselines, bar, out)
        else:
            measured = _measure(temporary_deployment(wanted, bar.describe), plan, baselines, bar, out)
    _show(measured, out, as_json)
    if not measured.adds_up:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Baselines:
    """Baselines to measure as well."""

    plain: bool
    batches: tuple[int, ...]


@dataclass(frozen=True)
class _Measured:
    """Results of a run."""

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
        Problem(one, f"--{one} and --{other} exclude each other; give one of them")
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
        raise RequestError(
            [Problem("batches", f"{text!r} is not a list of batch sizes; write for example 1,4,8")]
        )
    return found


def _check(plan: "DeploymentConfig", baselines: _Baselines) -> None:
    from calotype.core.errors import Problem, RequestError

    if plan.engine != "calotype" and (baselines.plain or baselines.batches):
        rule = f"{plan.engine!r} generates no images to compare; omit --plain and --offline"
        raise RequestError([Problem("engine", rule, plan.engine)])


def _measure(
    started: "AbstractContextManager[Target]",
    plan: "ServePlan",
    baselines: _Baselines,
    bar: "Progress",
    out: Path | None,
) -> _Measured:
    """Run the phases one after another, so that none shares the machine, and store each when it ends."""
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
        record = as_measurement(
            phase, target, plan, device=device, machine=machine, command=words, started_at=at
        )
        keep(record)

    bar.start("starting a deployment", 2)
    with started as target:
        phases, device = asyncio.run(on_deployment(target, plan, bar, finished))
    wanted = target.plan
    if baselines.plain:
        bar.start("starting a plain server", 2)
        place = None if wanted.devices[0] == "auto" else wanted.devices[0]
        with baseline_server(wanted.models[0], place, wanted.precision, wanted.models_folder) as url:
            phases.append(asyncio.run(on_baseline(url, plan, bar)))
        finished(phases[-1], device)
    pure = []
    if baselines.batches:
        # Imported here, as only this phase needs torch, with its memory and import time.
        from calotype.bench.serve.offline import offline

        pure = offline(wanted, plan.request, baselines.batches, bar, keep)
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
