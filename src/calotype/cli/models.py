"""`calotype models`: list, show, inspect and convert models, and create random ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calotype.cli.common_options import AsJson, Dtype, ModelsFolder
from calotype.cli.examples import examples

if TYPE_CHECKING:
    import torch

    from calotype.models.inspect import Inspection
    from calotype.models.weights import Weights

app = typer.Typer(no_args_is_help=True, help="List, show, inspect and convert models, or create random ones.")

SUBFOLDERS = ("checkpoints", "loras", "vae", "embeddings")


@app.command("list", epilog=examples("calotype models list", "calotype models list --json"))
def list_models(models: ModelsFolder = None, as_json: AsJson = False) -> None:
    """List the known models of the catalogue and the files in the model folder."""
    from calotype.cli.output import console, print_json
    from calotype.core.paths import list_files, models_dir
    from calotype.models import catalogue

    folder = models or models_dir()
    known = {name: catalogue.architecture(name) for name in catalogue.names()}
    files = {kind: list_files(folder / kind) for kind in SUBFOLDERS}
    if as_json:
        entries = {
            name: {"title": a.title, "hub_id": a.hub_id, "native_size": a.native_size}
            for name, a in known.items()
        }
        print_json({"catalogue": entries, "folder": folder, "files": files})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title="Catalogue", title_justify="left", title_style="bold")
    for column in ("name", "model", "size", "from"):
        table.add_column(column, overflow="fold")
    for name, a in known.items():
        table.add_row(name, a.title, f"{a.native_size}²", a.hub_id or "in the package")
    out = console()
    out.print(table)
    out.print(f"\nModel folder {folder}", style="bold")
    if not any(files.values()):
        out.print(f"  empty; put files into {', '.join(f'{kind}/' for kind in SUBFOLDERS)} there")
    for kind, names in files.items():
        for name in names:
            out.print(f"  {kind}/{name}")


@app.command(epilog=examples("calotype models show sdxl"))
def show(
    name: Annotated[str, typer.Argument(help="Catalogue name or diffusers folder.")],
    as_json: AsJson = False,
) -> None:
    """Show the components of a model, their parameter counts and how it was trained."""
    from calotype.cli.output import console, print_json
    from calotype.models import catalogue
    from calotype.models.diffusers_layout import read_architecture
    from calotype.models.resolve import EMBEDDED, embedded_folder

    architecture = read_architecture(Path(name)) if Path(name).is_dir() else catalogue.architecture(name)
    counts = architecture.parameter_counts()
    if as_json:
        print_json({"architecture": architecture.as_dict(), "parameters": counts})
        return
    out = console()
    out.print(f"{architecture.title}", style="bold")
    total, trainable = sum(counts.values()), counts["unet"]
    out.print(f"  {total / 1e6:.6f} M parameters, {trainable / 1e6:.6f} M of them trainable (the UNet)")
    for part, count in counts.items():
        config = architecture.parts()[part]
        out.print(f"  {part:<15} {count / 1e6:>12.6f} M  {config['_class_name']}")
    schedule = architecture.scheduler
    out.print(f"  predicts        {architecture.prediction_type}")
    betas = f"{schedule.get('beta_schedule')} {schedule.get('beta_start')} to {schedule.get('beta_end')}"
    out.print(f"  schedule        {betas}, {schedule.get('num_train_timesteps')} timesteps")
    out.print(f"  native size     {architecture.native_size}×{architecture.native_size}")
    factor = architecture.vae_factor
    out.print(f"  latent          {architecture.latent_channels} channels, 1/{factor} of the image's side")
    out.print(f"  from            {architecture.hub_id or 'the package'} ({architecture.licence})")
    card = (embedded_folder() if name == EMBEDDED else Path(name)) / "README.md"
    if card.is_file():
        out.print(f"  model card      {card}", soft_wrap=True)


@app.command(
    epilog=examples(
        "calotype models random sd15",
        "calotype models random sdxl sdxl-random.safetensors --seed 7 --dtype bf16",
    )
)
def random(
    name: Annotated[str, typer.Argument(help="Catalogue name.")],
    destination: Annotated[
        Path | None,
        typer.Argument(help="New folder, or file ending in .safetensors or .ckpt. Default: NAME-random."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random weights.")] = 0,
    dtype: Dtype = "fp16",
    max_shard_gb: Annotated[
        float, typer.Option(min=0.001, help="Maximum size of one weight file in a folder, in GB.")
    ] = 10.0,
) -> None:
    """Write a model of the exact architecture with seeded random weights, for benchmarks and tests."""
    from calotype.cli.progress import progress_for
    from calotype.models import catalogue
    from calotype.models.weights import RandomWeights

    weights = RandomWeights(catalogue.architecture(name), seed, _torch_dtype(dtype))
    target = destination or Path(f"{name}-random")
    with progress_for() as progress:
        _write(weights, target, max_shard_bytes=int(max_shard_gb * 1e9), progress=progress)
    typer.echo(f"wrote {target}: random weights, so its images show noise", err=True)


@app.command(
    epilog=examples(
        "calotype models inspect model.safetensors", "calotype models inspect model.ckpt --values --json"
    )
)
def inspect(
    file: Annotated[Path, typer.Argument(help="Weight file or diffusers folder.")],
    values: Annotated[
        bool, typer.Option("--values", help="Also check for NaN and infinity, which reads all weights.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a file is, its base model and whether it is safe; decided by content, not by name."""
    from calotype.cli.output import print_json
    from calotype.core.errors import ExitCode
    from calotype.models.inspect import inspect as inspect_file

    found = inspect_file(file, values=values)
    if as_json:
        print_json(found)
    else:
        _print_inspection(found)
    if not found.safe:
        raise typer.Exit(int(ExitCode.BAD_MODEL_FILE))


