"""`calotype bench ceiling`: measured once, remembered for one device, driver and torch, and never made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from calotype.bench import ceiling
from calotype.bench.ceiling import measuring
from calotype.core.hardware import GpuSurvey
from calotype.core.nvml import NvmlGpus
from calotype.engine import ceilings
from calotype.engine.rates import Sizes, trials_for
from calotype.spec.ceiling_record import CeilingRecord
from tests.unit.cli.conftest import Calotype

CPU = torch.device("cpu")
TINY = Sizes(matrix=16, channels=4, pixels=8, pictures=2, heads=2, tokens=8, copied_bytes=4096)


class _NothingKnown:
    def as_dict(self) -> dict[str, object]:
        return {}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring, "full_fingerprint", _NothingKnown)
    monkeypatch.setattr(measuring, "trials_for", lambda device: trials_for(device, TINY))


def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("measured although it was known")

    monkeypatch.setattr(measuring, "rate", refuse)


def test_measured_once_and_known_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ceiling.known("cpu", "fp32") is None
    record = ceiling.measure(CPU)
    _no_measuring(monkeypatch)
    assert record.device.startswith("CPU ")
    fastest = max(record.best("matmul", "fp32") or 0, record.best("convolution", "fp32") or 0)
    assert ceiling.known("cpu", "fp32") == fastest == ceiling.known(record.device, "fp32")
    assert ceiling.known("cpu", "fp8") is None
    assert ceiling.known("another device", "fp32") is None


def test_another_driver_or_torch_is_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    record = ceiling.measure(CPU)
    card = record.model_copy(update={"device": "A GPU", "driver": "580.1", "torch": "2.99"})
    ceilings.remember(card)
    assert ceiling.known("A GPU", "fp32") is None
    monkeypatch.setattr(ceilings, "package_versions", lambda: {"torch": "2.99"})
    assert ceiling.known("A GPU", "fp32") is None
    monkeypatch.setattr(NvmlGpus, "survey", lambda _: GpuSurvey(driver="580.1"))
    assert ceiling.known("A GPU", "fp32") == card.rates[0].best
    # What is measured anew takes the old one's place, and only that.
    ceilings.remember(card.model_copy(update={"rates": []}))
    kept = json.loads(ceilings.ceilings_file().read_text())["devices"]
    assert [(one["device"], len(one["rates"])) for one in kept] == [(record.device, 4), ("A GPU", 0)]


def test_the_command_measures_shows_and_appends(calotype: Calotype, tmp_path: Path) -> None:
    lines = tmp_path / "rows" / "ceiling.jsonl"
    done = calotype("bench", "ceiling", "--device", "cpu", "--out", lines)
    assert done.code == 0, done.err
    for words in ("matmul", "convolution", "attention", "copy", "TFLOP/s", "GB/s", "kept in"):
        assert words in done.out
    again = calotype("bench", "ceiling", "--device", "cpu", "--out", lines, "--json")
    first, second = (CeilingRecord.model_validate_json(line) for line in lines.read_text().splitlines())
    assert first == second == CeilingRecord.model_validate_json(again.out)
    assert "and remembered" in calotype("bench", "ceiling", "--device", "cpu").out
    fresh = calotype("bench", "ceiling", "--device", "cpu", "--again", "--json")
    assert CeilingRecord.model_validate_json(fresh.out).measured > first.measured


def test_a_damaged_cache_is_said_and_measured_again(
    calotype: Calotype, caplog: pytest.LogCaptureFixture
) -> None:
    file = ceilings.ceilings_file()
    file.parent.mkdir(parents=True)
    file.write_text('{"format": "calotype.ceilings.1", "devices": [{"dev')
    assert ceiling.known("cpu", "fp32") is None
    assert f"{file} is damaged" in caplog.text
    done = calotype("bench", "ceiling", "--device", "cpu")
    assert (done.code, "kept in" in done.out) == (0, True)
    assert ceiling.known("cpu", "fp32") is not None


def test_a_device_that_is_not_here_is_refused(calotype: Calotype) -> None:
    done = calotype("bench", "ceiling", "--device", "cuda:99")
    assert done.code == 2
    assert "torch sees" in done.err
