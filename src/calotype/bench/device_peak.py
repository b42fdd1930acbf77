"""Measures all rates of a device and remembers them. Knows nothing of how they are shown."""

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
    """Every rate of the device, now; what was remembered of it before is replaced."""
    todo = trials_for(device) if trials is None else trials
    watcher, token = progress or Silent(), cancel or CancelToken()
    watcher.start("ceiling", len(todo))
    found: list[Rate | NoRate] = []
    for trial in todo:
        token.check()
        watcher.describe(f"{trial.what} in {trial.dtype}")
        found.append(measure_rate(trial, device))
        watcher.advance()
    name, version, driver = peak_key(device_name(device))
    record = CeilingRecord(
        device=name,
        torch=version,
        driver=driver,
        measured=datetime.now(UTC),
        rates=[one for one in found if isinstance(one, Rate)],
        missing=[one for one in found if isinstance(one, NoRate)],
        command=command,
        fingerprint=full_fingerprint().as_dict(),
    )
    save_peaks(record)
    return record
