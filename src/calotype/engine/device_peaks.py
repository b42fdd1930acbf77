"""Reads and saves the device peaks measured on this machine, in the cache folder. Needs no torch."""

from __future__ import annotations

import logging
from pathlib import Path

from filelock import FileLock
from pydantic import ValidationError

from calotype.core.fingerprint import package_versions
from calotype.core.hardware import read_cpu
from calotype.core.nvml import NvmlGpus
from calotype.core.paths import atomic_write, cache_dir
from calotype.spec.records.device_peak import CeilingFile, CeilingRecord

_log = logging.getLogger(__name__)


def device_peaks_file() -> Path:
    return cache_dir() / "ceilings.json"


def known_peak(device_name: str, dtype: str) -> float | None:
    """TFLOP/s (TOP/s for int8) of a large matrix product, as measured before on this machine.

    Or of a convolution, if that is faster. None if it was not measured with this driver and torch.
    """
    record = load_peaks(device_name)
    rates = [record.best(what, dtype) for what in ("matmul", "convolution")] if record else []
    return max((rate for rate in rates if rate is not None), default=None)


def load_peaks(device_name: str) -> CeilingRecord | None:
    """All measured peaks of a device with this driver and torch; `cpu` is this machine's processor."""
    key = peak_key(device_name)
    return next((record for record in _read_records() if record.key == key), None)


def peak_key(device_name: str) -> tuple[str, str, str | None]:
    """The key of a device's record: its name, torch's version, the driver's version."""
    on_cpu = device_name == "cpu"
    name = f"CPU {read_cpu().model}" if on_cpu else device_name
    driver = None if on_cpu or name.startswith("CPU ") else NvmlGpus().survey().driver
    return name, package_versions()["torch"] or "unknown", driver


def save_peaks(record: CeilingRecord) -> Path:
    """Save a record, replacing the last one of its device, driver and torch."""
    file = device_peaks_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        others = [each for each in _read_records(already_warned=True) if each.key != record.key]
        with atomic_write(file, "w") as out:
            out.write(CeilingFile(devices=[*others, record]).model_dump_json(indent=1) + "\n")
    return file


def _read_records(*, already_warned: bool = False) -> list[CeilingRecord]:
    file = device_peaks_file()
    if not file.exists():
        return []
    try:
        return CeilingFile.model_validate_json(file.read_text(encoding="utf-8")).devices
    except (ValidationError, UnicodeDecodeError):
        if not already_warned:
            _log.warning(
                "%s is damaged and treated as empty; run `calotype bench ceiling` to measure again", file
            )
        return []
