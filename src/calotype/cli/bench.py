"""`calotype bench`: the group of benchmark commands, with image quality and its classifier."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli import bench_ceiling, bench_compare, bench_conclude, bench_data, bench_scaling, bench_serve
from calotype.cli.bench_ablate import ablate
from calotype.cli.bench_query import query
from calotype.cli.bench_sweep import inference, train
from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.cli.examples import examples

if TYPE_CHECKING:
    from calotype.spec.records.quality import Accuracy

app = typer.Typer(
    no_args_is_help=True, help="Benchmark inference, training, serving, data loading and image quality."
)
app.command(
    "compare",
    epilog=examples(
        "calotype bench compare runs/sweep", "calotype bench compare runs/sweep --limit 3 --markdown"
    ),
)(bench_compare.command)
app.command(
    "conclude",
    epilog=examples(
        "calotype bench conclude", "calotype bench conclude runs/sweep --source records --markdown"
    ),
)(bench_conclude.command)
app.command(
    "ceiling",
    epilog=examples(
        "calotype bench ceiling", "calotype bench ceiling --device cuda:1 --again --out ceilings.jsonl"
    ),
)(bench_ceiling.command)
app.command(
    "serve",
    epilog=examples(
        "calotype bench serve sd15 --clients 64 --duration 60 --plain",
        "calotype bench serve --deployment prod --rate 4 --requests 500 --out runs/serve",
    ),
)(bench_serve.command)
app.command(
    "data",
    epilog=examples(
        "calotype bench data sd2-base data.kind=shards data.path=DATA --out runs/data",
        "calotype bench data sd2-base --workers 0,4,8 --gpu-samples-per-s 48 --out runs/data",
    ),
)(bench_data.command)
app.command(
    "scale",
    epilog=examples(
        "calotype bench scale sd2-base --devices 1,2,4,8 --out runs/scale",
        "calotype bench scale --with runs/two-nodes.json --out runs/scale",
    ),
)(bench_scaling.command)
app.command(
    epilog=examples(
        "calotype bench inference --sweep batch=1,2,4 size=512x512,768x768 --out runs/sweep",
        "calotype bench inference sdxl-batch --against diffusers-eager --out runs/sdxl",
    )
)(inference)
app.command(
    epilog=examples(
        "calotype bench train --recipe sd15 --sweep batch=1,2,4 model.compile=true,false -o runs/train",
        "calotype bench train sd1-train-batch --launch slurm --out runs/train",
    )
)(train)
app.command(
    epilog=examples(
        "calotype bench ablate --preset fast model=random:sdxl size=1024x1024 --out runs/ablation",
        "calotype bench ablate --recipe bench-sd1 --rounds 5 --out runs/ablation",
    )
)(ablate)
app.command(
    epilog=examples(
        'calotype bench query "SELECT point, wall_median_s FROM measurements" -r runs',
        "calotype bench query --columns",
    )
)(query)

Data = Annotated[Path, typer.Argument(help="Dataset built by `calotype data emoji`.")]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda or cuda:N. Default: a GPU if there is one, else the CPU.")
]


@app.command(
    epilog=examples(
        "calotype bench recogniser data/emoji classifier.safetensors",
        "calotype bench recogniser data/emoji classifier.safetensors --epochs 10 --precision bf16",
    )
)
def recogniser(
    data: Data,
    destination: Annotated[
        Path,
        typer.Argument(
            metavar="OUT.safetensors", help="Weights file; a JSON file with the record is written next to it."
        ),
    ],
    epochs: Annotated[int, typer.Option(min=1, help="Training epochs.")] = 5,
    batch_size: Annotated[int, typer.Option(min=2, help="Images per training step.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    precision: Annotated[str, typer.Option(help="fp32, or bf16 for speed.")] = "fp32",
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train the emoji classifier on the artwork in DATA and evaluate it on the held-out part."""
    from calotype.bench.quality.classifier_build import ClassifierTraining, train_classifier
    from calotype.bench.quality.classifier_train import TrainingBatch
    from calotype.bench.quality.dataset import EmojiSet
    from calotype.cli.output import print_json
    from calotype.cli.progress import cancellable, show_progress
    from calotype.engine.device import choose_device, choose_dtype

    place = choose_device(device)
    command = ["calotype", "bench", "recogniser", "DATA", "OUT.safetensors", "--epochs", epochs]
    command += ["--batch-size", batch_size, "--seed", seed, "--precision", precision]
    how = ClassifierTraining(
        destination=destination,
        command=shlex.join(str(word) for word in command),
        lesson=TrainingBatch(epochs=epochs, batch_size=batch_size, seed=seed),
        device=place,
        dtype=choose_dtype(precision, place),
    )
    with show_progress() as bar, cancellable() as cancel:
        result = train_classifier(EmojiSet(data), how, progress=bar, cancel=cancel)
    if as_json:
        print_json(result.record)
        return
    for variant, accuracy in result.record.exam.items():
        _print_accuracy(f"held-out images, {variant}", accuracy)
    typer.echo(f"{destination} classifies {len(result.emoji)} emoji")