@app.command(
    epilog=examples(
        "calotype models convert model.ckpt model.safetensors",
        "calotype models convert model.safetensors model-folder --dtype fp16",
    )
)
def convert(
    source: Annotated[str, typer.Argument(help="File, folder, name in the model folder or hub id.")],
    destination: Annotated[Path, typer.Argument(help="New folder, or file ending in .safetensors or .ckpt.")],
    dtype: Annotated[
        str | None, typer.Option(help="Data type: fp32, fp16 or bf16. Default: that of each tensor.")
    ] = None,
    max_shard_gb: Annotated[
        float, typer.Option(min=0.001, help="Maximum size of one weight file in a folder, in GB.")
    ] = 10.0,
    keep_extra: Annotated[
        bool,
        typer.Option(
            "--keep-extra/--drop-extra",
            help="Keep or drop tensors that only the original layout has, such as EMA weights.",
        ),
    ] = True,
    config: Annotated[
        Path | None, typer.Option(help="Architecture configuration for a file of an unknown model.")
    ] = None,
    models: ModelsFolder = None,
) -> None:
    """Convert between .ckpt, single-file safetensors and diffusers folder, in any direction."""
    from calotype.cli.progress import progress_for
    from calotype.models.resolve import resolve_model

    torch_dtype = _torch_dtype(dtype) if dtype else None
    found = resolve_model(source, models=models, config=config)
    with found.weights as weights, progress_for() as progress:
        _write(
            weights,
            destination,
            dtype=torch_dtype,
            max_shard_bytes=int(max_shard_gb * 1e9),
            keep_extra=keep_extra,
            progress=progress,
        )
    typer.echo(f"wrote {destination}", err=True)


def _write(weights: "Weights", destination: Path, *, max_shard_bytes: int, **options: Any) -> None:
    from calotype.models.resolve import FILE_SUFFIXES
    from calotype.models.save import write_folder, write_single_file

    # write_single_file refuses unsupported suffixes: they never mean a folder.
    if destination.suffix.lower() in FILE_SUFFIXES:
        write_single_file(weights, destination, **options)
    else:
        write_folder(weights, destination, max_shard_bytes=max_shard_bytes, **options)


def _torch_dtype(precision: str) -> "torch.dtype":
    import torch

    from calotype.engine.device import choose_dtype

    return choose_dtype(precision, torch.device("cpu"))


def _print_inspection(found: "Inspection") -> None:
    from calotype.cli.output import console

    out = console()
    out.print(found.path, style="bold")
    out.print(f"  safe        {'yes' if found.safe else 'NO'}: {found.why}")
    out.print(f"  size        {found.size_bytes:,} bytes")
    if not found.safe:
        return
    if found.title:
        out.print(f"  is          {found.title}")
    out.print(f"  kind        {found.kind} ({found.dialect})")
    out.print(
        f"  base        {found.base}"
        + (f", predicts {found.prediction_type}" if found.prediction_type else "")
    )
    if found.sampling:
        own = found.sampling
        out.print(f"  defaults    {own.steps} steps, CFG {own.cfg:g}, {own.sampler}, {own.schedule}")
    dtypes = ", ".join(f"{count} × {name}" for name, count in sorted(found.dtypes.items()))
    millions = found.num_parameters / 1e6
    out.print(f"  tensors     {found.num_tensors} ({dtypes}), {millions:.3f} M values, {found.format}")
    out.print(f"  sha256      {found.sha256}", soft_wrap=True)
    if found.non_finite is not None:
        bad = ", ".join(found.non_finite[:3])
        out.print(f"  values      {'all finite' if not found.non_finite else f'NaN or infinity in {bad}'}")
    for key, value in sorted(found.metadata.items()):
        shown_value = value if len(value) <= 60 else f"{value[:57]}..."
        out.print(f"  metadata    {key}: {shown_value}")
