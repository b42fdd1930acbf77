"""`calotype compare` from end to end on a narrow random model, and its parts against what is known."""

import json
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from calotype.bench.compare.candidates import Candidate, parse_presets
from calotype.bench.compare.contact_sheet import MAX_ROWS, sheet, thumbnails
from calotype.bench.compare.run import ComparePlan, compare
from calotype.bench.compare.score import ClassifierScores, classifier_for, expected_in
from calotype.bench.quality.classifier import Classifier, read_classifier, shipped
from calotype.bench.quality.score import ExpectedLabels
from calotype.core.errors import CancelledError, ExitCode, RequestError
from calotype.core.progress import CancelToken
from calotype.engine import presets
from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.models.model import Model
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.preset_comparison import CompareRecord, Figures
from tests.small_models import NATIVE_SIZE, shrunk_folder
from tests.unit.cli.conftest import Calotype

CPU = torch.device("cpu")
APPLE = "a red apple, flat style, on a light blue background"
SHORT = ("--steps", 3, "--device", "cpu")
EQUAL_DB = 106


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shrunk_folder(tmp_path_factory.mktemp("models"), "emoji")


@pytest.fixture(scope="module")
def judge() -> Classifier:
    return read_classifier(shipped(), CPU)


def _fails(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    def apply(_: NetworkBuilder) -> None:
        raise error

    monkeypatch.setitem(presets.PRESETS, name, (Pass(name, "exact", lambda _: None, apply),))


def _figures(record: CompareRecord) -> dict[str, Figures]:
    return {row.preset: row.figures for row in record.presets if row.figures}


def test_presets_are_compared_from_end_to_end(calotype: Calotype, narrow: Path, tmp_path: Path) -> None:
    out, prompts = tmp_path / "out", tmp_path / "prompts.txt"
    prompts.write_text(f"# a remark\n{APPLE}\n", encoding="utf-8")
    order = ("compare", "a cat", "--prompts", prompts, "--model", narrow, "--out", out, *SHORT)
    done = calotype(*order, "--presets", "baseline,int8,cached", "--recogniser", shipped(), "--count", 2)
    assert done.code == 0, done.err
    assert sorted(file.name for file in out.iterdir()) == ["README.md", "results.json", "side-by-side.png"]
    record = CompareRecord.model_validate_json((out / "results.json").read_text())
    assert record.command.startswith("calotype compare --presets baseline,int8,cached --reference baseline")
    assert str(tmp_path) not in record.command.replace(str(narrow), "")
    assert record.fingerprint["torch"]["version"] == str(torch.__version__)
    assert (record.reference.preset, record.reference.precision) == ("baseline", "fp32")
    assert [row.preset for row in record.presets] == ["baseline", "int8", "cached"]
    for row in (record.reference, *record.presets):
        asked = [(one.prompt, one.seed) for one in row.pictures]
        assert asked == [("a cat", 0), ("a cat", 1), (APPLE, 0), (APPLE, 1)]
        assert all(one.wall_s > 0 and one.device_s is None and one.png_bytes > 0 for one in row.pictures)
    figures = _figures(record)
    same, *others = (figures[name] for name in ("baseline", "int8", "cached"))
    assert same.likeness
    assert same.likeness.worst_psnr_db == pytest.approx(EQUAL_DB, abs=1)
    assert same.likeness.worst_ssim == pytest.approx(1)
    assert same.feature_distance
    assert same.feature_distance.p95 == pytest.approx(0, abs=1e-6)
    assert same.agreeing
    assert (same.agreeing.pictures, same.agreeing.emoji_top1, same.agreeing.style) == (2, 1, 1)
    assert same.recognised
    assert same.recognised.pictures == 2
    assert record.reference.figures
    assert record.reference.figures.recognised == same.recognised
    assert record.reference.figures.png_bytes == same.png_bytes
    for other in others:
        assert other.likeness
        assert other.likeness.worst_psnr_db < EQUAL_DB - 20
        assert other.likeness.ssim.mean < 1
        assert other.feature_distance
        assert other.feature_distance.mean > 0
    assert {one.peak_bytes for one in figures.values()} == {None}, "there is no GPU to measure"
    for told in (done.out, (out / "README.md").read_text()):
        assert all(preset in told for preset in ("baseline", "int8", "cached"))
    assert "s a picture" not in (out / "README.md").read_text(), "a CPU's seconds mislead"
    with Image.open(out / "side-by-side.png") as pictures:
        assert pictures.height > 4 * NATIVE_SIZE
        assert pictures.width > 4 * NATIVE_SIZE
    # There are results now, and they stay.
    again = calotype(*order, "--presets", "baseline")
    assert again.code == ExitCode.BAD_REQUEST
    assert "already contains results" in again.err


def _plan(out: Path, *names: str) -> ComparePlan:
    request = GenerateRequest(prompt="a cat", steps=1)
    candidates = tuple(Candidate(name) for name in names)
    return ComparePlan("", out, CPU, Candidate("baseline", "fp32"), candidates, [request])


def test_a_preset_that_fails_is_a_row_and_the_others_go_on(
    narrow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fails(monkeypatch, "hungry", torch.OutOfMemoryError("no room"))
    _fails(monkeypatch, "greedy", RuntimeError("CUDA error: out of memory"))
    _fails(monkeypatch, "broken", ZeroDivisionError("a bug"))
    lacking = Pass("quantum", "exact", lambda _: "there is no quantum computer", lambda _: None)
    monkeypatch.setitem(presets.PRESETS, "lacking", (lacking,))

    def engine(*, preset: str, precision: str) -> Engine:
        return load(str(narrow), device="cpu", preset=preset, precision=precision)

    record = compare(engine, _plan(tmp_path / "out", "hungry", "greedy", "broken", "lacking", "baseline"))
    told = {row.preset: (row.outcome, row.message) for row in record.presets}
    assert told["hungry"] == ("OOM", "OutOfMemoryError: no room")
    assert told["greedy"][0] == "OOM"
    assert told["broken"] == ("Error!", "ZeroDivisionError: a bug")
    assert told["lacking"][0] == "cannot run"
    assert "there is no quantum computer" in str(told["lacking"][1])
    assert told["baseline"] == ("OK", None)
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == record.model_dump(mode="json")
    summary = (tmp_path / "out" / "README.md").read_text()
    assert "no quantum computer" in summary
    # Nobody reads these pictures: they are of a model that learned no emoji.
    assert record.recogniser_sha256 is None
    assert "recognized" not in summary.split("Feature distance:")[0]


def test_cancelling_writes_nothing_and_is_no_row(narrow: Path, tmp_path: Path) -> None:
    stop = CancelToken()

    def engine(*, preset: str, precision: str) -> Engine:
        if preset == "fast":
            stop.cancel()
        return load(str(narrow), device="cpu", preset=preset, precision=precision)

    with pytest.raises(CancelledError):
        compare(engine, _plan(tmp_path / "out", "fast", "baseline"), cancel=stop)
    assert not (tmp_path / "out").exists()


def test_only_one_engine_is_alive_at_a_time(narrow: Path, tmp_path: Path) -> None:
    engines: list[weakref.ref[Model]] = []

    def engine(*, preset: str, precision: str) -> Engine:
        assert [known for known in engines if known()] == [], "the one before should be gone"
        loaded = load(str(narrow), device="cpu", preset=preset, precision=precision)
        engines.append(weakref.ref(loaded.model))
        return loaded

    compare(engine, _plan(tmp_path / "out", "fast", "int8"))
    assert len(engines) == 3


def test_bad_requests_are_refused_before_a_model_is_loaded(calotype: Calotype, tmp_path: Path) -> None:
    def refused(*more: object) -> str:
        outcome = calotype("compare", "--model", "nothing", "--out", tmp_path / "out", *SHORT, *more)
        assert outcome.code == ExitCode.BAD_REQUEST
        return outcome.err

    told = refused("a cat", "--presets", "fsat,fast:fp7,int8,int8")
    assert "no preset 'fsat'; did you mean 'fast'" in told
    assert "'fp7' is not a precision" in told
    assert "'int8' is given twice" in told
    assert "is empty; give presets of baseline" in refused("a cat", "--presets", ",")
    assert "prompt: is missing" in refused("--presets", "fast")
    assert "--reference: no preset 'slow'" in refused("a cat", "--presets", "fast", "--reference", "slow")
    assert "'euler'" in refused("a cat", "--presets", "fast", "--sampler", "eular")
    assert not (tmp_path / "out").exists()


def test_a_preset_may_name_its_precision() -> None:
    assert parse_presets("fast, fp8:bf16", "fp16") == (Candidate("fast", "fp16"), Candidate("fp8", "bf16"))
    with pytest.raises(RequestError):
        parse_presets("", None)


def test_lists_of_passes_are_compared_too() -> None:
    passes = "passes:own_forward+channels_last+fused_norms+fp8_convolutions"
    found = parse_presets(f"{passes},{passes}:bf16,passes:", "fp16")
    assert found == (Candidate(passes, "fp16"), Candidate(passes, "bf16"), Candidate("passes:", "fp16"))
    with pytest.raises(RequestError, match="no pass 'own_foreward'; did you mean 'own_forward'"):
        parse_presets("passes:own_foreward", None)
    with pytest.raises(RequestError, match="'fp7' is not a precision"):
        parse_presets("passes:own_forward:fp7", None)


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        (APPLE, ExpectedLabels("1F34E", "fluent", "light blue")),
        ("grapes, noto style, on an orange background", ExpectedLabels("1F347", "noto", "orange")),
        (
            "family of man, boy and boy, twemoji style, on a red background",
            ExpectedLabels("1F9D1-200D-1F9D2-200D-1F9D2", "twemoji", "red"),
        ),
        ("a red apple", None),
        ("a green dragon with tea, flat style, on a light blue background", None),
    ],
)
def test_the_usual_wording_says_what_to_see(
    prompt: str, asked: ExpectedLabels | None, judge: Classifier
) -> None:
    assert expected_in(prompt, judge) == asked


