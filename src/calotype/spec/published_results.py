"""What others measured, as data: one source is tables of rows, and what it concludes from them.

A row stands as its source has it, mistakes included. What is wrong or doubtful is flagged with the reason,
and `corrected` says what to reckon with instead. Knows nothing of files, comparing or concluding.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Outcome = Literal["ok", "oom", "error", "timeout", "not_given"]
"""`not_given`: the source leaves the cell empty, or shows its figure in a picture only."""
Work = Literal["training", "inference", "kernel", "machine"]
Family = Literal["sd1", "sd2", "sdxl"]
Part = Literal["text", "vae", "unet"]
What = Literal[
    "throughput",
    "time",
    "step_time",
    "step_rate",
    "peak_memory",
    "total_memory",
    "compute_rate",
    "copy_rate",
    "work",
    "ratio",
    "share",
    "samples",
    "batches",
    "clock",
    "loss",
    "parameters",
    "count",
    "price",
    "quality",
]
Unit = Literal[
    "samples/s",
    "samples/s/GPU",
    "s",
    "ms",
    "s/step",
    "ms/step",
    "s/batch",
    "it/s",
    "MiB",
    "GiB",
    "GB",
    "MB",
    "KiB",
    "bytes",
    "TFLOP/s",
    "TOP/s",
    "TB/s",
    "Gb/s",
    "TFLOP",
    "MHz",
    "×",
    "%",
    "samples",
    "batches",
    "million",
    "USD/h",
    "USD/month",
    "millicores",
    "pieces",
    "1",
]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Count = Annotated[int, Field(ge=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class Figure(_Frozen):
    """One number."""

    what: What
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: Unit
    high: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The other end where the source has a range; `value` is the low end."""
    of: str | None = None
    """What is counted, or what a ratio is against, where the row does not say."""


class Settings(_Frozen):
    """How something was run. None is what the source does not say."""

    work: Work | None = None
    model: Family | None = None
    weights: str | None = None
    """Which checkpoint exactly."""
    trains: str | None = None
    """What is trained: `unet` is the whole of it."""
    gpu: str | None = None
    gpus_per_node: Count | None = None
    num_nodes: Count | None = None
    precision: Literal["fp32", "fp16", "bf16", "fp8", "int8"] | None = None
    data: str | None = None
    num_workers: Count | None = None
    micro_batch: Count | None = None
    """Samples one GPU takes at once, in training."""
    global_batch: Count | None = None
    batch: Count | None = None
    """Pictures made at once, in inference."""
    width: Count | None = None
    height: Count | None = None
    steps: Count | None = None
    cfg: float | None = None
    sampler: str | None = None
    ema: bool | None = None
    loop: tuple[Part, ...] | None = None
    """The networks inside the timed region."""
    software: str | None = None
    switches: dict[str, bool | int | float | str] = {}
    """Options that set the row apart from its neighbours, by their names in the source."""
    command: str | None = None

    @property
    def num_gpus(self) -> int | None:
        return self.gpus_per_node and self.gpus_per_node * (self.num_nodes or 1)

    def over(self, base: Settings) -> Settings:
        """These settings where they say something, else those of `base`."""
        switches = base.switches | self.switches
        return base.model_copy(
            update={name: getattr(self, name) for name in self.model_fields_set} | {"switches": switches}
        )


class Flag(_Frozen):
    """Why a row or a conclusion should not be taken as it stands."""

    about: str
    """A column or field."""
    certainty: Literal["wrong", "doubtful"]
    reason: str


class Correction(_Frozen):
    """What to reckon with instead of what is written."""

    settings: Settings = Settings()
    figures: tuple[Figure, ...] | None = None
    """Instead of all the row's figures; none at all where it is empty."""


class Row(_Frozen):
    """One row of a table, or a part of it where it holds several measurements."""

    row: Count
    """Among the table's rows that hold something, from 1."""
    column: str | None = None
    """Which measurement of the row."""
    label: str | None = None
    outcome: Outcome = "ok"
    settings: Settings = Settings()
    """What differs from the table's."""
    inferred: tuple[str, ...] = ()
    """Settings that the source leaves to defaults."""
    figures: tuple[Figure, ...] = ()
    written: dict[str, str] = {}
    """Cells, by column, whose text says more than the figures: arithmetic, placeholders, failures."""
    repeats: str | None = None
    """The earlier row, as table/row, that this one only repeats."""
    flags: tuple[Flag, ...] = ()
    corrected: Correction | None = None


class Table(_Frozen):
    """Rows under one head; figures given in running text are tables too."""

    name: Name
    line: Count
    """Of the source, where it begins."""
    columns: tuple[str, ...] = ()
    """As the source heads them; none for running text."""
    about: str
    settings: Settings = Settings()
    """What all rows share."""
    inferred: tuple[str, ...] = ()
    trials: bool = False
    """Whether the rows are repetitions of one measurement."""
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]


class Claim(_Frozen):
    """Something a source concludes."""

    name: Name
    line: Count
    says: str
    """In few words of ours."""
    figure: Figure | None = None
    """None where it gives no number."""
    flags: tuple[Flag, ...] = ()


class Source(_Frozen):
    """Everything one text gives."""

    name: Name
    file: str
    about: str
    environment: dict[str, str] = {}
    tables: Annotated[tuple[Table, ...], Field(min_length=1)]
    claims: tuple[Claim, ...] = ()
