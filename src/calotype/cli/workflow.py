"""`calotype run`: the options. What is done with them is in `running`."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.spec.constants import DEFAULT_PRESET, PRESETS


def command(
    workflow: Annotated[
        Path,
        typer.Argument(help="JSON in API or editor format, or a picture that holds its workflow."),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NODE.INPUT=VALUE", help="Change an input; may be given again."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NODE", help="Run for this node only; may be given again."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pictures.")] = Path("outputs"),
    inputs: Annotated[
        Path | None,
        typer.Option("--input", help="Folder of input pictures; the workflow's own if not said."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Preset: {', '.join(PRESETS)}. Nodes may choose their own. Default: {DEFAULT_PRESET}."
        ),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16; fp16 on a GPU, fp32 on a CPU if not said.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.")] = None,
    models: ModelsFolder = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Say what is wrong with it, and run nothing.")
    ] = False,
    print_api: Annotated[
        bool, typer.Option("--print-api", help="Print it in API format, changes included, and stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a workflow of nodes, such as ComfyUI saves.

    The pictures hold their workflow: `calotype run picture.png` runs it again.
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
