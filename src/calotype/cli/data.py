"""`calotype data`: build and index training datasets."""

import os
from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson
from calotype.cli.examples import examples

app = typer.Typer(no_args_is_help=True, help="Build and index training datasets.")


@app.callback()
def _root() -> None:
    """Keeps the command a group even with a single command in it."""


@app.command(
    epilog=examples(
        "calotype data emoji data/emoji", "calotype data emoji data/emoji --backgrounds 4 --offline"
    )
)
def emoji(
    destination: Annotated[Path, typer.Argument(help="New folder for shards and vocabulary.")],
    backgrounds: Annotated[
        int, typer.Option(min=1, max=12, help="Background colors per emoji and style.")
    ] = 10,
    toned_backgrounds: Annotated[
        int, typer.Option(min=1, max=12, help="Background colors per emoji with a skin tone, and style.")
    ] = 3,
    packages: Annotated[
        Path | None,
        typer.Option("--from", help="Folder with the npm tarballs, instead of downloading them."),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use cached files only.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Rendering processes. Default: one per core.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Render openly licensed emoji artwork with captions, as tar shards in DESTINATION.

    Noto (Apache-2.0), Fluent (MIT) and Twemoji (CC-BY-4.0) come from pinned npm packages; npm_config_registry
    sets another registry. Train on DESTINATION/train; DESTINATION/heldout has other combinations.
    dataset.json lists the sources. The same command always writes the same bytes.
    """
    from calotype.cli.output import print_json
    from calotype.cli.progress import show_progress
    from calotype.datasets.emoji.build import build, gather
    from calotype.datasets.emoji.split import Amounts

    ingredients = gather(folder=packages, offline=offline)
    with show_progress() as bar:
        built = build(
            ingredients,
            destination,
            amounts=Amounts(backgrounds, toned_backgrounds),
            num_workers=workers or len(os.sched_getaffinity(0)),
            progress=bar,
        )
    if as_json:
        print_json({"folder": built.folder, "is_new": built.is_new, **built.record})
        return
    counts = built.record["counts"]
    how = "wrote" if built.is_new else "already there, unchanged:"
    typer.echo(
        f"{how} {counts['pictures']} images of {counts['emoji']} emoji in {built.folder} "
        f"({counts['train']} to train on, {counts['heldout']} held out)"
    )
    typer.echo(
        f"vocabulary of {built.record['vocabulary']['num_tokens']} tokens in {built.folder / 'tokenizer'}"
    )
    typer.echo(f"sha256 of all shards: {built.sha256}")


@app.command(
    "index",
    epilog=examples(
        "calotype data index data/emoji/train",
        'calotype data index "data/laion-{000..099}.tar" --out data/index.json',
    ),
)
def index(
    shards: Annotated[str, typer.Argument(help="Local tar shards: a folder, or name-{000..099}.tar.")],
    destination: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Index file. Default: index.json next to the first shard."),
    ] = None,
) -> None:
    """Write index.json, which lists the content of each shard; upload it together with the shards.

    Training then downloads shards on demand: data.path=s3://bucket/set/index.json data.cache_gb=200
    """
    from calotype.train.data.sources.remote_index import INDEX, write_index
    from calotype.train.data.sources.shard_urls import local_shards

    paths = local_shards(shards)
    out = destination or paths[0].with_name(INDEX)
    count = write_index(paths, out)
    typer.echo(f"{count} samples in {len(paths)} shards: {out}")