def test_feature_distance_grows_with_the_difference(judge: Classifier) -> None:
    draws = torch.Generator().manual_seed(0)
    picture = torch.randint(0, 256, (2, 3, 128, 128), dtype=torch.uint8, generator=draws)
    noise = torch.randint(-64, 65, picture.shape, generator=draws)

    def off(share: float) -> torch.Tensor:
        return judge.feature_distances(
            picture, (picture + (share * noise).int()).clamp(0, 255).to(torch.uint8)
        )

    none, little, much = (off(share) for share in (0, 0.1, 1))
    assert none.shape == (2, 4)
    torch.testing.assert_close(none, torch.zeros_like(none))
    assert bool((little > 0).all())
    assert bool((much > little).all())
    assert float(much.max()) <= 2


def test_other_wordings_are_held_against_the_reference(judge: Classifier) -> None:
    red = torch.tensor([224, 64, 64], dtype=torch.uint8).view(3, 1, 1).expand(3, 64, 64)
    blue = torch.tensor([64, 112, 224], dtype=torch.uint8).view(3, 1, 1).expand(3, 64, 64)
    judging = ClassifierScores(judge, ["something", APPLE], torch.stack([red, blue]))
    alike = judging.agreeing(judging.verdicts(torch.stack([red, red])))
    assert alike
    assert (alike.pictures, alike.emoji_top1, alike.style, alike.background) == (1, 1, 1, 1)
    other = judging.agreeing(judging.verdicts(torch.stack([blue, blue])))
    assert other
    assert other.background == 0
    asked = judging.recognised(judging.verdicts(torch.stack([red, red])))
    assert asked
    assert (asked.pictures, asked.background) == (1, 0)


