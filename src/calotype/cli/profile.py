"""`calotype profile`: profile image generation, training steps or an existing trace by kernel."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.cli.examples import examples
from calotype.spec.constants import DEFAULT_PRESET

if TYPE_CHECKING:
    from calotype.bench.profile.options import ProfilePlan
    from calotype.spec.records.profile import ProfileRecord

app = typer.Typer(no_args_is_help=True, help="Profile generation and training, kernel by kernel.")

Out = Annotated[Path, typer.Option("--out", "-o", help="Output folder for record, page and trace.")]
Top = Annotated[int, typer.Option(min=1, help="Number of longest kernels to show.")]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda or cuda:N. Default: a GPU if there is one, else the CPU.")
]
MarksOnly = Annotated[
    bool, typer.Option("--marks-only", help="Only mark the profiled window with NVTX, for nsys or ncu.")
]
_FOLDER = Path("profile")


@app.command(
    epilog=examples(
        'calotype profile generate sd15 "a red apple"',
        'calotype profile generate sdxl "a castle" --preset fast --steps 4 --out runs/profile',
    )
)
def generate(
    model: Annotated[str, typer.Argument(help="Model: catalogue name, file, folder, hub id or random:NAME.")],
    prompt: Annotated[str, typer.Argument(help="Text prompt: what the image shows.")],
    negative: Annotated[
        str | None, typer.Option(help="Negative prompt: what the image must not show.")
    ] = None,
    width: Annotated[
        int | None, typer.Option("--width", "-W", help="Image width in pixels, a multiple of 8.")
    ] = None,
    height: Annotated[
        int | None, typer.Option("--height", "-H", help="Image height in pixels, a multiple of 8.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Number of sampling steps.")] = 20,
    cfg: Annotated[
        float | None, typer.Option(help="Classifier-free guidance scale; 1 turns it off. Default: 7.5.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="Sampler. Default: dpmpp_2m.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Noise schedule. Default: karras.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first image.")] = 0,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Number of images, with consecutive seeds.")
    ] = 1,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per batch. Default: as many as fit into memory.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Optimization preset; see `calotype engine presets`.")
    ] = DEFAULT_PRESET,
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16. Default: fp16 on a GPU, fp32 on a CPU.")
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Warm-up runs of the same request.")] = 2,
    top: Top = 15,
    out: Out = _FOLDER,
    marks_only: MarksOnly = False,
    device: Device = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Profile the generation of images."""
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
        # Ctrl-C stops loading at once: there are no steps to wait for and no results to lose.
        with explain_out_of_memory(model):
            engine = load(
                model, device=device, precision=precision, preset=preset, models_folder=models, progress=bar
            )
        with cancellable() as cancel:
            record = profile_generate(
                engine, request, plan, batch_size=batch_size, progress=bar, cancel=cancel
            )
    _finish(record, plan, top, as_json)


@app.command(
    epilog=examples(
        "calotype profile train sd15 --steps 5",
        "calotype profile train sd15 model.micro_batch_size=8 --out runs/profile",
    )
)
def train(
    recipe: Annotated[str, typer.Argument(help="Recipe name or YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...", help="Recipe settings to override, for example model.micro_batch_size=8."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Profiled steps.")] = 3,
    warmup: Annotated[int, typer.Option(min=0, help="Warm-up steps; the first ones compile.")] = 5,
    top: Top = 15,
    out: Out = _FOLDER,
    marks_only: MarksOnly = False,
    device: Device = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Profile a few training steps of a recipe; writes no checkpoint."""
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


@app.command(epilog=examples("calotype profile trace trace.json.gz --top 30"))
def trace(
    file: Annotated[Path, typer.Argument(help="Chrome trace of the torch profiler, gzipped or not.")],
    top: Top = 15,
    as_json: AsJson = False,
) -> None:
    """Analyze an existing trace, such as one of a run with profile.enabled=true."""
    from calotype.bench.profile.load_trace import profile_trace
    from calotype.cli.profile_tables import show

    record = profile_trace(file, f"calotype profile trace {shlex.quote(file.name)}")
    show(record, top, as_json)


def _typed(*words: str, options: dict[str, object]) -> str:
    """The command as a user would type it, without the folder."""
    named = [
        str(word) for name, value in options.items() if value is not None for word in (f"--{name}", value)
    ]
    return shlex.join(["calotype", "profile", *words, *named])


def _finish(record: "ProfileRecord | None", plan: "ProfilePlan", top: int, as_json: bool) -> None:
    from calotype.bench.profile.options import SUMMARY
    from calotype.bench.profile.report import write
    from calotype.cli.profile_tables import show

    if record is None:
        typer.echo("the window was marked; the results are in the external profiler", err=True)
        return
    write(record, plan.out, top)
    show(record, top, as_json)
    if not as_json:
        typer.echo(f"results are in {plan.out / SUMMARY}")
