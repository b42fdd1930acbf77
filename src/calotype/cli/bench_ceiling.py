"""`calotype bench ceiling`: measure the peak rates of the device once and store them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson

if TYPE_CHECKING:
    from calotype.spec.records.device_peak import CeilingRecord

_STEADY = 0.9


def command(
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N. Default: a GPU if there is one, else the CPU.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure again even if stored rates exist.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to append the record to, as one JSON line.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the peak rates of the device: matrix products, convolution, attention and copies.

    They are stored per device, driver and torch version; later benchmarks report shares of this ceiling. Run
    it while nothing else uses the device.
    """
    from calotype.bench.device_peak import measure
    from calotype.cli.output import print_json
    from calotype.cli.progress import cancellable, progress_for
    from calotype.core.files import append_json_line
    from calotype.engine.device import choose_device, device_name
    from calotype.engine.device_peaks import device_peaks_file, load_peaks

    place = choose_device(device)
    record = None if again else load_peaks(device_name(place))
    fresh = record is None
    if record is None:
        words = "calotype bench ceiling" + (f" --device {device}" if device else "")
        with progress_for() as bar, cancellable() as cancel:
            record = measure(place, command=words, progress=bar, cancel=cancel)
    if out:
        append_json_line(out, record)
    if as_json:
        print_json(record)
        return
    _show(record)
    when = f"{record.measured:%Y-%m-%d %H:%M} UTC"
    typer.echo(
        f"stored in {device_peaks_file()}" if fresh else f"measured {when} and stored; --again measures again"
    )


def _show(record: "CeilingRecord") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from calotype.cli.output import console

    page = console()
    driver = f", driver {record.driver}" if record.driver else ""
    page.print(f"{record.device}, torch {record.torch}{driver}", soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("work", "precision"):
        table.add_column(head, no_wrap=True)
    for head in ("best", "median"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("shape")
    for rate in record.rates:
        figures = (f"{rate.best:.4g}", f"{rate.median:.4g}")
        table.add_row(rate.what, rate.dtype, *figures, rate.unit, rate.shape)
    page.print(table)
    if any(rate.median < _STEADY * rate.best for rate in record.rates):
        page.print(
            "note: samples differ by more than 10%; measure --again while nothing else uses the device"
        )
    for one in record.missing:
        page.print(f"{one.what} in {one.dtype}: {one.reason}", soft_wrap=True)
