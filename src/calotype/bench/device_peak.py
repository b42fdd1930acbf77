"""Measures the peak rates of a device and saves them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import torch

from calotype.core.progress import CancelToken, Progress, Silent
from calotype.engine.device import device_name
from calotype.engine.device_peaks import peak_key, save_peaks
from calotype.engine.microbenchmarks import Trial, measure_rate, trials_for
from calotype.engine.torch_info import full_fingerprint
from calotype.spec.records.device_peak import CeilingRecord, NoRate, Rate


def measure(
    device: torch.device,
    *,
    trials: Sequence[Trial] | None = None,
    command: str = "calotype bench ceiling",
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> CeilingRecord:
    """Measure every rate of the device and replace its saved record."""
    selected = trials_for(device) if trials is None else trials
    reporter, token = progress or Silent(), cancel or CancelToken()
    reporter.start("ceiling", len(selected))
    results: list[Rate | NoRate] = []
    for trial in selected:
        token.check()
        reporter.describe(f"{trial.what} in {trial.dtype}")
        results.append(measure_rate(trial, device))
        reporter.advance()
    name, version, driver = peak_key(device_name(device))
    record = CeilingRecord(
        device=name,
        torch=version,
        driver=driver,
        measured=datetime.now(UTC),
        rates=[result for result in results if isinstance(result, Rate)],
        missing=[result for result in results if isinstance(result, NoRate)],
        command=command,
        fingerprint=full_fingerprint().as_dict(),
    )
    save_peaks(record)
    return record
