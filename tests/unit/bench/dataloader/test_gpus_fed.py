"""How many GPUs a loader feeds: the arithmetic, and the command over a real set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calotype.bench.dataloader.gpus_fed import Rate, gpus_fed, sentence, workers_for
from calotype.bench.records.store import read
from calotype.bench.report.build import compose
from calotype.bench.report.load import gather
from calotype.cli.main import run
from calotype.spec.records.measurement import FILE
from tests.unit.train.data.specimens import fill_shards

SPEED = st.floats(0.1, 1e4)


@given(st.integers(1, 512), SPEED, SPEED)
def test_so_many_workers_are_enough_and_one_fewer_is_not(num_gpus: int, gpu: float, core: float) -> None:
    rate = Rate(1, core, 1 / core)
    needed = workers_for(num_gpus, gpu, rate)
    assert needed * core >= num_gpus * gpu * (1 - 1e-9)
    assert (needed - 1) * core < num_gpus * gpu * (1 + 1e-9)
    assert gpus_fed(needed * core * (1 + 1e-9), gpu) >= num_gpus


def test_the_limit_is_told_in_words() -> None:
    told = sentence(Rate(4, 800.0, 0.004), 48.2)
    assert told.startswith("4 workers feed 16 GPUs of 48.2 samples/s (800 samples/s measured, 250 per core)")
    assert told.endswith("8 such GPUs need 2 workers with a core each")
    assert sentence(Rate(0, 50.0, 0.02), 48.2).startswith("the training process alone feeds 1 GPU of")


def test_the_command_records_every_number_of_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_shards(tmp_path / "set", 40, 10)
    out = tmp_path / "out"
    words = ["bench", "data", "emoji", "data.kind=shards", f"data.path={tmp_path / 'set'}"]
    words += [
        "data.in_memory=false",
        "data.keep_latents=false",
        "model.micro_batch_size=4",
        "model.global_batch_size=4",
    ]
    words += ["--workers=0,1", "--batches=5", "--warmup=1", f"--out={out}", "--gpu-samples-per-s=2"]
    assert run(words) == 0
    printed = capsys.readouterr().out
    assert "1 worker feeds" in printed
    stored = read(out / FILE).measurements
    assert [one.settings["workers"] for one in stored] == [0, 1]
    for one in stored:
        assert one.kind == "data"
        assert one.wall is not None
        assert one.samples_per_s == pytest.approx(20 / sum(one.series["wall"].values))
        assert one.series["cpu_per_sample"].values[0] > 0
    # In a report they have a section of their own and are nobody's training speed.
    report = compose(gather([out]))
    sections = {section.name: section for section in report.sections}
    assert len(sections["feeding"].tables[0].rows) == 2
    assert "headline" not in sections
    assert json.loads((out / FILE).read_text(encoding="utf-8").splitlines()[0])["kind"] == "data"


def test_made_up_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "data", "sd2-base", f"--out={tmp_path}"]) == 2
    assert "data.kind: synthetic samples are generated" in capsys.readouterr().err
    assert run(["bench", "data", "sd2-base", f"--out={tmp_path}", "data.kind=folder", "--workers=x"]) == 2
