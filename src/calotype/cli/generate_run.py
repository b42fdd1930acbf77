"""Implementation of `calotype generate`: builds requests, runs the engine, writes files, prints results."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from calotype.cli.filenames import free_name
from calotype.cli.output import print_json
from calotype.cli.parsers import MAX_CELLS_A_SIDE, parse_axis, parse_lora, parse_pair
from calotype.cli.progress import Bar, cancellable, progress_for
from calotype.core.cuda_init import init_cuda_driver_async
from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.core.progress import CancelToken
from calotype.spec.constants import IMAGE_FORMATS
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.image import GridAxis, PictureRecord

if TYPE_CHECKING:
    from PIL import Image

    from calotype.engine.engine import Engine, Step


@dataclass(frozen=True)
class GenerateOptions:
    """One command line of `calotype generate`."""

    prompts: tuple[str, ...]
    prompts_file: Path | None
    knobs: dict[str, Any]
    image: Path | None
    mask: Path | None
    from_picture: Path | None
    model: str | None
    preset: str | None
    precision: str | None
    device: str | None
    batch_size: int | None
    config: Path | None
    prediction: str | None
    models: Path | None
    out: Path
    picture_format: str
    grid: tuple[str, ...]
    sheet: bool
    trials: int | None
    as_json: bool


def run(options: GenerateOptions) -> None:
    """Check all input before the model loads, so that typing errors fail fast, then generate."""
    record = _read_record(options)
    requests = _requests(options, record)
    axes = [parse_axis(text) for text in options.grid] or _axes_of(record)
    if options.picture_format not in IMAGE_FORMATS:
        raise RequestError(
            [Problem("--format", f"{options.picture_format!r} is not one of {', '.join(IMAGE_FORMATS)}")]
        )
    if options.trials is not None:
        _check_trials(options.trials, axes)
    _check_grid(requests, axes)
    if options.sheet:
        _check_sheet(options, requests, axes)
    check_out(options.out)
    written: list[dict[str, Any]] = []
    with progress_for() as bar:
        # Ctrl-C stops loading at once: there are no steps to wait for and no results to lose.
        engine = _load(options, record, bar)
        if record:
            _note_changed_weights(record, engine.records(requests[0].with_changes(count=1))[0])
        with cancellable() as cancel:
            worker = _GenerateRun(engine, options, bar, cancel)
            for request in requests:
                if options.trials:
                    written += worker.trials(request, options.trials)
                elif axes:
                    written.append(worker.sheet(request, axes))
                else:
                    written += worker.pictures(request)
            if options.sheet:
                written.append(worker.sheet_of_all(requests, sum(one["seconds"] for one in written)))
    if options.as_json:
        print_json(written)


def _read_record(options: GenerateOptions) -> PictureRecord | None:
    if options.from_picture is None:
        return None
    from calotype.imaging.image_io import read_record

    return read_record(options.from_picture)


def _requests(options: GenerateOptions, record: PictureRecord | None) -> list[GenerateRequest]:
    """One validated request per prompt; without --seed a random seed is chosen here."""
    prompts = list(options.prompts)
    if options.prompts_file:
        prompts += read_prompts(options.prompts_file)
    base = dict(record.request) if record else {}
    if not prompts and not record:
        raise RequestError([Problem("prompt", "is missing; give a text prompt, --prompts-file or --from")])
    knobs = dict(options.knobs)
    if "loras" in knobs:
        knobs["loras"] = [parse_lora(text) for text in knobs["loras"]]
    if "micro" in knobs:
        knobs["micro"] = {key: parse_pair(key, text) for key, text in knobs["micro"].items()}
    if not record:
        knobs.setdefault("seed", secrets.randbelow(2**32))
    for name, path in (("image", options.image), ("mask", options.mask)):
        if path is not None:
            from calotype.engine.image_inputs import describe

            knobs[name] = describe(path)[1].model_dump(mode="json")
    values = {**base, **knobs}
    return [GenerateRequest.parse({**values, "prompt": text}) for text in prompts or [base["prompt"]]]


def read_prompts(file: Path) -> list[str]:
    """Read one prompt per line, skipping empty lines and lines that start with #."""
    if not file.is_file():
        raise NotFoundError(f"no prompts file {file}")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        rule = f"{file} is not UTF-8 text: {error}; save it as UTF-8"
        raise RequestError([Problem("prompts file", rule, str(file))]) from None
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _axes_of(record: PictureRecord | None) -> list[GridAxis]:
    return list(record.grid) if record else []


def _check_grid(requests: list[GenerateRequest], axes: list[GridAxis]) -> None:
    if len(axes) > 2:
        raise RequestError([Problem("--grid", f"was given {len(axes)} times; a sheet has at most two axes")])
    for axis in axes:
        for value in axis.values:
            requests[0].with_changes(**{axis.knob: value})


