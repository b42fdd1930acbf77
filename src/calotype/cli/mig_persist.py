"""`calotype mig persist` and `simulate`: layouts that survive reboots, and simulated GPUs."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson
from calotype.cli.examples import examples
from calotype.cli.mig_options import Driver, Gpu, Label, Yes


def add_to(app: typer.Typer) -> None:
    """Add these commands to the group."""
    app.command(
        epilog=examples("calotype mig persist --yes", "calotype mig persist --from layout.json --yes")
    )(persist)
    app.command(epilog=examples("calotype mig simulate gpus.json --gpu A100-80GB --gpu H100-80GB"))(simulate)


def persist(
    wants: Annotated[
        str | None, typer.Argument(help="Layout to keep, as for `mig apply`. Default: the present one.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Layout file or mig-parted configuration to keep.")
    ] = None,
    label: Label = None,
    gpu: Gpu = 0,
    root: Annotated[
        Path, typer.Option(help="Root folder to write to; for any but / the unit is not started.")
    ] = Path("/"),
    remove: Annotated[bool, typer.Option("--remove", help="Remove the unit and the layout file.")] = False,
    yes: Yes = False,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """Keep a layout across reboots: a layout file and a systemd unit that runs before containers start."""
    from calotype.cli.output import print_json
    from calotype.mig import persist as persistence
    from calotype.mig.open_driver import absolute

    if remove:
        plan = f"would remove {root / persistence.UNIT_PLACE} and {root / persistence.LAYOUT_PLACE}"
        if not yes:
            _print_dry_run(f"{plan}\nnothing was removed; add --yes to apply", as_json)
            return
        done = persistence.remove(root)
    else:
        layout = _layout_text(driver, wants, source, label, gpu, root / persistence.LAYOUT_PLACE)
        unit = persistence.unit_text(
            persistence.this_program(), f"/{persistence.LAYOUT_PLACE}", absolute(driver)
        )
        if not yes:
            texts = (
                f"# {root / persistence.UNIT_PLACE}\n{unit}\n# {root / persistence.LAYOUT_PLACE}\n{layout}"
            )
            _print_dry_run(f"{texts}\nnothing was written; add --yes to apply", as_json)
            return
        done = persistence.install(root, unit, layout)
    if as_json:
        print_json(done)
        return
    for path in done.paths:
        typer.echo(f"{'removed' if remove else 'wrote'} {path}")
    for command in done.commands:
        typer.echo(f"ran {command}")


def _print_dry_run(text: str, as_json: bool) -> None:
    """Print what would be done; as JSON, that nothing was."""
    from calotype.cli.output import print_json
    from calotype.mig.persist import Installed

    typer.echo(text, err=as_json)
    if as_json:
        print_json(Installed((), ()))


def _layout_text(
    driver: str, wants: str | None, source: Path | None, label: str | None, gpu: int, kept: Path
) -> str:
    """Text of the layout file: the given layout plus the stored ones of other GPUs, or the present one."""
    from calotype.cli.mig_apply import file_targets, wanted_layout
    from calotype.mig.driver import gpu_at
    from calotype.mig.layout import check
    from calotype.mig.layout_file import described, parse_layouts, saved, with_others
    from calotype.mig.open_driver import open_driver

    opened = open_driver(driver)
    if source is None and wants is None:
        return saved(opened.read()).text()
    targets = (
        file_targets(opened, source, label) if source else {gpu: wanted_layout(opened, gpu, wants or "")}
    )
    pairs = [(gpu_at(opened, index), layout) for index, layout in targets.items()]
    new = described([(state, check(state.model, layout)) for state, layout in pairs])
    return with_others(new, parse_layouts(kept.read_text(), str(kept)) if kept.exists() else None).text()


def simulate(
    file: Annotated[Path, typer.Argument(help="File with the state of the simulated machine.")],
    gpu: Annotated[
        list[str] | None,
        typer.Option(help="Create a new machine with this GPU, for example A100-80GB; repeatable."),
    ] = None,
    passthrough: Annotated[
        bool,
        typer.Option(
            "--passthrough", help="GPUs passed through to a virtual machine, which cannot be reset."
        ),
    ] = False,
    mirrored: Annotated[
        bool, typer.Option("--mirrored", help="GPUs that number their halves in reverse.")
    ] = False,
    reboot: Annotated[bool, typer.Option("--reboot", help="Reboot the simulated machine.")] = False,
) -> None:
    """Simulate a machine with MIG GPUs; use it with --driver simulated:FILE.

    The simulation follows the rules of the real driver. Where the driver chooses a placement itself, it uses
    a rule inferred from transcripts, which differs from two of them; calotype always names the placement.
    """
    from calotype.core.errors import Problem, RequestError
    from calotype.mig.simulation.fake_host import new_host, read_host, shared_host, write_host
    from calotype.mig.simulation.rules import reboot as reboot_host

    if gpu:
        write_host(file, new_host(*gpu, passthrough=passthrough, mirrored=mirrored))
    elif not file.exists():
        raise RequestError([Problem("--gpu", f"{file} does not exist; give the GPUs of a new machine")])
    if reboot:
        with shared_host(file) as host:
            reboot_host(host)
    for index, card in enumerate(read_host(file).cards):
        typer.echo(
            f"GPU {index}: {card.model}, MIG mode {'on' if card.current else 'off'}, {len(card.cuts)} slices"
        )
    typer.echo(f"use it with --driver simulated:{file}")
