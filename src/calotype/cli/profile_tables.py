"""Terminal tables of a profile."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from calotype.bench.profile.report import Rows, group_rows, headline, kernel_rows, stage_rows
from calotype.cli.output import console, print_json

if TYPE_CHECKING:
    from calotype.spec.records.profile import ProfileRecord

_WORDS = ("group", "stage", "name")
_SENTENCE = "what it is"
_BAR = 40


def show(record: "ProfileRecord", top: int, as_json: bool) -> None:
    """Print tables; as JSON, the longest kernels without the fingerprint, as the file has everything."""
    if as_json:
        values = record.model_dump(mode="json", exclude={"fingerprint"})
        print_json({**values, "kernels": values["kernels"][:top]})
        return
    out = console()
    for line in headline(record):
        out.print(line, soft_wrap=True)
    out.print(_table(_with_bars(record)))
    out.print(Text(record.waiting.message, style="bold"), soft_wrap=True)
    for advice in record.waiting.advice:
        out.print(f"  → {advice}", soft_wrap=True)
    if record.stages:
        out.print(_table(stage_rows(record)))
    out.print(_table(_in_two_lines(kernel_rows(record, top))))
    for one in record.nsight:
        missing = "" if one.installed else " (not installed here)"
        out.print(f"{one.program}{missing}, {one.shows}:\n  {one.command}", soft_wrap=True)


def _with_bars(record: "ProfileRecord") -> Rows:
    bars = ["█" * round(one.share * _BAR) for one in record.groups]
    return [{**row, "": bar} for row, bar in zip(group_rows(record), bars, strict=True)]


def _in_two_lines(rows: Rows) -> Rows:
    """Put the description of a kernel below its name, as both do not fit side by side."""
    return [{**row, "name": f"{row['name']}\n  {row[_SENTENCE]}"} for row in rows]


def _table(rows: Rows) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    heads = [head for head in rows[0] if head != _SENTENCE]
    for head in heads:
        words = head in _WORDS or not head
        table.add_column(head, justify="left" if words else "right", no_wrap=head != "name", overflow="fold")
    for row in rows:
        table.add_row(*(row[head] for head in heads))
    return table
