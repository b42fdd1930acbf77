"""The judge of pictures: what it learns, what it admits to confuse, and what it refuses."""

import json
from pathlib import Path

import pytest
import torch

from calotype.bench.quality.classifier import Classifier, read_classifier, shipped
from calotype.bench.quality.classifier_build import ClassifierTraining, train_classifier
from calotype.bench.quality.classifier_train import TrainingBatch
from calotype.bench.quality.dataset import EmojiSet
from calotype.bench.quality.score import accuracy, all_of, score_images
from calotype.core.errors import ExitCode, ModelFileError, RequestError
from calotype.core.progress import CancelToken
from tests.unit.bench.conftest import CPU
from tests.unit.cli.conftest import Calotype

LARGEST_BYTES = 5_000_000


def test_it_tells_a_handful_of_emoji_apart(taught: Classifier) -> None:
    exam = taught.record.exam
    assert exam["clean"].emoji_top1 > 0.9
    assert exam["clean"].style is not None
    assert exam["clean"].style > 0.75
    assert exam["clean"].background == 1
    assert exam["degraded"].emoji_top1 > 0.8
    # Of pictures in pieces it must not be as sure: their colours alone should not be enough.
    assert exam["scrambled"].emoji_top1 < 0.6
    assert exam["clean"].pictures == exam["degraded"].pictures > 20


def test_its_record_says_what_it_learned(taught: Classifier, real: EmojiSet, weights: Path) -> None:
    record = json.loads(weights.with_suffix(".json").read_text())
    assert record["data_sha256"] == real.sha256
    assert record["emoji"]["1F34E"] == "red apple"
    assert "1F9D1-200D-1F52C" in record["emoji"], "all scientists are one"
    assert "1F469-200D-1F52C" not in record["emoji"]
    assert record["styles"] == ["fluent", "noto", "twemoji"]
    assert record["lesson"] == {"epochs": 5, "batch_size": 32, "seed": 0, "precision": "fp32"}
    assert record["fingerprint"]["machine"]["calotype"]


def test_somebody_who_cancels_gets_no_half_recogniser(real: EmojiSet, tmp_path: Path) -> None:
    stop = CancelToken()
    stop.cancel()
    with pytest.raises(Exception, match="cancelled"):
        train_classifier(
            real,
            ClassifierTraining(tmp_path / "r.safetensors", "", TrainingBatch(epochs=1), CPU),
            cancel=stop,
        )
    assert list(tmp_path.iterdir()) == []


def test_weights_and_record_belong_together(taught: Classifier, weights: Path, tmp_path: Path) -> None:
    (tmp_path / "r.safetensors").write_bytes(weights.read_bytes())
    with pytest.raises(ModelFileError, match=r"r\.json: is missing"):
        read_classifier(tmp_path / "r.safetensors", CPU)
    record = json.loads(weights.with_suffix(".json").read_text())
    (tmp_path / "r.json").write_text(json.dumps({**record, "weights_sha256": "0" * 64}))
    with pytest.raises(ModelFileError, match=r"is not the file that r\.json describes"):
        read_classifier(tmp_path / "r.safetensors", CPU)
    (tmp_path / "r.json").write_text('{"format": "something else"}')
    with pytest.raises(ModelFileError, match="is not the record of a recogniser"):
        read_classifier(tmp_path / "r.safetensors", CPU)


def test_a_recogniser_of_other_artwork_is_refused(real: EmojiSet) -> None:
    with pytest.raises(RequestError, match="calotype bench recogniser"):
        read_classifier(shipped(), CPU).check_made_for(real)


def test_the_shipped_one_is_small_good_and_right_about_real_pictures(real: EmojiSet) -> None:
    assert sum(file.stat().st_size for file in shipped().parent.iterdir()) <= LARGEST_BYTES
    known = read_classifier(shipped(), CPU)
    assert known.record.exam["clean"].emoji_top1 > 0.97
    assert known.record.exam["degraded"].emoji_top1 > 0.95
    # The fixture was cut out of the artwork that it learned.
    held_out = real.read("heldout")
    found = accuracy(score_images(held_out.pixels(real.side), [all_of(one) for one in held_out.shown], known))
    assert found.emoji_top1 > 0.95
    assert found.style is not None
    assert found.style > 0.95
    assert found.background == 1


def test_the_shipped_one_sees_nothing_in_noise(real: EmojiSet) -> None:
    known = read_classifier(shipped(), CPU)
    shown = real.read("heldout").shown
    noise = torch.randint(
        256, (len(shown), 3, 128, 128), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    found = accuracy(score_images(noise, [all_of(one) for one in shown], known))
    assert found.emoji_top1 < 0.1
    assert found.background == 0


def test_the_command_says_its_figures_and_the_same_seed_learns_the_same(
    calotype: Calotype, real: EmojiSet, tmp_path: Path
) -> None:
    out = tmp_path / "own.safetensors"
    done = calotype(
        "bench", "recogniser", real.folder, out, "--epochs", 1, "--batch-size", 64, "--device", "cpu"
    )
    assert done.code == 0, done.err
    assert "held-out images, clean: emoji" in done.out
    record = json.loads(out.with_suffix(".json").read_text())
    assert record["command"].startswith("calotype bench recogniser DATA OUT.safetensors --epochs 1")
    assert "loss" in done.err, "news of progress"

    def bytes_with(seed: int) -> bytes:
        place = tmp_path / f"{seed}.safetensors"
        train_classifier(
            real, ClassifierTraining(place, "", TrainingBatch(epochs=1, batch_size=64, seed=seed), CPU)
        )
        return place.read_bytes()

    learned = record["lesson"]["seed"]
    assert out.read_bytes() == bytes_with(learned)
    assert out.read_bytes() != bytes_with(learned + 1)


def test_what_is_no_set_is_refused(calotype: Calotype, tmp_path: Path) -> None:
    missing = calotype("bench", "recogniser", tmp_path, tmp_path / "r.safetensors")
    assert missing.code == ExitCode.NOT_FOUND
    assert "calotype data emoji" in missing.err
    (tmp_path / "dataset.json").write_text('{"format": 1}')
    other = calotype("bench", "recogniser", tmp_path, tmp_path / "r.safetensors")
    assert other.code == ExitCode.BAD_REQUEST
    assert "says nothing of packages" in other.err
    wrong = calotype("bench", "recogniser", tmp_path, tmp_path / "r.bin")
    assert wrong.code == ExitCode.BAD_REQUEST
    assert "does not end in .safetensors" in wrong.err


def test_a_changed_set_is_refused(real: EmojiSet, tmp_path: Path) -> None:
    for file in ("dataset.json", "train/train-000000.tar", "heldout/heldout-000000.tar"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes((real.folder / file).read_bytes())
    copy = EmojiSet(tmp_path)
    assert len(copy.read("train")) > 0
    shard = tmp_path / "train" / "train-000000.tar"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(RequestError, match="is not as it was built"):
        copy.read("train")
