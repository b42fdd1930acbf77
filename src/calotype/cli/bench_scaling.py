"""`calotype bench scale`: how training scales, why, and what more GPUs would do."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calotype.cli.common_options import AsJson, ModelsFolder

if TYPE_CHECKING:
    from calotype.spec.records.measurement import Measurement
    from calotype.spec.records.scaling import ScalingRecord

_HOW_MUCH = "a bandwidth says something once it is known how much travels; SD 2's UNet has 3.46 GB in fp32"


def command(
    recipe: Annotated[
        str | None, typer.Argument(help="A recipe to measure here; without one nothing is measured.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="For instance model.micro_batch_size=8."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A folder for records and study.")] = None,
    devices: Annotated[str, typer.Option(help="Numbers of devices, with commas between.")] = "1,2",
    mode: Annotated[str, typer.Option(help="weak, strong or both.")] = "both",
    records: Annotated[
        list[Path] | None,
        typer.Option("--with", help="Records measured elsewhere, on more nodes. Repeatable."),
    ] = None,
    nodes: Annotated[str, typer.Option(help="Numbers of nodes to predict for.")] = "1,2,4,8,16,32,64",
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Of the nodes to predict for.")] = 8,
    gradient_gb: Annotated[
        float | None, typer.Option(min=0, help="Gradients exchanged a step, where a bandwidth is given.")
    ] = None,
    links: Annotated[
        Path | None,
        typer.Option(help="Wires that torchrun -m calotype.bench.scaling.measure_links measured."),
    ] = None,
    inside_gb_s: Annotated[float | None, typer.Option(min=0, help="Bandwidth between a node's GPUs.")] = None,
    between_gb_s: Annotated[float | None, typer.Option(min=0, help="Bandwidth of a node to others.")] = None,
    latency_us: Annotated[float | None, typer.Option(min=0, help="Of a message between nodes.")] = None,
    spread_ms: Annotated[
        float | None, typer.Option(min=0, help="Standard deviation of a micro-batch.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often to go over all points.")] = 1,
    units: Annotated[int | None, typer.Option(min=1, help="Steps by the clock: 30.")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Steps before: 10.")] = None,
    limit_s: Annotated[float | None, typer.Option(min=0, help="Give up points that take longer.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Measure weak and strong scaling, fit a model of a step to it, and predict up to 64 nodes of 8 GPUs.

    calotype bench scale sd2-base model.global_batch_size=64 --devices 1,2,4,8 --out runs/scale. More nodes
    are measured under your launcher (calotype train --benchmark --record FILE) and added by --with FILE.
    Without a recipe and records it shows what the model makes of published points.
    """
    from calotype.bench.scaling.predict import PredictionRequest, study
    from calotype.cli.output import print_json
    from calotype.core.paths import atomic_write
    from calotype.spec.records.scaling import FILE

    given = {
        **_wires(links, gradient_gb),
        **_given(gradient_gb, inside_gb_s, between_gb_s, latency_us, spread_ms),
    }
    counts, asked_nodes = _counts("--devices", devices), _counts("--nodes", nodes)
    how: dict[str, Any] = {"rounds": rounds, "limit_s": limit_s, "models": models}
    found: list[Measurement] = []
    if recipe is not None:
        settings = _settings(recipe, overrides or [])
        points = _points(settings, counts, mode, device, units, warmup)
        found += _measured(points, _needed(out), how, quiet=as_json)
    found += _elsewhere(records or [])
    words = ["calotype", "bench", "scale", *([recipe] if recipe else []), *(overrides or []), "--out", "OUT"]
    words += ["--devices", devices, "--mode", mode, "--nodes", nodes, f"--gpus-per-node={gpus_per_node}"]
    known = {"--gradient-gb": gradient_gb, "--inside-gb-s": inside_gb_s, "--between-gb-s": between_gb_s}
    known |= {"--latency-us": latency_us, "--spread-ms": spread_ms}
    words += [f"{option}={value:g}" for option, value in known.items() if value is not None]
    words += [f"--with={file}" for file in records or []] + ([f"--links={links}"] if links else [])
    record = study(found, PredictionRequest(shlex.join(words), given, asked_nodes, gpus_per_node))
    if out is not None:
        with atomic_write(out / FILE, "w") as file:
            file.write(record.model_dump_json(indent=1) + "\n")
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    _show(record)
    if out is not None:
        typer.echo(f"everything is in {out}; `calotype report {out} --out REPORT` draws it")


