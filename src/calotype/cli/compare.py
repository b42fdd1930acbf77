"""`calotype compare`: compare presets by speed, memory and image quality."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder

if TYPE_CHECKING:
    from calotype.spec.records.preset_comparison import CompareRecord


def command(
    presets: Annotated[
        str,
        typer.Option(
            help="Presets, comma-separated; passes:NAME+NAME lists passes, fp8:bf16 adds a precision."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Output folder for record, summary and contact sheet.")
    ],
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT...", help="Text prompts: what the images show.")
    ] = None,
    prompts_file: Annotated[
        Path | None, typer.Option("--prompts", "--prompts-file", help="File with one prompt per line.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Model: catalogue name, file, folder, hub id or random:NAME.")
    ] = "emoji",
    reference: Annotated[
        str, typer.Option(help="Reference preset; runs in fp32 unless it names a precision.")
    ] = "baseline",
    steps: Annotated[int | None, typer.Option(help="Number of sampling steps. Default: 20.")] = None,
    cfg: Annotated[
        float | None, typer.Option(help="Classifier-free guidance scale; 1 turns it off. Default: 7.5.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="Sampler. Default: dpmpp_2m.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Noise schedule. Default: karras.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first image of each prompt.")] = 0,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Images per prompt, with consecutive seeds.")
    ] = 1,
    judge: Annotated[
        Path | None,
        typer.Option(
            "--recogniser", help="Weights of an emoji classifier. Default: the shipped one, for emoji models."
        ),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Precision of presets that name none: fp32, fp16 or bf16.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N. Default: a GPU if there is one, else the CPU.")
    ] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compare presets: time, memory, and similarity of their images to those of a reference in fp32.

    Every preset and the reference generate the same images, one at a time. A preset that cannot run here gets
    a row with the reason.
    """
    import torch

    from calotype.bench.compare.candidates import parse_presets, parse_reference
    from calotype.bench.compare.run import SUMMARY, ComparePlan, compare
    from calotype.bench.quality.classifier import read_classifier
    from calotype.cli.generate_run import check_out, read_prompts
    from calotype.cli.output import print_json
    from calotype.cli.progress import cancellable, interruptible, show_progress
    from calotype.engine.device import choose_device, choose_dtype, explain_out_of_memory
    from calotype.engine.engine import Engine
    from calotype.engine.load import load
    from calotype.spec.generate_request import GenerateRequest

    place = choose_device(device)
    choose_dtype(precision, place)
    sampling: dict[str, object] = {"steps": steps, "cfg": cfg, "sampler": sampler, "schedule": schedule}
    given = {knob: value for knob, value in sampling.items() if value is not None}
    given |= {"seed": seed, "count": count}
    options: dict[str, object] = {"--presets": presets, "--reference": reference, "--model": model}
    options |= {f"--{knob}": value for knob, value in given.items()}
    options |= {"--precision": precision, "--prompts": "FILE" if prompts_file else None, "--out": "OUT"}
    typed = [str(word) for pair in options.items() if pair[1] is not None for word in pair]
    texts = [*(prompts or ()), *(read_prompts(prompts_file) if prompts_file else ())]
    plan = ComparePlan(
        command=shlex.join(["calotype", "compare", *typed, *(prompts or ())]),
        out=out,
        device=place,
        reference=parse_reference(reference),
        candidates=parse_presets(presets, precision),
        requests=[GenerateRequest.parse({**given, "prompt": text}) for text in texts],
    )
    check_out(out)
    classifier = read_classifier(judge, torch.device("cpu")) if judge else None
    with show_progress() as bar, cancellable() as cancel:

        def load_engine(*, preset: str, precision: str) -> Engine:
            with interruptible(), explain_out_of_memory(model):
                return load(
                    model,
                    device=device,
                    precision=precision,
                    preset=preset,
                    models_folder=models,
                    progress=bar,
                )

        record = compare(load_engine, plan, classifier, progress=bar, cancel=cancel)
    if as_json:
        print_json(record.model_dump(mode="json", exclude={"fingerprint"}))
        return
    _show(record)
    typer.echo(f"results are in {out / SUMMARY}")


def _show(record: "CompareRecord") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from calotype.bench.compare.report import brief_rows
    from calotype.cli.output import console

    lines = brief_rows(record)
    table = Table(box=SIMPLE_HEAD, padding=0)
    for place, head in enumerate(lines[0]):
        # Two-line headings make all columns of a GPU's table fit into a terminal. A long list of passes
        # folds onto several lines and never takes the width of the numbers.
        table.add_column("\n".join(head.rsplit(" ", 1)), no_wrap=place > 0, overflow="fold")
    for line in lines:
        table.add_row(*line.values())
    console().print(table)
    if record.recogniser_sha256:
        typer.echo("recognized, relative to the reference: emoji/style/background, percent")
    for row in record.presets:
        if row.message:
            typer.echo(f"{row.preset}: {row.outcome}: {row.message}")
