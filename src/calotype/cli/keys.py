"""`calotype keys`: create, list and revoke the API keys of a deployment."""

from typing import Annotated

import typer

from calotype.cli.common_options import AsJson
from calotype.cli.examples import examples

app = typer.Typer(no_args_is_help=True, help="Manage the API keys of a deployment.")

Deployment = Annotated[str, typer.Option(help="Name of the deployment.")]
_DEFAULT = "calotype"


@app.command(
    epilog=examples(
        "calotype keys create alice",
        "calotype keys create ci --deployment prod --max-queued 20 --pictures-per-minute 60",
    )
)
def create(
    name: Annotated[str, typer.Argument(help="Name of the key, for example its user.")],
    deployment: Deployment = _DEFAULT,
    max_queued: Annotated[int | None, typer.Option(help="Maximum number of queued jobs.")] = None,
    pictures_per_minute: Annotated[
        int | None, typer.Option(help="Rate limit in images per minute, and the largest burst.")
    ] = None,
) -> None:
    """Create an API key and print it once. Without any key, only this machine has access."""
    from calotype.serve.api_keys import ApiKeys
    from calotype.serve.lifecycle.registry import deployment_dir

    folder = deployment_dir(deployment).folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ApiKeys(folder).create(name, max_queued=max_queued, pictures_per_minute=pictures_per_minute)
    typer.echo(key)
    typer.echo(f"stored as a hash in {folder}; it cannot be shown again", err=True)
    if not (folder / "plan.json").is_file():
        typer.echo(f"there is no deployment {deployment!r} yet; the key is valid once it starts", err=True)


@app.command("list", epilog=examples("calotype keys list --deployment prod"))
def list_keys(deployment: Deployment = _DEFAULT, as_json: AsJson = False) -> None:
    """List the valid keys."""
    from rich.table import Table

    from calotype.cli.output import console, print_json
    from calotype.serve.api_keys import ApiKeys
    from calotype.serve.lifecycle.registry import deployment_dir

    store = ApiKeys(deployment_dir(deployment).folder)
    keys = store.all()
    if as_json:
        print_json([key.model_dump(mode="json", exclude={"salt", "hash"}) for key in keys])
        return
    table = Table("name", "max queued jobs", "images per minute")
    for key in keys:
        table.add_row(key.name, str(key.max_queued or "—"), str(key.pictures_per_minute or "—"))
    no_keys = "all keys are revoked; all access is denied"
    if not store.exist():
        no_keys = "no keys; only this machine has access"
    console().print(table if keys else store.problem() or no_keys)


@app.command(epilog=examples("calotype keys revoke alice --deployment prod"))
def revoke(
    name: Annotated[str, typer.Argument(help="Name of the key.")], deployment: Deployment = _DEFAULT
) -> None:
    """Revoke a key."""
    from calotype.serve.api_keys import ApiKeys
    from calotype.serve.lifecycle.registry import deployment_dir

    keys = ApiKeys(deployment_dir(deployment).folder)
    keys.revoke(name)
    typer.echo(f"{name} is revoked")
    if not keys.all():
        typer.echo("that was the last key: all access is denied until you create another", err=True)
