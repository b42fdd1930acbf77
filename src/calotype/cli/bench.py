"""`calotype bench`: measure models. How good their pictures are, who judges that, what a device can do."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli import bench_ceiling, bench_compare, bench_conclude, bench_data, bench_scaling, bench_serve
from calotype.cli.bench_ablate import ablate
from calotype.cli.bench_query import query
from calotype.cli.bench_sweep import inference, train
from calotype.cli.common_options import AsJson, ModelsFolder

if TYPE_CHECKING:
    from calotype.spec.records.quality import Accuracy

app = typer.Typer(no_args_is_help=True, help="Measure models.")
app.command("compare")(bench_compare.command)
app.command("conclude")(bench_conclude.command)
app.command("ceiling")(bench_ceiling.command)
app.command("serve")(bench_serve.command)
app.command("data")(bench_data.command)
app.command("scale")(bench_scaling.command)
app.command()(inference)
app.command()(train)
app.command()(ablate)
app.command()(query)

Data = Annotated[Path, typer.Argument(help="A set built by `calotype data emoji`.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; a GPU if there is one.")]


@app.command()
def recogniser(
    data: Data,
    destination: Annotated[
        Path, typer.Argument(metavar="OUT.safetensors", help="A JSON file goes beside it.")
    ],
    epochs: Annotated[int, typer.Option(min=1, help="How often each picture is seen.")] = 5,
    batch_size: Annotated[int, typer.Option(min=2, help="Pictures a step.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="The same seed learns the same.")] = 0,
    precision: Annotated[str, typer.Option(help="fp32, or bf16 for speed.")] = "fp32",
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train the judge of emoji pictures on the real artwork in DATA, and examine it on the held-out part."""
    from calotype.bench.quality.classifier_build import ClassifierTraining, train_classifier
    from calotype.bench.quality.classifier_train import TrainingBatch
    from calotype.bench.quality.dataset import EmojiSet
    from calotype.cli.output import print_json
    from calotype.cli.progress import cancellable, show_progress
    from calotype.engine.device import choose_device, choose_dtype

    place = choose_device(device)
    words = ["calotype", "bench", "recogniser", "DATA", "OUT.safetensors", "--epochs", epochs]
    words += ["--batch-size", batch_size, "--seed", seed, "--precision", precision]
    how = ClassifierTraining(
        destination=destination,
        command=shlex.join(str(word) for word in words),
        lesson=TrainingBatch(epochs=epochs, batch_size=batch_size, seed=seed),
        device=place,
        dtype=choose_dtype(precision, place),
    )
    with show_progress() as bar, cancellable() as cancel:
        made = train_classifier(EmojiSet(data), how, progress=bar, cancel=cancel)
    if as_json:
        print_json(made.record)
        return
    for way, figure in made.record.exam.items():
        _say(f"held-out pictures, {way}", figure)
    typer.echo(f"{destination} knows {len(made.emoji)} emoji")


@app.command()
def quality(
    model: Annotated[str, typer.Argument(help="Catalogue name, file, folder, hub id or random:NAME.")],
    data: Annotated[Path, typer.Option(help="A set built by `calotype data emoji`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for record, summary and sheets.")],
    preset: Annotated[str, typer.Option(help="Optimisations.")] = "baseline",
    compare: Annotated[
        str | None, typer.Option(help="Another preset: how much its pictures differ, seed by seed.")
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--count", "-n", min=1, help="Pictures of training captions, and as many of held-out ones."
        ),
    ] = 500,
    steps: Annotated[int | None, typer.Option(help="Sampling steps. Default: 20.")] = None,
    cfg: Annotated[float | None, typer.Option(help="Guidance; 1 is off. Default: 7.5.")] = None,
    sampler: Annotated[str | None, typer.Option(help="Default: dpmpp_2m.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Noise levels. Default: karras.")] = None,
    seed: Annotated[int, typer.Option(help="Decides prompts and noise.")] = 0,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Pictures at once; what fits if not said.")
    ] = None,
    judge: Annotated[
        Path | None, typer.Option("--recogniser", help="Weights of another judge than the one shipped.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.")] = None,
    device: Device = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Measure how good a model's emoji are: recognised, sharp, new, and true to another preset's."""
    from functools import partial

    from calotype.bench.quality.classifier import read_classifier, shipped
    from calotype.bench.quality.dataset import EmojiSet
    from calotype.bench.quality.run import SUMMARY, QualityPlan, measure
    from calotype.cli.generate_run import check_out
    from calotype.cli.output import print_json
    from calotype.cli.progress import cancellable, interruptible, show_progress
    from calotype.engine.device import choose_device, explain_out_of_memory
    from calotype.engine.engine import Engine
    from calotype.engine.load import load
    from calotype.spec.generate_request import GenerateRequest

    asked: dict[str, float | str | None] = {
        "steps": steps,
        "cfg": cfg,
        "sampler": sampler,
        "schedule": schedule,
    }
    given = {knob: value for knob, value in asked.items() if value is not None}
    words: dict[str, float | str | None] = {
        "--preset": preset,
        "--compare": compare,
        "--count": count,
        "--seed": seed,
    }
    words |= {"--precision": precision, **{f"--{knob}": value for knob, value in given.items()}}
    told = [str(word) for pair in words.items() if pair[1] is not None for word in pair]
    plan = QualityPlan(
        command=shlex.join(["calotype", "bench", "quality", model, "--data", "DATA", "--out", "OUT", *told]),
        out=out,
        request=GenerateRequest.parse({**given, "prompt": "", "seed": seed}),
        count=count,
        batch_size=batch_size,
    )
    # Everything but the model first: a typing error should cost no minute.
    check_out(out)
    real, who = EmojiSet(data), read_classifier(judge or shipped(), choose_device(device))
    who.check_made_for(real)
    with show_progress() as bar, cancellable() as cancel:

        def loaded(*, preset: str) -> Engine:
            with interruptible(), explain_out_of_memory(model):
                return load(
                    model,
                    device=device,
                    precision=precision,
                    preset=preset,
                    models_folder=models,
                    progress=bar,
                )

        other = partial(loaded, preset=compare) if compare else None
        record = measure(loaded(preset=preset), who, real, plan, other=other, progress=bar, cancel=cancel)
    if as_json:
        print_json(record.model_dump(mode="json", exclude={"pictures", "fingerprint"}))
        return
    for name, part in record.parts.items():
        _say(name, part.all)
    typer.echo(f"everything is in {out / SUMMARY}")


def _say(what: str, figure: "Accuracy") -> None:
    style, background = (
        "not asked for" if share is None else f"{share:.1%}" for share in (figure.style, figure.background)
    )
    typer.echo(
        f"{what}: emoji {figure.emoji_top1:.1%} (top 5 {figure.emoji_top5:.1%}), style {style}, "
        f"background {background} of {figure.pictures}"
    )
