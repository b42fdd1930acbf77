"""`calotype run`: the options; `workflow_run.py` does the work."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.spec.constants import DEFAULT_PRESET, PRESETS


def command(
    workflow: Annotated[
        Path,
        typer.Argument(help="Workflow JSON in API or editor format, or an image that contains its workflow."),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NODE.INPUT=VALUE", help="Override an input of a node; repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="NODE", help="Run only this output node and what it needs; repeatable."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder for the images.")] = Path("outputs"),
    inputs: Annotated[
        Path | None,
        typer.Option("--input", help="Folder of input images. Default: the folder of the workflow."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Preset of nodes that choose none: {', '.join(PRESETS)}. Default: {DEFAULT_PRESET}."
        ),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16. Default: fp16 on a GPU, fp32 on a CPU.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N. Default: a GPU if there is one, else the CPU.")
    ] = None,
    models: ModelsFolder = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Validate the workflow without running it.")
    ] = False,
    print_api: Annotated[
        bool,
        typer.Option(
            "--print-api", help="Print the workflow in API format, with overrides applied, and exit."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a ComfyUI workflow.

    Each output image stores its workflow: `calotype run image.png` runs it again.
    """
    from calotype.cli.workflow_run import WorkflowOptions, run

    run(
        WorkflowOptions(
            workflow=workflow,
            changes=tuple(changes or ()),
            only=tuple(only) if only else None,
            out=out,
            inputs=inputs or workflow.parent,
            preset=preset,
            precision=precision,
            device=device,
            models=models,
            validate_only=validate_only,
            print_api=print_api,
            as_json=as_json,
        )
    )
