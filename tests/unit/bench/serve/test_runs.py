"""Small real runs: a deployment and a plain server that are started, loaded, counted and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest

import calotype
from calotype.bench.records.store import read
from calotype.cli.main import run
from calotype.spec.records.measurement import FILE
from tests.certificates import certified
from tests.faults.checks import processes_with

SMALL = ["--device", "cpu", "--warmup", "0", "--width", "64", "--height", "64"]
IDLE = ["bench", "serve", "--engine", "nothing", "--steps", "2", "--target", "60", *SMALL]


@pytest.mark.parametrize("interface", ["http", "grpc"])
def test_a_deployment_under_load(
    interface: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_RUN", mark := uuid4().hex)
    words = ["--clients", "3", "--requests", "12", "--solo", "2", "--interface", interface]
    less = ["--few", "2", "--share", "0.5", "--share", "0.25"]
    assert run([*IDLE, *words, *less, "--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["adds_up"]
    solo, load, few, half, quarter = said["phases"]
    assert [phase["latency_s"]["count"] for phase in said["phases"]] == [2, 12, 12, 12, 12]
    assert load["goodput"] == load["throughput"] > 0
    assert few["load"]["clients"] == 2
    assert max(int(jobs) for jobs in few["batch_jobs"]) <= 2
    assert half["load"]["rate"] == pytest.approx(load["throughput"] / 2)
    assert quarter["load"]["rate"] == pytest.approx(load["throughput"] / 4)
    assert said["conclusions"]["p95_over_solo_median_at 0.5 of the load"] == pytest.approx(
        half["latency_s"]["p95"] / solo["latency_s"]["median"]
    )
    assert said["conclusions"]["throughput_over_load_at 2 clients"] == pytest.approx(
        few["throughput"] / load["throughput"]
    )
    assert load["account"]["listed"] == 12
    # Two steps of twelve pictures with guidance, however they were shared.
    assert sum(load["batch_rows"].values()) <= 24
    assert solo["batch_jobs"] == {"1": 4}
    records = read(tmp_path / FILE).measurements
    assert [record.kind for record in records] == ["serve"] * 5
    phases = ["solo", "load", "2 clients", "0.5 of the load", "0.25 of the load"]
    assert [record.settings["phase"] for record in records] == phases
    assert records[1].samples_per_s == load["images_per_s"]
    assert not processes_with(f"TEST_RUN={mark}")


def test_one_that_runs_and_speaks_tls_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    certificate, key = certified(tmp_path, "DNS:pictures.example")
    reached = {"grpc_port": 0, "tls_certificate": certificate, "tls_key": key}
    plan: dict[str, Any] = {"name": "safe", "engine": "nothing", "devices": ("cpu",), "reached": reached}
    calotype.deploy("emoji", **plan).close()
    try:
        for interface in ("http", "openai", "grpc"):
            words = ["--deployment", "safe", "--clients", "2", "--requests", "4", "--interface", interface]
            assert run(["bench", "serve", *words, "--solo", "0", "--steps", "2", "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["adds_up"]
    finally:
        calotype.undeploy("safe")


def test_the_embedded_model_beside_the_plain_server(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "serve", "--steps", "1", "--solo", "0", "--clients", "2", "--requests", "2", *SMALL]
    assert run([*words, "--interface", "openai", "--plain", "--preset", "baseline"]) == 0
    said = capsys.readouterr().out
    assert "no job lost or duplicated: 2 requested, 2 accepted" in said
    assert "× the images per second of the baseline server" in said


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["--clients", "2", "--rate", "3"], "give one of them"),
        (["--duration", "2", "--requests", "3"], "give one of them"),
        (["--interface", "carrier-pigeon"], "no interface 'carrier-pigeon'"),
        (["--plain"], "omit --plain"),
        (["--offline", "--batches", "0"], "'0' is not a list of batch sizes"),
        (["--deployment", "nowhere"], "no deployment 'nowhere'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str],
    rule: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path))
    assert run([*IDLE, *words]) in (2, 4)
    assert rule in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_no_process_and_what_it_had(number: signal.Signals, tmp_path: Path) -> None:
    mark = uuid4().hex
    words = ["--clients", "2", "--duration", "600", "--solo", "1", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "calotype", *IDLE, *words],
        env={**os.environ, "TEST_RUN": mark},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    limit = Timer(240, process.kill)
    limit.start()
    assert any("load:" in line for line in process.stderr)
    limit.cancel()
    process.send_signal(number)
    process.stderr.close()
    assert process.wait(60) == 130
    assert not processes_with(f"TEST_RUN={mark}")
    assert [record.settings["phase"] for record in read(tmp_path / FILE).measurements] == ["solo"]
