"""`calotype mig persist` and `simulate`: slices that stay, that are pretended."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson
from calotype.cli.mig_options import Driver, Gpu, Label, Yes


def add_to(app: typer.Typer) -> None:
    """Put these verbs beside the others."""
    app.command()(persist)
    app.command()(simulate)


def persist(
    wants: Annotated[
        str | None, typer.Argument(help="What to keep, as for apply; what is there now if not said.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A layout file or mig-parted configuration to keep.")
    ] = None,
    label: Label = None,
    gpu: Gpu = 0,
    root: Annotated[
        Path, typer.Option(help="The system to write into; another than / is not started.")
    ] = Path("/"),
    remove: Annotated[bool, typer.Option("--remove", help="Take unit and layout file away again.")] = False,
    yes: Yes = False,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """Keep a layout over reboots: a layout file and a systemd unit that runs before containers start."""
    from calotype.cli.output import print_json
    from calotype.mig import persist as keeping
    from calotype.mig.open_driver import absolute

    if remove:
        told = f"would remove {root / keeping.UNIT_PLACE} and {root / keeping.LAYOUT_PLACE}"
        if not yes:
            _only_told(f"{told}\nnothing was removed; --yes does it", as_json)
            return
        done = keeping.remove(root)
    else:
        layout = _to_keep(driver, wants, source, label, gpu, root / keeping.LAYOUT_PLACE)
        unit = keeping.unit_text(keeping.this_program(), f"/{keeping.LAYOUT_PLACE}", absolute(driver))
        if not yes:
            texts = f"# {root / keeping.UNIT_PLACE}\n{unit}\n# {root / keeping.LAYOUT_PLACE}\n{layout}"
            _only_told(f"{texts}\nnothing was written; --yes does it", as_json)
            return
        done = keeping.install(root, unit, layout)
    if as_json:
        print_json(done)
        return
    for path in done.paths:
        typer.echo(f"{'removed' if remove else 'wrote'} {path}")
    for command in done.commands:
        typer.echo(f"ran {command}")


def _only_told(text: str, as_json: bool) -> None:
    """What would be done; a program hears that nothing was."""
    from calotype.cli.output import print_json
    from calotype.mig.persist import Installed

    typer.echo(text, err=as_json)
    if as_json:
        print_json(Installed((), ()))


def _to_keep(
    driver: str, wants: str | None, source: Path | None, label: str | None, gpu: int, kept: Path
) -> str:
    """The layout file's text: of what is asked for beside what is kept of other GPUs, or of what is there."""
    from calotype.cli.mig_apply import file_targets, wanted_layout
    from calotype.mig.driver import gpu_at
    from calotype.mig.layout import check
    from calotype.mig.layout_file import described, parse_layouts, saved, with_others
    from calotype.mig.open_driver import open_driver

    opened = open_driver(driver)
    if source is None and wants is None:
        return saved(opened.read()).text()
    asked = file_targets(opened, source, label) if source else {gpu: wanted_layout(opened, gpu, wants or "")}
    pairs = [(gpu_at(opened, index), layout) for index, layout in asked.items()]
    new = described([(state, check(state.model, layout)) for state, layout in pairs])
    return with_others(new, parse_layouts(kept.read_text(), str(kept)) if kept.exists() else None).text()


def simulate(
    file: Annotated[Path, typer.Argument(help="The pretended machine.")],
    gpu: Annotated[
        list[str] | None, typer.Option(help="Make the machine anew with these GPUs, for instance A100-80GB.")
    ] = None,
    passthrough: Annotated[
        bool, typer.Option("--passthrough", help="Cards of a virtual machine, which cannot be reset.")
    ] = False,
    mirrored: Annotated[
        bool, typer.Option("--mirrored", help="Units that number their halves the other way round.")
    ] = False,
    reboot: Annotated[bool, typer.Option("--reboot", help="Reboot the machine.")] = False,
) -> None:
    """A machine to practise on, without a GPU: use it with --driver simulated:FILE.

    It keeps the real driver's rules. Where the driver chooses a place by itself it follows a rule inferred
    from transcripts, which differs from two of them; calotype always names the place.
    """
    from calotype.core.errors import Problem, RequestError
    from calotype.mig.simulation.fake_host import new_host, read_host, shared_host, write_host
    from calotype.mig.simulation.rules import reboot as reboot_host

    if gpu:
        write_host(file, new_host(*gpu, passthrough=passthrough, mirrored=mirrored))
    elif not file.exists():
        raise RequestError([Problem("--gpu", f"{file} is not there; say which GPUs it should have")])
    if reboot:
        with shared_host(file) as host:
            reboot_host(host)
    for index, card in enumerate(read_host(file).cards):
        typer.echo(
            f"GPU {index}: {card.model}, MIG mode {'on' if card.current else 'off'}, {len(card.cuts)} slices"
        )
    typer.echo(f"use it with --driver simulated:{file}")
