"""`calotype bench scale`: measure the scaling of training, fit a model to it and predict more GPUs."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calotype.cli.common_options import AsJson, ModelsFolder

if TYPE_CHECKING:
    from calotype.spec.records.measurement import Measurement
    from calotype.spec.records.scaling import ScalingRecord

_HOW_MUCH = "is required with a bandwidth; the gradients of the SD 2 UNet take 3.46 GB in fp32"


def command(
    recipe: Annotated[
        str | None, typer.Argument(help="Recipe to measure here. Default: measure nothing.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...", help="Recipe settings to override, for example model.micro_batch_size=8."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output folder for records and study.")
    ] = None,
    devices: Annotated[str, typer.Option(help="Numbers of devices to measure, comma-separated.")] = "1,2",
    mode: Annotated[str, typer.Option(help="Scaling mode: weak, strong or both.")] = "both",
    records: Annotated[
        list[Path] | None,
        typer.Option("--with", help="Records measured elsewhere, for example on more nodes; repeatable."),
    ] = None,
    nodes: Annotated[
        str, typer.Option(help="Numbers of nodes to predict for, comma-separated.")
    ] = "1,2,4,8,16,32,64",
    gpus_per_node: Annotated[int, typer.Option(min=1, help="GPUs per node to predict for.")] = 8,
    gradient_gb: Annotated[
        float | None,
        typer.Option(min=0, help="Gradients exchanged per step in GB; required with a bandwidth."),
    ] = None,
    links: Annotated[
        Path | None,
        typer.Option(help="Links measured by torchrun -m calotype.bench.scaling.measure_links."),
    ] = None,
    inside_gb_s: Annotated[
        float | None, typer.Option(min=0, help="Bandwidth between the GPUs of a node in GB/s.")
    ] = None,
    between_gb_s: Annotated[
        float | None, typer.Option(min=0, help="Bandwidth between nodes in GB/s.")
    ] = None,
    latency_us: Annotated[
        float | None, typer.Option(min=0, help="Latency of a message between nodes in µs.")
    ] = None,
    spread_ms: Annotated[
        float | None, typer.Option(min=0, help="Standard deviation of the time of a micro-batch in ms.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over all points.")] = 1,
    units: Annotated[int | None, typer.Option(min=1, help="Measured steps. Default: 30.")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Warm-up steps. Default: 10.")] = None,
    limit_s: Annotated[
        float | None, typer.Option(min=0, help="Abort a point after this many seconds.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda. Default: a GPU if there is one, else the CPU.")
    ] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Measure weak and strong scaling, fit a performance model to it and predict up to 64 nodes of 8 GPUs.

    To add points on more nodes, measure them under your launcher (calotype train --benchmark --record FILE)
    and pass them as --with FILE. Without recipe and records it shows the model fitted to published points.
    """
    from calotype.bench.scaling.predict import PredictionRequest, study
    from calotype.cli.output import print_json
    from calotype.core.paths import atomic_write
    from calotype.spec.records.scaling import FILE

    given = {
        **_links(links, gradient_gb),
        **_given(gradient_gb, inside_gb_s, between_gb_s, latency_us, spread_ms),
    }
    counts, predicted_nodes = _counts("--devices", devices), _counts("--nodes", nodes)
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
    record = study(found, PredictionRequest(shlex.join(words), given, predicted_nodes, gpus_per_node))
    if out is not None:
        with atomic_write(out / FILE, "w") as file:
            file.write(record.model_dump_json(indent=1) + "\n")
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    _show(record)
    if out is not None:
        typer.echo(f"results are in {out}; `calotype report {out} --out REPORT` plots them")


def _links(links: Path | None, gradient_gb: float | None) -> dict[str, float]:
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
        rule = f"{links} is not a record of links: {error.errors()[0]['msg']}"
        raise RequestError([Problem("--links", rule)]) from None


def _given(
    gradient_gb: float | None,
    inside_gb_s: float | None,
    between_gb_s: float | None,
    latency_us: float | None,
    spread_ms: float | None,
) -> dict[str, float]:
    """Parameters of the performance model that the options give."""
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
        rule = f"{wrong[0]!r} should be KEY=VALUE, for example model.micro_batch_size=8"
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
        raise RequestError([Problem("--out", "is required with a recipe; give a folder for the records")])
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
            [Problem(option, f"{text!r} is not a list of counts; write for example 1,2,4", text)]
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
