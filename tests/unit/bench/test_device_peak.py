"""`calotype bench ceiling`: measured once, remembered for one device, driver and torch, and never made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from calotype.bench import device_peak
from calotype.core.hardware import GpuSurvey
from calotype.core.nvml import NvmlGpus
from calotype.engine import device_peaks
from calotype.engine.microbenchmarks import Sizes, trials_for
from calotype.spec.records.device_peak import CeilingRecord
from tests.unit.cli.conftest import Calotype

CPU = torch.device("cpu")
TINY = Sizes(matrix=16, channels=4, pixels=8, pictures=2, heads=2, tokens=8, copied_bytes=4096)


class _NothingKnown:
    def as_dict(self) -> dict[str, object]:
        return {}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(device_peak, "full_fingerprint", _NothingKnown)
    monkeypatch.setattr(device_peak, "trials_for", lambda device: trials_for(device, TINY))


def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("measured although it was known")

    monkeypatch.setattr(device_peak, "measure_rate", refuse)


def test_measured_once_and_known_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_peaks.known_peak("cpu", "fp32") is None
    record = device_peak.measure(CPU)
    _no_measuring(monkeypatch)
    assert record.device.startswith("CPU ")
    fastest = max(record.best("matmul", "fp32") or 0, record.best("convolution", "fp32") or 0)
    assert device_peaks.known_peak("cpu", "fp32") == fastest == device_peaks.known_peak(record.device, "fp32")
    assert device_peaks.known_peak("cpu", "fp8") is None
    assert device_peaks.known_peak("another device", "fp32") is None


def test_another_driver_or_torch_is_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    record = device_peak.measure(CPU)
    card = record.model_copy(update={"device": "A GPU", "driver": "580.1", "torch": "2.99"})
    device_peaks.save_peaks(card)
    assert device_peaks.known_peak("A GPU", "fp32") is None
    monkeypatch.setattr(device_peaks, "package_versions", lambda: {"torch": "2.99"})
    assert device_peaks.known_peak("A GPU", "fp32") is None
    monkeypatch.setattr(NvmlGpus, "survey", lambda _: GpuSurvey(driver="580.1"))
    assert device_peaks.known_peak("A GPU", "fp32") == card.rates[0].best
    # What is measured anew takes the old one's place, and only that.
    device_peaks.save_peaks(card.model_copy(update={"rates": []}))
    kept = json.loads(device_peaks.device_peaks_file().read_text())["devices"]
    assert [(one["device"], len(one["rates"])) for one in kept] == [(record.device, 4), ("A GPU", 0)]


def test_the_command_measures_shows_and_appends(calotype: Calotype, tmp_path: Path) -> None:
    lines = tmp_path / "rows" / "ceiling.jsonl"
    done = calotype("bench", "ceiling", "--device", "cpu", "--out", lines)
    assert done.code == 0, done.err
    for words in ("matmul", "convolution", "attention", "copy", "TFLOP/s", "GB/s", "stored in"):
        assert words in done.out
    again = calotype("bench", "ceiling", "--device", "cpu", "--out", lines, "--json")
    first, second = (CeilingRecord.model_validate_json(line) for line in lines.read_text().splitlines())
    assert first == second == CeilingRecord.model_validate_json(again.out)
    assert "and stored" in calotype("bench", "ceiling", "--device", "cpu").out
    fresh = calotype("bench", "ceiling", "--device", "cpu", "--again", "--json")
    assert CeilingRecord.model_validate_json(fresh.out).measured > first.measured


def test_a_damaged_cache_is_said_and_measured_again(
    calotype: Calotype, caplog: pytest.LogCaptureFixture
) -> None:
    file = device_peaks.device_peaks_file()
    file.parent.mkdir(parents=True)
    file.write_text('{"format": "calotype.ceilings.1", "devices": [{"dev')
    assert device_peaks.known_peak("cpu", "fp32") is None
    assert f"{file} is damaged" in caplog.text
    done = calotype("bench", "ceiling", "--device", "cpu")
    assert (done.code, "stored in" in done.out) == (0, True)
    assert device_peaks.known_peak("cpu", "fp32") is not None


def test_a_device_that_is_not_here_is_refused(calotype: Calotype) -> None:
    done = calotype("bench", "ceiling", "--device", "cuda:99")
    assert done.code == 2
    assert "torch sees" in done.err
