"""`calotype bench quality` from end to end, on a random model and on pictures that are right."""

import json
import signal
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from calotype.bench.quality import run
from calotype.bench.quality.classifier import Classifier
from calotype.bench.quality.dataset import EmojiSet, scaled
from calotype.bench.quality.generate import generate_images
from calotype.bench.quality.prompts import eval_prompts
from calotype.bench.quality.run import QualityPlan, measure
from calotype.core.errors import CancelledError, ExitCode, RequestError
from calotype.core.progress import CancelToken, Silent
from calotype.engine import presets
from calotype.engine.load import load
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.quality import QualityRecord
from tests.small_models import shrunk_folder
from tests.unit.cli.conftest import Calotype

SHEETS = [f"{split}-{kind}.png" for split in ("train", "heldout") for kind in ("best", "worst", "random")]
SHORT = ("--count", 4, "--steps", 2, "--device", "cpu")


@pytest.fixture(scope="module")
def _taught(taught: Classifier) -> None:
    """Its files are there."""


@pytest.mark.usefixtures("_taught")
def test_a_random_model_is_measured_from_end_to_end(
    calotype: Calotype, small_model: Path, real: EmojiSet, weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "measured"
    done = calotype(
        *("bench", "quality", small_model, "--data", real.folder, "--recogniser", weights, "--out", out),
        *(*SHORT, "--compare", "baseline", "--batch-size", 3),
    )
    assert done.code == 0, done.err
    assert sorted(file.name for file in out.iterdir()) == sorted(
        [*SHEETS, "README.md", "reconstructions.png", "results.json"]
    )
    record = QualityRecord.model_validate_json((out / "results.json").read_text())
    assert record.command.startswith(f"calotype bench quality {small_model} --data DATA --out OUT")
    assert record.data_sha256 == real.sha256
    assert record.model.sha256
    assert record.fingerprint["torch"]["version"] == str(torch.__version__)
    assert [one.split for one in record.pictures] == ["train"] * 4 + ["heldout"] * 4
    assert [one.wording for one in record.pictures[:4]] == ["full", "full", "full", "free"]
    assert record.request["steps"] == 2
    for part in record.parts.values():
        assert part.all.pictures == 4
        assert part.real.emoji_top1 >= 0.75
        assert part.all.background == 0, "noise has no background"
    assert record.comparison is not None
    assert record.comparison.worst_ssim == pytest.approx(1)
    assert record.comparison.worst_psnr_db > 90
    summary = (out / "README.md").read_text()
    assert "training captions" in summary
    assert "against preset baseline" in summary.lower()
    with Image.open(out / "train-worst.png") as sheet:
        assert sheet.width > 4 * real.side
        assert sheet.height > 2 * real.side


def test_pictures_are_those_that_generate_makes(small_model: Path) -> None:
    engine = load(str(small_model), device="cpu")
    asked = [
        GenerateRequest(prompt=word, seed=seed, steps=2) for word, seed in (("a", 5), ("b c", 9), ("d", 1))
    ]
    pictures = generate_images(engine, asked, batch_size=2, progress=Silent(), cancel=CancelToken())
    for request, picture in zip(asked, pictures, strict=True):
        alone = scaled(engine.generate(request).images[0], 128)
        assert int((picture.int() - alone.int()).abs().max()) <= 1


def _plan(out: Path, count: int = 24) -> QualityPlan:
    return QualityPlan("", out, GenerateRequest(prompt="", steps=1), count=count)


def _true_artwork(real: EmojiSet, plan: QualityPlan) -> dict[str, Tensor]:
    """By prompt, the real picture that the measurement will ask for."""
    found = {}
    for split in ("train", "heldout"):
        pictures = real.read(split)
        for one in eval_prompts(pictures.shown, plan.count, plan.request.seed):
            found[one.prompt] = pictures.pixels(real.side, [one.real])[0]
    return found


def test_a_model_that_shows_the_real_artwork_is_as_good_as_the_recogniser(
    real: EmojiSet, taught: Classifier, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(tmp_path / "out")
    artwork = _true_artwork(real, plan)

    def perfect(engine: object, requests: list[GenerateRequest], **others: object) -> Tensor:
        return torch.stack([artwork[request.prompt] for request in requests])

    monkeypatch.setattr(run, "generate_images", perfect)
    record = measure(load(str(small_model), device="cpu"), taught, real, plan)
    for part in record.parts.values():
        assert part.all.emoji_top1 == part.real.emoji_top1 > 0.85
        assert part.all.style == pytest.approx(part.real.style, abs=0.1)
        assert part.all.background == 1
        assert (part.sharpness.p5, part.sharpness.p95) == pytest.approx((1, 1))
    # What is in the training set is a copy of it; what was held out is as far from it as real pictures are.
    assert record.parts["train"].near_copies == 1
    assert record.parts["train"].nearest_is_asked == 1
    assert record.parts["heldout"].nearest == record.real_nearest
    assert record.parts["heldout"].near_copies == record.real_near_copies < 0.5


def test_another_preset_that_changes_pictures_is_told(
    real: EmojiSet, taught: Classifier, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apply(assembly: NetworkBuilder) -> None:
        assembly.model.unet.conv_out.weight.mul_(1.02)

    rough = Pass("rough", "lossy", lambda _: None, apply)
    monkeypatch.setitem(presets.PRESETS, "rough", (rough,))
    record = measure(
        load(str(small_model), device="cpu"),
        taught,
        real,
        _plan(tmp_path / "out", count=1),
        other=lambda: load(str(small_model), device="cpu", preset="rough"),
    )
    assert record.comparison is not None
    assert record.comparison.preset == "rough"
    assert 5 < record.comparison.worst_psnr_db < 60
    assert record.comparison.worst_ssim < 1


def test_the_same_seed_gives_the_same_figures_at_any_batch_size(
    real: EmojiSet, taught: Classifier, small_model: Path, tmp_path: Path
) -> None:
    engine, plan = load(str(small_model), device="cpu"), _plan(tmp_path / "out", count=3)
    one = measure(engine, taught, real, plan)
    other = measure(engine, taught, real, QualityPlan("", plan.out, plan.request, count=3, batch_size=1))
    for a, b in zip(one.pictures, other.pictures, strict=True):
        assert (a.prompt, a.seed, a.judged) == (b.prompt, b.seed, b.judged)
        assert a.nearest == pytest.approx(b.nearest, abs=0.05)


def test_a_cancelled_measurement_writes_nothing(
    real: EmojiSet, taught: Classifier, small_model: Path, tmp_path: Path
) -> None:
    stop = CancelToken()
    stop.cancel()
    with pytest.raises(CancelledError):
        measure(load(str(small_model), device="cpu"), taught, real, _plan(tmp_path / "out"), cancel=stop)
    assert not (tmp_path / "out").exists()


def test_a_model_of_another_size_is_refused(real: EmojiSet, taught: Classifier, tmp_path: Path) -> None:
    small = load(str(shrunk_folder(tmp_path, "emoji")), device="cpu")
    with pytest.raises(RequestError, match="makes pictures of 64×64, those of the set are 128×128"):
        measure(small, taught, real, _plan(tmp_path / "out"))


def test_bad_requests_are_refused_before_a_model_is_loaded(
    calotype: Calotype, real: EmojiSet, tmp_path: Path
) -> None:
    def refused(*more: object, data: Path = real.folder) -> tuple[int, str]:
        order = (
            "bench",
            "quality",
            "random:emoji",
            "--data",
            data,
            "--out",
            tmp_path / "out",
            "--device",
            "cpu",
        )
        outcome = calotype(*order, *more)
        return outcome.code, outcome.err

    (tmp_path / "file").touch()
    code, told = refused("--out", tmp_path / "file")
    assert (code, told.startswith("error: --out: ")) == (ExitCode.BAD_REQUEST, True)
    too_few = "error: --count: '0' is out of range; it must be at least 1\n"
    assert refused("--count", 0) == (ExitCode.BAD_REQUEST, too_few)
    code, told = refused("--sampler", "eular")
    assert code == ExitCode.BAD_REQUEST
    assert "'euler'" in told
    code, told = refused(data=tmp_path)
    assert code == ExitCode.NOT_FOUND
    assert "dataset.json" in told
    code, told = refused()
    assert code == ExitCode.BAD_REQUEST, "the shipped recogniser knows other artwork"
    assert "was trained on artwork" in told
    assert not (tmp_path / "out").exists()


def test_the_record_is_plain_json(
    real: EmojiSet, taught: Classifier, small_model: Path, tmp_path: Path
) -> None:
    record = measure(load(str(small_model), device="cpu"), taught, real, _plan(tmp_path, count=1))
    assert json.loads((tmp_path / "results.json").read_text()) == record.model_dump(mode="json")


@pytest.mark.usefixtures("_taught")
def test_ctrl_c_while_the_model_loads_stops_at_once(
    calotype: Calotype, real: EmojiSet, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    went_on = []

    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        went_on.append(1)
        raise AssertionError("it goes on loading")

    monkeypatch.setattr("calotype.engine.load.resolve_model", interrupted)
    order = ("bench", "quality", "random:emoji", "--data", real.folder, "--recogniser", weights)
    seen = calotype(*order, "--out", tmp_path / "out", *SHORT)
    assert (seen.code, went_on) == (ExitCode.CANCELLED, [])
