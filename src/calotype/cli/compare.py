"""`calotype compare`: what presets cost, and what they do to pictures."""

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
            help="Names with commas between, or passes:NAME+NAME; fp8:bf16 names a precision with one."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for record, summary and contact sheet.")],
    prompts: Annotated[list[str] | None, typer.Argument(metavar="PROMPT...", help="What to show.")] = None,
    prompts_file: Annotated[
        Path | None, typer.Option("--prompts", "--prompts-file", help="A file with one prompt a line.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Catalogue name, file, folder, hub id or random:NAME.")
    ] = "emoji",
    reference: Annotated[
        str, typer.Option(help="The preset that others are held against; in fp32 unless it names another.")
    ] = "baseline",
    steps: Annotated[int | None, typer.Option(help="Sampling steps. Default: 20.")] = None,
    cfg: Annotated[float | None, typer.Option(help="Guidance; 1 is off. Default: 7.5.")] = None,
    sampler: Annotated[str | None, typer.Option(help="Default: dpmpp_2m.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Noise levels. Default: karras.")] = None,
    seed: Annotated[int, typer.Option(help="Of each prompt's first picture.")] = 0,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Pictures per prompt, on consecutive seeds.")
    ] = 1,
    judge: Annotated[
        Path | None,
        typer.Option("--recogniser", help="Weights of a judge; if not said, ours for models of emoji."),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Of presets that name none: fp32, fp16 or bf16.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; a GPU if there is one.")] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compare presets: seconds, memory, and how near their pictures come to those of fp32.

    Every preset makes the same pictures, one at a time, and so does the reference. One that cannot run here
    is a row that says why.
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
    asked: dict[str, object] = {"steps": steps, "cfg": cfg, "sampler": sampler, "schedule": schedule}
    given = {knob: value for knob, value in asked.items() if value is not None}
    given |= {"seed": seed, "count": count}
    words: dict[str, object] = {"--presets": presets, "--reference": reference, "--model": model}
    words |= {f"--{knob}": value for knob, value in given.items()}
    words |= {"--precision": precision, "--prompts": "FILE" if prompts_file else None, "--out": "OUT"}
    told = [str(word) for pair in words.items() if pair[1] is not None for word in pair]
    texts = [*(prompts or ()), *(read_prompts(prompts_file) if prompts_file else ())]
    plan = ComparePlan(
        command=shlex.join(["calotype", "compare", *told, *(prompts or ())]),
        out=out,
        device=place,
        reference=parse_reference(reference),
        candidates=parse_presets(presets, precision),
        requests=[GenerateRequest.parse({**given, "prompt": text}) for text in texts],
    )
    check_out(out)
    who = read_classifier(judge, torch.device("cpu")) if judge else None
    with show_progress() as bar, cancellable() as cancel:

        def loaded(*, preset: str, precision: str) -> Engine:
            with interruptible(), explain_out_of_memory(model):
                return load(
                    model,
                    device=device,
                    precision=precision,
                    preset=preset,
                    models_folder=models,
                    progress=bar,
                )

        record = compare(loaded, plan, who, progress=bar, cancel=cancel)
    if as_json:
        print_json(record.model_dump(mode="json", exclude={"fingerprint"}))
        return
    _show(record)
    typer.echo(f"everything is in {out / SUMMARY}")


def _show(record: "CompareRecord") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from calotype.bench.compare.report import brief_rows
    from calotype.cli.output import console

    lines = brief_rows(record)
    table = Table(box=SIMPLE_HEAD, padding=0)
    for place, head in enumerate(lines[0]):
        # Heads in two lines, so that all columns of a GPU's table fit into a terminal. Of a list of passes
        # the name takes several, and never the room of numbers.
        table.add_column("\n".join(head.rsplit(" ", 1)), no_wrap=place > 0, overflow="fold")
    for line in lines:
        table.add_row(*line.values())
    console().print(table)
    if record.recogniser_sha256:
        typer.echo("recognised, as the reference: emoji/style/background, per cent")
    for row in record.presets:
        if row.message:
            typer.echo(f"{row.preset}: {row.outcome}: {row.message}")