@app.command(
    epilog=examples(
        "calotype bench quality emoji --data data/emoji --out runs/quality",
        "calotype bench quality emoji --data data/emoji --compare int8 -n 100 --out runs/quality",
    )
)
def quality(
    model: Annotated[str, typer.Argument(help="Model: catalogue name, file, folder, hub id or random:NAME.")],
    data: Annotated[Path, typer.Option(help="Dataset built by `calotype data emoji`.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Output folder for record, summary and contact sheets.")
    ],
    preset: Annotated[
        str, typer.Option(help="Optimization preset; see `calotype engine presets`.")
    ] = "baseline",
    compare: Annotated[
        str | None, typer.Option(help="Second preset: also measure how its images differ, seed by seed.")
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--count", "-n", min=1, help="Images of training captions, and as many of held-out captions."
        ),
    ] = 500,
    steps: Annotated[int | None, typer.Option(help="Number of sampling steps. Default: 20.")] = None,
    cfg: Annotated[
        float | None, typer.Option(help="Classifier-free guidance scale; 1 turns it off. Default: 7.5.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="Sampler. Default: dpmpp_2m.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Noise schedule. Default: karras.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of prompts and noise.")] = 0,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per batch. Default: as many as fit into memory.")
    ] = None,
    judge: Annotated[
        Path | None,
        typer.Option("--recogniser", help="Weights of another emoji classifier than the shipped one."),
    ] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.")] = None,
    device: Device = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Measure the quality of a model's emoji: accuracy, sharpness, novelty, difference between presets."""
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

    sampling: dict[str, float | str | None] = {
        "steps": steps,
        "cfg": cfg,
        "sampler": sampler,
        "schedule": schedule,
    }
    given = {knob: value for knob, value in sampling.items() if value is not None}
    options: dict[str, float | str | None] = {
        "--preset": preset,
        "--compare": compare,
        "--count": count,
        "--seed": seed,
    }
    options |= {"--precision": precision, **{f"--{knob}": value for knob, value in given.items()}}
    typed = [str(word) for pair in options.items() if pair[1] is not None for word in pair]
    plan = QualityPlan(
        command=shlex.join(["calotype", "bench", "quality", model, "--data", "DATA", "--out", "OUT", *typed]),
        out=out,
        request=GenerateRequest.parse({**given, "prompt": "", "seed": seed}),
        count=count,
        batch_size=batch_size,
    )
    # Inputs are checked before the model loads, so that a typing error fails fast.
    check_out(out)
    real, classifier = EmojiSet(data), read_classifier(judge or shipped(), choose_device(device))
    classifier.check_made_for(real)
    with show_progress() as bar, cancellable() as cancel:

        def load_engine(*, preset: str) -> Engine:
            with interruptible(), explain_out_of_memory(model):
                return load(
                    model,
                    device=device,
                    precision=precision,
                    preset=preset,
                    models_folder=models,
                    progress=bar,
                )

        other = partial(load_engine, preset=compare) if compare else None
        record = measure(
            load_engine(preset=preset), classifier, real, plan, other=other, progress=bar, cancel=cancel
        )
    if as_json:
        print_json(record.model_dump(mode="json", exclude={"pictures", "fingerprint"}))
        return
    for name, part in record.parts.items():
        _print_accuracy(name, part.all)
    typer.echo(f"results are in {out / SUMMARY}")


def _print_accuracy(label: str, accuracy: "Accuracy") -> None:
    style, background = (
        "not in the prompts" if share is None else f"{share:.1%}"
        for share in (accuracy.style, accuracy.background)
    )
    typer.echo(
        f"{label}: emoji {accuracy.emoji_top1:.1%} (top 5 {accuracy.emoji_top5:.1%}), style {style}, "
        f"background {background} of {accuracy.pictures}"
    )