def _check_trials(number: int, axes: list[GridAxis]) -> None:
    if number < 1:
        raise RequestError([Problem("--trials", f"{number} is not a number of trials; use 1 or more")])
    if axes:
        raise RequestError([Problem("--trials", "cannot time a contact sheet; omit --trials or --grid")])


def _check_sheet(options: GenerateOptions, requests: list[GenerateRequest], axes: list[GridAxis]) -> None:
    problems = []
    if options.grid:
        problems.append(Problem("--sheet", "excludes --grid, which is a sheet already; omit one of the two"))
    elif axes:
        problems.append(
            Problem("--sheet", f"{options.from_picture} is a contact sheet already; omit --sheet")
        )
    if options.trials:
        problems.append(
            Problem("--sheet", "excludes --trials, which repeats the same images; omit one of the two")
        )
    for number, what in ((len(requests), "prompts"), (requests[0].count, "images per prompt")):
        if number > MAX_CELLS_A_SIDE:
            rule = f"{number} {what}; a sheet has at most {MAX_CELLS_A_SIDE} rows and columns"
            problems.append(Problem("--sheet", rule, number))
    if problems:
        raise RequestError(problems)


def check_out(folder: Path) -> None:
    """Raise if images cannot be written to the folder; found after the work, this would lose them."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise RequestError([Problem("--out", f"{existing} is a file, not a folder; choose another name")])
    if not os.access(existing, os.W_OK):
        raise RequestError([Problem("--out", f"{existing} cannot be written to; choose another folder")])
    try:
        if not folder.exists():
            # Some writable folders, such as /proc, still do not take a new folder.
            Path(tempfile.mkdtemp(dir=existing)).rmdir()
    except FileNotFoundError as error:
        rule = f"a folder cannot be created in {existing}; choose another path"
        raise RequestError([Problem("--out", rule)]) from error


def _load(options: GenerateOptions, record: PictureRecord | None, bar: Bar) -> Engine:
    init_cuda_driver_async(options.device)
    from calotype.engine.device import explain_out_of_memory
    from calotype.engine.load import load

    same_model = record if record and options.model is None else None
    name = options.model or (record.model.reference if record else "emoji")
    with explain_out_of_memory(name):
        engine = load(
            name,
            device=options.device,
            precision=options.precision or _recorded_precision(options, record),
            preset=options.preset or (same_model.preset if same_model else None),
            models_folder=options.models,
            config=options.config,
            prediction_type=options.prediction or (same_model.prediction if same_model else None),
            progress=bar,
        )
    identity = engine.model.identity
    if identity.random and not options.as_json:
        _print_note(f"note: {identity.reference} has random weights, so the images show noise")
    return engine


def _note_changed_weights(before: PictureRecord, now: PictureRecord) -> None:
    """Warn about weights that differ from those of the recorded image, as the result differs too."""
    digests = [("a model", before.model.sha256, now.model.sha256)]
    digests += [(name, before.files.get(name, digest), digest) for name, digest in now.files.items()]
    for what, old, new in digests:
        if old != new:
            _print_note(
                f"note: the image was generated with {what} of sha256 {old[:12]}…, this one has {new[:12]}…"
            )


def _recorded_precision(options: GenerateOptions, record: PictureRecord | None) -> str | None:
    """The recorded precision if the device is the same; other devices may have another default."""
    if record is None:
        return None
    from calotype.engine.device import choose_device, device_name

    return record.precision if device_name(choose_device(options.device)) == record.device else None


def _print_note(text: str) -> None:
    print(text, file=sys.stderr)


class _GenerateRun:
    """Runs requests on one engine and writes the results."""

    def __init__(self, engine: Engine, options: GenerateOptions, bar: Bar, cancel: CancelToken) -> None:
        self._engine, self._options, self._bar, self._cancel = engine, options, bar, cancel
        self._for_sheet: list[tuple[Image.Image, PictureRecord]] = []

    def pictures(self, request: GenerateRequest) -> list[dict[str, Any]]:
        """Generate batch by batch, so that finished images are on disk whatever happens later."""
        written, at_once = [], self._options.batch_size or self._engine.most_at_once
        for start in range(0, request.count, at_once):
            count = min(at_once, request.count - start)
            part = request.with_changes(seed=request.seeds()[start], count=count)
            label = (
                request.prompt[:40]
                if count == request.count
                else f"{start + 1}–{start + count} of {request.count}"
            )
            generated, seconds = self._generate(part, label)
            for image, record in zip(generated.images, generated.records, strict=True):
                written.append(self._write(image, record, seconds / count))
                if self._options.sheet:
                    self._for_sheet.append((image, record))
        return written

    def trials(self, request: GenerateRequest, number: int) -> list[dict[str, Any]]:
        """Repeat a request and record the seconds of each run; the images of the first are kept."""
        written, seconds_each = [], []
        for trial in range(number):
            generated, seconds = self._generate(request, f"trial {trial}")
            seconds_each.append(round(seconds, 4))
            if not self._options.as_json:
                typer.echo(f"trial={trial}, time_taken={seconds:.4f}")
            if trial == 0:
                share = seconds / len(generated.images)
                for image, record in zip(generated.images, generated.records, strict=True):
                    written.append(self._write(image, record, share, announce=False))
        return [{**one, "trials": seconds_each} for one in written]

    def sheet_of_all(self, requests: list[GenerateRequest], seconds: float) -> dict[str, Any]:
        """One contact sheet of all images: a row per prompt, a column per seed."""
        first, seeds = requests[0], requests[0].seeds()
        axes = [
            GridAxis(knob="seed", values=list(seeds)),
            GridAxis(knob="prompt", values=[request.prompt for request in requests]),
        ]
        images, records = zip(*self._for_sheet, strict=True)
        cells = [images[start : start + len(seeds)] for start in range(0, len(images), len(seeds))]
        used = {name: digest for record in records for name, digest in record.files.items()}
        record = records[0].model_copy(update={"files": used})
        return self._write_sheet(cells, axes, first.with_changes(count=1), record, seconds)

    def sheet(self, request: GenerateRequest, axes: list[GridAxis]) -> dict[str, Any]:
        """A contact sheet with the first image of the request for every combination of the settings."""
        base = request.with_changes(count=1)
        across, down = axes[0], axes[1] if len(axes) > 1 else None
        cells, record, started = [], None, time.perf_counter()
        for row_value in down.values if down else [None]:
            row = []
            for value in across.values:
                changes = {across.knob: value, **({down.knob: row_value} if down else {})}
                label = " ".join(f"{knob}={chosen}" for knob, chosen in changes.items())
                generated, _ = self._generate(base.with_changes(**changes), label)
                row.append(generated.images[0])
                record = record or generated.records[0]
            cells.append(row)
        assert record is not None
        return self._write_sheet(cells, axes, base, record, time.perf_counter() - started)

    def _write_sheet(
        self,
        cells: Sequence[Sequence[Image.Image]],
        axes: list[GridAxis],
        request: GenerateRequest,
        record: PictureRecord,
        seconds: float,
    ) -> dict[str, Any]:
        """Write a sheet; all cells share `request`, and `record` is that of any cell."""
        from calotype.imaging.contact_sheet import Axis, contact_sheet

        request = request.settled(record.request)
        across, *down = [Axis(axis.knob, tuple(axis.values)) for axis in axes]
        record = record.model_copy(update={"request": request.as_dict(), "grid": axes})
        sheet = contact_sheet(cells, across, down[0] if down else None, _caption(request, axes, record))
        return self._write(sheet, record, seconds)

    def _generate(self, request: GenerateRequest, label: str) -> tuple[Any, float]:
        self._bar.start(label, request.steps)
        seen = 0

        def on_step(step: Step) -> None:
            nonlocal seen
            if seen == 0:
                self._bar.start(label, step.total * step.num_batches)
            position = step.batch * step.total + step.done
            self._bar.advance(position - seen)
            seen = position

        started = time.perf_counter()
        generated = self._engine.generate(
            request, batch_size=self._options.batch_size, on_step=on_step, cancel=self._cancel
        )
        return generated, time.perf_counter() - started

    def _write(
        self, image: Image.Image, record: PictureRecord, seconds: float, *, announce: bool = True
    ) -> dict[str, Any]:
        from calotype.imaging.image_io import can_encode, save_image

        picture_format = self._options.picture_format
        if not can_encode(picture_format, image):
            _print_note(
                f"note: {image.width}×{image.height} is more than {picture_format} allows; written as png"
            )
            picture_format = "png"
        seed = record.request["seed"]
        sheet = "sheet" if self._options.sheet else "grid"
        kind = sheet if record.grid else f"seed{seed}"
        path = free_name(self._options.out, record.request["prompt"], kind, picture_format)
        save_image(image, path, record)
        if announce and not self._options.as_json:
            prefix = "contact sheet: " if record.grid else ""
            typer.echo(f"{prefix}{path}  ({image.width}×{image.height}, seed {seed}, {seconds:.2f} s)")
        return {"file": path, "seed": seed, "seconds": round(seconds, 4), "record": record}


def _caption(request: GenerateRequest, axes: list[GridAxis], record: PictureRecord) -> str:
    varied = {axis.knob for axis in axes}
    shown_knobs = ("sampler", "schedule", "steps", "cfg", "seed")
    settings = [f"{knob} {getattr(request, knob)}" for knob in shown_knobs if knob not in varied]
    prompt = [] if "prompt" in varied else [f"“{request.prompt}”"]
    return " · ".join([*prompt, *settings, record.model.reference])