def _wires(links: Path | None, gradient_gb: float | None) -> dict[str, float]:
    from pydantic import ValidationError

    from calotype.bench.scaling.predict import parameters_of
    from calotype.core.errors import NotFoundError, Problem, RequestError
    from calotype.spec.records.scaling import LinksRecord

    if links is None:
        return {}
    if gradient_gb is None:
        raise RequestError([Problem("--gradient-gb", _HOW_MUCH)])
    try:
        return parameters_of(LinksRecord.model_validate_json(links.read_bytes()), gradient_gb)
    except FileNotFoundError:
        raise NotFoundError(f"--links: {links} is not there") from None
    except ValidationError as error:
        rule = f"{links} is no record of links: {error.errors()[0]['msg']}"
        raise RequestError([Problem("--links", rule)]) from None


def _given(
    gradient_gb: float | None,
    inside_gb_s: float | None,
    between_gb_s: float | None,
    latency_us: float | None,
    spread_ms: float | None,
) -> dict[str, float]:
    """What the user knows, as parameters of the model."""
    from calotype.core.errors import Problem, RequestError

    bandwidths = {"inside_s": inside_gb_s, "between_s": between_gb_s}
    if gradient_gb is None and any(bandwidths.values()):
        raise RequestError([Problem("--gradient-gb", _HOW_MUCH)])
    found = {name: (gradient_gb or 0) / speed for name, speed in bandwidths.items() if speed}
    if latency_us is not None:
        found["between_latency_s"] = latency_us / 1e6
    if spread_ms is not None:
        found["spread_s"] = spread_ms / 1e3
    return found


def _settings(recipe: str, overrides: list[str]) -> dict[str, Any]:
    from calotype.core.errors import Problem, RequestError

    wrong = [word for word in overrides if "=" not in word]
    if wrong:
        rule = f"{wrong[0]!r} should be KEY=VALUE, for instance model.micro_batch_size=8"
        raise RequestError([Problem("override", rule, wrong[0])])
    pairs = (word.partition("=") for word in overrides)
    return {"recipe": recipe, **{name: value for name, _, value in pairs}}


def _points(
    settings: dict[str, Any],
    devices: list[int],
    mode: str,
    device: str | None,
    units: int | None,
    warmup: int | None,
) -> "Sequence[Any]":
    from calotype.bench.scaling.plan import scale_points
    from calotype.core.errors import Problem, RequestError

    if mode not in ("weak", "strong", "both"):
        raise RequestError([Problem("--mode", f"{mode!r} is not one of weak, strong, both", mode)])
    return scale_points(settings, devices, mode, device=device, units=units, warmup=warmup)  # type: ignore[arg-type]


def _measured(points: "Sequence[Any]", out: Path, how: dict[str, Any], *, quiet: bool) -> "list[Measurement]":
    from calotype.bench.sweep.runner import SweepPlan
    from calotype.cli.bench_sweep import measured, show

    done = measured(SweepPlan(points, out, **how))
    if not quiet:
        show(done, out, as_json=False)
    return done.measurements


def _needed(out: Path | None) -> Path:
    from calotype.core.errors import Problem, RequestError

    if out is None:
        raise RequestError(
            [Problem("--out", "says where the records go; a recipe is measured into a folder")]
        )
    return out


def _elsewhere(files: list[Path]) -> "list[Measurement]":
    """Records of sweeps and of `calotype train --benchmark --record`."""
    from calotype.bench.report.load import gather

    if not files:
        return []
    material = gather(files)
    for fault in material.faults:
        typer.echo(str(fault), err=True)
    return [one.measurement for one in material.stored]


def _counts(option: str, text: str) -> list[int]:
    from calotype.core.errors import Problem, RequestError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise RequestError(
            [Problem(option, f"{text!r} is no list of counts; write for instance 1,2,4", text)]
        )
    return sorted({int(part) for part in parts})


def _show(record: "ScalingRecord") -> None:
    from calotype.bench.scaling.report import (
        PREDICTED,
        measured_rows,
        parameter_rows,
        predicted_rows,
        published_rows,
        residual_rows,
    )
    from calotype.cli.bench_sweep import print_lines

    def show(title: str, rows: list[dict[str, str]]) -> None:
        if rows:
            typer.echo(f"\n{title}")
            print_lines(rows)

    show(f"Measured: {record.title}", measured_rows(record))
    for fit in (*([record.fit] if record.fit else []), *record.published):
        show(f"Model of a step, fitted on {fit.about} ({fit.error:.1%} off them)", parameter_rows(fit))
    if record.fit:
        show("Residuals of the fit", residual_rows(record.fit))
    show(f"{record.title}: {PREDICTED}", predicted_rows(record))
    show("Published (SD 2-base, 8 × H100 a node) beside the same model", published_rows(record))
    for note in record.notes:
        typer.echo(f"note: {note}")