def test_the_sheet_has_presets_across_and_pictures_down() -> None:
    colours = {"reference": ["red", "blue"], "fast": ["lime", "yellow"], "int8": ["cyan", "magenta"]}
    columns = {
        name: thumbnails([Image.new("RGB", (64, 64), each) for each in some])
        for name, some in colours.items()
    }
    asked = [GenerateRequest(prompt="a cat", seed=seed) for seed in (1, 2)]
    made = sheet(columns, asked, "all alike").convert("RGB")
    places = {
        colour: _box_of(made, colour) for colour in ("red", "lime", "cyan", "blue", "yellow", "magenta")
    }
    assert all((box[2] - box[0], box[3] - box[1]) == (64, 64) for box in places.values())
    for left, right in (("red", "lime"), ("lime", "cyan"), ("blue", "yellow"), ("yellow", "magenta")):
        assert places[left][2] <= places[right][0]
        assert places[left][1] == places[right][1]
    assert places["red"][3] <= places["blue"][1]
    assert places["red"][0] == places["blue"][0]


def test_a_long_sheet_shows_the_first_pictures_small() -> None:
    images = [Image.new("RGB", (512, 512), "red")] * (MAX_ROWS + 1)
    asked = [GenerateRequest(prompt=f"cat {number}") for number in range(len(images))]
    made = sheet({"reference": thumbnails(images)}, asked, "")
    assert MAX_ROWS * 256 < made.height < MAX_ROWS * 270


def _box_of(image: Image.Image, colour: str) -> tuple[int, int, int, int]:
    """Where a colour is."""
    wanted = torch.tensor(ImageColor.getrgb(colour))
    there = (torch.from_numpy(np.array(image)) == wanted).all(2).nonzero()
    (top, left), (bottom, right) = there.amin(0).tolist(), there.amax(0).tolist()
    return left, top, right + 1, bottom + 1


def test_models_of_emoji_are_judged_unasked(narrow: Path) -> None:
    assert classifier_for(load(str(narrow), device="cpu").model) is None
    assert classifier_for(load("emoji", device="cpu").model) is not None
