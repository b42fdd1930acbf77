"""`calotype profile`: where the time of a picture or of a training step goes, kernel by kernel."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.spec.constants import DEFAULT_PRESET

if TYPE_CHECKING:
    from calotype.bench.profile.options import ProfilePlan
    from calotype.spec.records.profile import ProfileRecord

app = typer.Typer(no_args_is_help=True, help="See where the time goes, kernel by kernel.")

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for record, page and trace.")]
Top = Annotated[int, typer.Option(min=1, help="So many of the longest kernels are shown.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; a GPU if there is one.")]
MarksOnly = Annotated[
    bool, typer.Option("--marks-only", help="Only mark the window for nsys or ncu, which look instead.")
]
_FOLDER = Path("profile")


@app.command()
def generate(
    model: Annotated[str, typer.Argument(help="Catalogue name, file, folder, hub id or random:NAME.")],
    prompt: Annotated[str, typer.Argument(help="What to show.")],
    negative: Annotated[str | None, typer.Option(help="What to keep away from.")] = None,
    width: Annotated[int | None, typer.Option("--width", "-W", help="Pixels, a multiple of 8.")] = None,
    height: Annotated[int | None, typer.Option("--height", "-H", help="Pixels, a multiple of 8.")] = None,
    steps: Annotated[int, typer.Option(help="Sampling steps.")] = 20,
    cfg: Annotated[float | None, typer.Option(help="Guidance; 1 is off. Default: 7.5.")] = None,
    sampler: Annotated[str | None, typer.Option(help="Default: dpmpp_2m.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Noise levels. Default: karras.")] = None,
    seed: Annotated[int, typer.Option(help="Of the first picture.")] = 0,
    count: Annotated[int, typer.Option("--count", "-n", help="Pictures, on consecutive seeds.")] = 1,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Pictures at once; what fits if not said.")
    ] = None,
    preset: Annotated[str, typer.Option(help="Optimisations.")] = DEFAULT_PRESET,
    precision: Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.")] = None,
    warmup: Annotated[int, typer.Option(min=0, help="So often the same pictures are made before.")] = 2,
    top: Top = 15,
    out: Out = _FOLDER,
    marks_only: MarksOnly = False,
    device: Device = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Profile the making of a prompt's pictures."""
    from calotype.bench.profile.capture_generate import profile_generate
    from calotype.bench.profile.options import ProfilePlan
    from calotype.cli.generate_run import check_out
    from calotype.cli.progress import cancellable, progress_for
    from calotype.engine.device import explain_out_of_memory
    from calotype.engine.load import load
    from calotype.spec.generate_request import GenerateRequest
    from calotype.train.callbacks.profiler import NSYS_VARIABLE

    knobs: dict[str, object] = {"negative": negative, "width": width, "height": height, "steps": steps}
    knobs |= {"cfg": cfg, "sampler": sampler, "schedule": schedule, "seed": seed, "count": count}
    machine = {"batch-size": batch_size, "preset": preset, "precision": precision, "warmup": warmup}
    command = _typed("generate", model, prompt, options={**knobs, **machine, "device": device})
    given = {name: value for name, value in knobs.items() if value is not None}
    if "negative" in given:
        given["negative_prompt"] = given.pop("negative")
    plan = ProfilePlan(command, out, steps, warmup, marks_only or NSYS_VARIABLE in os.environ)
    request = GenerateRequest.parse({**given, "prompt": prompt})
    check_out(out)
    with progress_for() as bar:
        # Nothing is lost while a model loads, and there are no steps to stop between.
        with explain_out_of_memory(model):
            engine = load(
                model, device=device, precision=precision, preset=preset, models_folder=models, progress=bar
            )
        with cancellable() as cancel:
            record = profile_generate(
                engine, request, plan, batch_size=batch_size, progress=bar, cancel=cancel
            )
    _finish(record, plan, top, as_json)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, or a YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="For instance model.micro_batch_size=8."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to look into.")] = 3,
    warmup: Annotated[int, typer.Option(min=0, help="Steps before; the first of them compile.")] = 5,
    top: Top = 15,
    out: Out = _FOLDER,
    marks_only: MarksOnly = False,
    device: Device = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Profile a few steps of a recipe's training; keeps no checkpoint."""
    from calotype.bench.profile.capture_train import profile_train
    from calotype.bench.profile.options import ProfilePlan
    from calotype.cli.generate_run import check_out
    from calotype.cli.progress import cancellable, progress_for
    from calotype.engine.device import choose_device
    from calotype.train.callbacks.profiler import NSYS_VARIABLE
    from calotype.train.recipes import load_recipe

    options: dict[str, object] = {"steps": steps, "warmup": warmup, "device": device}
    command = _typed("train", recipe, *(overrides or []), options=options)
    plan = ProfilePlan(command, out, steps, warmup, marks_only or NSYS_VARIABLE in os.environ)
    chosen = load_recipe(recipe, overrides or []).recipe
    check_out(out)
    place = choose_device(device) if device else None
    with progress_for() as bar, cancellable() as cancel:
        record = profile_train(chosen, plan, device=place, progress=bar, cancel=cancel, models=models)
    _finish(record, plan, top, as_json)


@app.command()
def trace(
    file: Annotated[Path, typer.Argument(help="A Chrome trace of torch's profiler, packed or not.")],
    top: Top = 15,
    as_json: AsJson = False,
) -> None:
    """Explain a trace that is there already, such as one of a run with profile.enabled=true."""
    from calotype.bench.profile.load_trace import profile_trace
    from calotype.cli.profile_tables import show

    record = profile_trace(file, f"calotype profile trace {shlex.quote(file.name)}")
    show(record, top, as_json)


def _typed(*words: str, options: dict[str, object]) -> str:
    """The command as a person would type it, but for the folder."""
    named = [
        str(word) for name, value in options.items() if value is not None for word in (f"--{name}", value)
    ]
    return shlex.join(["calotype", "profile", *words, *named])


def _finish(record: "ProfileRecord | None", plan: "ProfilePlan", top: int, as_json: bool) -> None:
    from calotype.bench.profile.options import SUMMARY
    from calotype.bench.profile.report import write
    from calotype.cli.profile_tables import show

    if record is None:
        typer.echo("the window was marked; what was seen is with the program that looked", err=True)
        return
    write(record, plan.out, top)
    show(record, top, as_json)
    if not as_json:
        typer.echo(f"everything is in {plan.out / SUMMARY}")
