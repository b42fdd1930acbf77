"""`calotype data`: build the sets that Calotype's own models are trained on."""

import os
from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson

app = typer.Typer(no_args_is_help=True, help="Build training data.")


@app.callback()
def _root() -> None:
    """One verb is not to stand for the whole command."""


@app.command()
def emoji(
    destination: Annotated[Path, typer.Argument(help="A new folder for shards and vocabulary.")],
    backgrounds: Annotated[
        int, typer.Option(min=1, max=12, help="Colours each emoji is put on in each style.")
    ] = 10,
    toned_backgrounds: Annotated[
        int, typer.Option(min=1, max=12, help="The same for emoji that name a skin tone.")
    ] = 3,
    packages: Annotated[
        Path | None,
        typer.Option("--from", help="Folder with the npm tarballs, instead of fetching them."),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use what is in the cache only.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that render; one per core if not said.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Render openly licensed emoji artwork with captions, as tar shards in DESTINATION.

    Noto (Apache-2.0), Fluent (MIT) and Twemoji (CC-BY-4.0) come from pinned npm packages; npm_config_registry
    names another registry. Train on DESTINATION/train; DESTINATION/heldout has combinations that are not in
    it. dataset.json says what was made from what. The same command always makes the same bytes.
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
        f"{how} {counts['pictures']} pictures of {counts['emoji']} emoji in {built.folder} "
        f"({counts['train']} to train on, {counts['heldout']} held out)"
    )
    typer.echo(
        f"vocabulary of {built.record['vocabulary']['num_tokens']} tokens in {built.folder / 'tokenizer'}"
    )
    typer.echo(f"sha256 of all shards: {built.sha256}")


@app.command("index")
def index(
    shards: Annotated[str, typer.Argument(help="Tar shards on this disk: a folder, or name-{000..099}.tar.")],
    destination: Annotated[
        Path | None, typer.Option("--out", "-o", help="Default: index.json beside the first shard.")
    ] = None,
) -> None:
    """Write what is in each shard to index.json, which goes to object storage with them.

    Training then fetches shards when they are wanted: data.path=s3://bucket/set/index.json data.cache_gb=200
    """
    from calotype.train.data.sources.remote_index import INDEX, write_index
    from calotype.train.data.sources.shard_urls import local_shards

    paths = local_shards(shards)
    out = destination or paths[0].with_name(INDEX)
    count = write_index(paths, out)
    typer.echo(f"{count} samples in {len(paths)} shards: {out}")
