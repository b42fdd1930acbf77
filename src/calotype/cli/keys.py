"""`calotype keys`: who may ask a deployment."""

from typing import Annotated

import typer

from calotype.cli.common_options import AsJson

app = typer.Typer(no_args_is_help=True, help="API keys of a deployment.")

Deployment = Annotated[str, typer.Option(help="The deployment's name.")]
_DEFAULT = "calotype"


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Who it is for.")],
    deployment: Deployment = _DEFAULT,
    max_queued: Annotated[int | None, typer.Option(help="Jobs that may wait at a time.")] = None,
    pictures_per_minute: Annotated[int | None, typer.Option(help="As many at once, too.")] = None,
) -> None:
    """Make a key and show it, this once. Without any key, only this machine may ask."""
    from calotype.serve.api_keys import ApiKeys
    from calotype.serve.lifecycle.registry import deployment_dir

    folder = deployment_dir(deployment).folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ApiKeys(folder).create(name, max_queued=max_queued, pictures_per_minute=pictures_per_minute)
    typer.echo(key)
    typer.echo(f"kept as a hash in {folder}; nobody can show it again", err=True)
    if not (folder / "plan.json").is_file():
        typer.echo(f"there is no deployment {deployment!r} yet; it lets {name} in once it starts", err=True)


@app.command("list")
def list_keys(deployment: Deployment = _DEFAULT, as_json: AsJson = False) -> None:
    """List keys that let somebody in."""
    from rich.table import Table

    from calotype.cli.output import console, print_json
    from calotype.serve.api_keys import ApiKeys
    from calotype.serve.lifecycle.registry import deployment_dir

    kept = ApiKeys(deployment_dir(deployment).folder)
    keys = kept.all()
    if as_json:
        print_json([key.model_dump(mode="json", exclude={"salt", "hash"}) for key in keys])
        return
    table = Table("name", "jobs waiting at most", "pictures a minute")
    for key in keys:
        table.add_row(key.name, str(key.max_queued or "—"), str(key.pictures_per_minute or "—"))
    nobody = "all keys are revoked; nobody may ask" if kept.exist() else "no keys; only this machine may ask"
    console().print(table if keys else kept.problem() or nobody)


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="Whose key.")], deployment: Deployment = _DEFAULT
) -> None:
    """Let nobody in by a key any more."""
    from calotype.serve.api_keys import ApiKeys
    from calotype.serve.lifecycle.registry import deployment_dir

    keys = ApiKeys(deployment_dir(deployment).folder)
    keys.revoke(name)
    typer.echo(f"{name} is let in no more")
    if not keys.all():
        typer.echo("that was the last key: nobody is let in until you make another", err=True)
