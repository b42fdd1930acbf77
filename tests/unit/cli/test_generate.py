"""`calotype generate` as a user meets it: files, records, repeats, sheets, refusals."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from calotype.core.errors import ExitCode
from calotype.engine.engine import Engine
from calotype.imaging.image_io import MAX_SIDES
from tests.unit.cli.conftest import Calotype

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.int32]]
SMALL = ("--width", 64, "--height", 64, "--steps", 2, "--out", "made")


def pixels(path: str | Path) -> Pixels:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(np.int32)


def place(sheet: Pixels, cell: Pixels) -> tuple[int, int]:
    """Where on the sheet the picture is, exactly once."""
    found = [
        (y, x)
        for y in range(sheet.shape[0] - 63)
        for x in range(sheet.shape[1] - 63)
        if np.array_equal(sheet[y, x], cell[0, 0]) and np.array_equal(sheet[y : y + 64, x : x + 64], cell)
    ]
    assert len(found) == 1
    return found[0]


def files(folder: str = "made") -> list[str]:
    return sorted(p.name for p in Path(folder).iterdir()) if Path(folder).is_dir() else []


def test_pictures_are_written_and_named_after_prompt_and_seed(calotype: Calotype) -> None:
    seen = calotype("generate", "a Red apple!", *SMALL, "--seed", 7, "--count", 2)
    assert seen.code == ExitCode.OK
    assert files() == ["a-red-apple-seed7.png", "a-red-apple-seed8.png"]
    assert pixels("made/a-red-apple-seed7.png").shape == (64, 64, 3)
    assert seen.err == ""


def test_random_weights_are_said_to_show_nothing(calotype: Calotype) -> None:
    assert "random weights" in calotype("generate", "x", *SMALL, "--model", "random:emoji").err


def test_nothing_is_overwritten(calotype: Calotype) -> None:
    for _ in range(2):
        calotype("generate", "x", *SMALL, "--seed", 1)
    assert files() == ["x-seed1-2.png", "x-seed1.png"]


@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_a_picture_makes_itself_again(calotype: Calotype, suffix: str) -> None:
    knobs = ("--sampler", "dpmpp_sde", "--cfg", 3, "--negative", "blue", "--seed", 2**64 - 1, "--count", 2)
    calotype("generate", "(red:1.3) café 🍎", *SMALL, *knobs, "--format", suffix)
    first, second = sorted(files(), key=len)  # the second picture's seed went around to 0
    again = calotype("generate", "--from", f"made/{second}", "--out", "again")
    assert again.code == ExitCode.OK, again.err
    assert files("again") == [second.replace(suffix, "png")]
    repeated = pixels(f"again/{files('again')[0]}")
    own, other = (np.abs(pixels(f"made/{name}") - repeated).mean() for name in (second, first))
    assert own < other / 2
    # It was made in a batch of two and is made again alone: one of 255 is what fp32 may differ by.
    assert suffix == "webp" or np.abs(pixels(f"made/{second}") - repeated).max() <= 1


def test_from_says_which_learned_word_is_not_what_it_was(calotype: Calotype) -> None:
    word = Path("models/embeddings/style.safetensors")
    word.parent.mkdir(parents=True)
    folder = ("--models", "models")
    save_file({"emb_params": torch.zeros(1, 192)}, word)
    calotype("generate", "embedding:style", *SMALL, *folder, "--seed", 5)
    (name,) = files()
    assert "note:" not in calotype("generate", "--from", f"made/{name}", *folder, "--out", "again").err
    save_file({"emb_params": torch.ones(1, 192)}, word)
    seen = calotype("generate", "--from", f"made/{name}", *folder, "--out", "again")
    assert seen.code == ExitCode.OK, seen.err
    assert "note: the image was generated with embeddings/style of sha256" in seen.err


def test_from_with_a_knob_changes_only_that_knob(calotype: Calotype) -> None:
    calotype("generate", "x", *SMALL, "--seed", 5)
    seen = calotype("generate", "--from", "made/x-seed5.png", "--steps", 3, "--out", "again", "--json")
    (made,) = json.loads(seen.out)
    assert made["record"]["request"]["steps"] == 3
    assert made["record"]["request"]["seed"] == 5
    assert made["record"]["request"]["width"] == 64


def test_json_names_files_and_the_whole_request(calotype: Calotype) -> None:
    seen = calotype("generate", "x", *SMALL, "--json")
    (made,) = json.loads(seen.out)
    assert Path(made["file"]).is_file()
    assert (made["record"]["model"]["reference"], made["record"]["model"]["random"]) == ("emoji", False)
    assert made["record"]["request"]["sampler"] == "dpmpp_2m"
    assert set(made["record"]["versions"]) == {"torch", "diffusers", "transformers"}


def test_trials_print_one_line_each(calotype: Calotype) -> None:
    seen = calotype("generate", "x", *SMALL, "--trials", 3)
    lines = seen.out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["trial=0", "trial=1", "trial=2"]
    assert all(float(line.split("time_taken=")[1]) > 0 for line in lines)


def test_trials_for_programs_are_one_json_value_with_the_seconds_of_each(calotype: Calotype) -> None:
    seen = calotype("generate", "x", *SMALL, "--trials", 3, "--count", 2, "--seed", 1, "--json")
    made = json.loads(seen.out)
    assert [Path(one["file"]).name for one in made] == files() == ["x-seed1.png", "x-seed2.png"]
    assert all(len(one["trials"]) == 3 and min(one["trials"]) > 0 for one in made)


def test_prompts_from_a_file(calotype: Calotype) -> None:
    Path("prompts.txt").write_text("# fruit\na red apple\n\na pear\n", encoding="utf-8")
    calotype("generate", "--prompts-file", "prompts.txt", *SMALL, "--seed", 1)
    assert files() == ["a-pear-seed1.png", "a-red-apple-seed1.png"]


def test_a_sheet_holds_every_combination_and_repeats_itself(calotype: Calotype) -> None:
    grid = ("--grid", "steps=1,2", "--grid", "cfg=1,7.5,11")
    seen = calotype("generate", "x", "--width", 64, "--height", 64, "--seed", 3, *grid, "--out", "made")
    assert seen.code == ExitCode.OK, seen.err
    sheet = pixels("made/x-grid.png")
    calotype("generate", "x", *SMALL, "--cfg", 11, "--seed", 3)
    place(sheet, pixels("made/x-seed3.png"))  # the cell for steps=2, cfg=11
    calotype("generate", "--from", "made/x-grid.png", "--out", "again")
    assert np.array_equal(pixels("again/x-grid.png"), sheet)


def test_a_prompt_on_a_sheet_may_look_like_a_number(calotype: Calotype) -> None:
    seen = calotype("generate", "x", *SMALL, "--seed", 3, "--grid", "prompt=7,true,a pear")
    assert seen.code == ExitCode.OK, seen.err
    calotype("generate", "7", *SMALL, "--seed", 3)
    place(pixels("made/x-grid.png"), pixels("made/7-seed3.png"))


def test_a_sheet_that_its_format_cannot_hold_is_not_lost(
    calotype: Calotype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAX_SIDES, "webp", 150)
    knobs = (*SMALL, "--seed", 3, "--format", "webp")
    seen = calotype("generate", "x", *knobs, "--grid", "cfg=1,7.5,11")
    assert seen.code == ExitCode.OK, seen.err
    assert "is more than webp allows; written as png" in seen.err
    assert files() == ["x-grid.png"]
    assert calotype("generate", "x", *knobs).err == ""
    assert files() == ["x-grid.png", "x-seed3.webp"]


def test_all_pictures_on_one_sheet_that_repeats_itself(calotype: Calotype) -> None:
    long = "a pear " * 40
    seen = calotype("generate", "x", long, *SMALL, "--seed", 3, "--count", 2, "--sheet")
    assert seen.code == ExitCode.OK, seen.err
    pictures = ["x-seed3.png", "x-seed4.png", *(name for name in files() if name.startswith("a-pear"))]
    assert len(pictures) == 4
    assert files() == sorted([*pictures, "x-sheet.png"])
    assert "contact sheet: made/x-sheet.png" in seen.out.splitlines()[-1]
    sheet = pixels("made/x-sheet.png")
    rows, columns = zip(*(place(sheet, pixels(f"made/{name}")) for name in pictures), strict=True)
    assert rows[0] == rows[1] < rows[2] == rows[3], "a row for each prompt"
    assert columns[0] == columns[2] < columns[1] == columns[3], "a column for each seed"
    assert rows[2] - rows[0] < 80, "a label ends where it would be higher than its picture"
    assert columns[0] < 3 * 64, "a long prompt is wrapped"
    again = calotype("generate", "--from", "made/x-sheet.png", "--out", "again")
    assert again.code == ExitCode.OK, again.err
    # Made in batches of two, and again one by one.
    assert np.abs(pixels("again/x-grid.png") - sheet).max() <= 1


def test_a_sheet_of_a_sheet_is_refused(calotype: Calotype) -> None:
    calotype("generate", "x", *SMALL, "--steps", 1, "--grid", "seed=1")
    seen = calotype("generate", "--from", "made/x-grid.png", "--sheet")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "is a contact sheet already" in seen.err


def test_image_to_image_and_inpainting(calotype: Calotype) -> None:
    start = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    start.save("start.png")
    mask = Image.new("L", (64, 64), 0)
    mask.paste(255, (0, 0, 32, 64))
    mask.save("mask.png")
    seen = calotype("generate", "x", "--steps", 2, "--image", "start.png", "--mask", "mask.png", "--seed", 1)
    assert seen.code == ExitCode.OK, seen.err
    made = pixels("outputs/x-seed1.png")
    assert np.array_equal(made[:, 32:], pixels("start.png")[:, 32:])
    assert (made[:, :32] != pixels("start.png")[:, :32]).any()
    again = calotype("generate", "--from", "outputs/x-seed1.png", "--out", "again")
    assert again.code == ExitCode.OK, again.err
    assert np.array_equal(pixels("again/x-seed1.png"), made)
    start.rotate(90).save("start.png")
    changed = calotype("generate", "--from", "outputs/x-seed1.png", "--out", "again")
    assert changed.code == ExitCode.BAD_REQUEST
    assert "has changed since the record was made" in changed.err


def test_a_picture_is_made_again_in_its_precision_and_prediction(calotype: Calotype) -> None:
    knobs = ("--steps", 2, "--seed", 1, "--precision", "bf16", "--prediction", "v_prediction")
    seen = calotype("generate", "x", *knobs, "--out", "made")
    assert seen.code == ExitCode.OK, seen.err
    again = calotype("generate", "--from", "made/x-seed1.png", "--out", "again")
    assert again.code == ExitCode.OK, again.err
    assert np.array_equal(pixels("again/x-seed1.png"), pixels("made/x-seed1.png"))
    plain = calotype("generate", "x", *knobs[:4], "--out", "plain")
    assert plain.code == ExitCode.OK
    assert not np.array_equal(pixels("plain/x-seed1.png"), pixels("made/x-seed1.png"))


def test_prompts_that_are_no_utf8_are_said_so(calotype: Calotype) -> None:
    Path("latin.txt").write_bytes(b"caf\xe9\n")
    seen = calotype("generate", "--prompts-file", "latin.txt")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "latin.txt is not UTF-8 text" in seen.err


REFUSED = [
    (("--width", 513), "the nearest is 512"),
    (("--width", -1), "multiple of 8 from 16"),
    (("--width", 100000), "16384"),
    (("--steps", 0), "at least 1"),
    (("--steps", 10**9), "at most 1000"),
    (("--seed", 2**64), "at most 18446744073709551615"),
    (("--seed", -1), "at least 0"),
    (("--cfg", "nan"), "is not finite"),
    (("--sampler", "eulr"), "did you mean 'euler'"),
    (("--schedule", "caras"), "did you mean 'karras'"),
    (("--precision", "fp17"), "did you mean 'fp16'"),
    (("--device", "cuda:99"), "torch sees"),
    (("--device", "tpu?"), "is not a device"),
    (("--lora", "x:strong"), "a strength is a number"),
    (("--lora", "a:1:2:3"), "NAME[:STRENGTH[:TEXT_STRENGTH]]"),
    (("--original-size", "1024"), "two numbers"),
    (("--original-size", "1024x10²"), "two numbers"),
    (("--grid", "stps=1"), "did you mean 'steps'"),
    (("--grid", "steps="), "names no values"),
    (("--grid", "steps=[]"), "names no values"),
    (("--grid", "steps=0,1"), "at least 1"),
    (("--grid", "steps=1", "--grid", "cfg=1", "--grid", "seed=1"), "at most two axes"),
    (("--sheet", "--grid", "steps=1,2"), "excludes --grid, which is a sheet already"),
    (("--sheet", "--trials", 2), "excludes --trials, which repeats the same images"),
    (("--sheet", "--count", 65), "65 images per prompt; a sheet has at most 64"),
    (("--sheet", *(["y"] * 64)), "65 prompts; a sheet has at most 64"),
    (("--format", "bmp"), "png, webp, jpeg"),
    (("--trials", 0), "use 1 or more"),
    (("--trials", 2, "--grid", "steps=1,2"), "cannot time a contact sheet"),
    (("--strength", 0.5), "give `image` too"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=[str(a) for a, _ in REFUSED])
def test_a_bad_knob_is_refused_before_anything_is_loaded(
    calotype: Calotype, arguments: tuple[object, ...], words: str
) -> None:
    seen = calotype("generate", "x", *arguments, "--out", "made")
    assert seen.code == ExitCode.BAD_REQUEST
    assert words in seen.err
    assert not Path("made").exists()


def test_every_problem_is_reported_at_once(calotype: Calotype) -> None:
    seen = calotype("generate", "x", "--width", 513, "--steps", 0, "--sampler", "nope")
    assert all(word in seen.err for word in ("width", "steps", "sampler"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--model", "sdx1"), ExitCode.NOT_FOUND, "did you mean 'sdxl'"),
        (("--model", "../secret"), ExitCode.BAD_REQUEST, "'..'"),
        (("--lora", "missing"), ExitCode.NOT_FOUND, "no 'missing'"),
        (("--lora", "../../etc/passwd"), ExitCode.BAD_REQUEST, "'..'"),
        (("--vae", "/etc/passwd"), ExitCode.BAD_REQUEST, "absolute"),
        (("--image", "missing.png"), ExitCode.NOT_FOUND, "missing.png"),
        (("--from", "missing.png"), ExitCode.NOT_FOUND, "missing.png"),
        (("--preset", "fst"), ExitCode.NOT_FOUND, "no preset 'fst'"),
        (("--prompts-file", "missing.txt"), ExitCode.NOT_FOUND, "missing.txt"),
        (("--config", "missing.json"), ExitCode.NOT_FOUND, "no configuration missing.json"),
        (("--config", "."), ExitCode.BAD_REQUEST, "emoji has its own configuration"),
        (("--prediction", "eps"), ExitCode.BAD_REQUEST, "'eps' is not one of epsilon, v_prediction"),
        (("--batch-size", 100000, "--count", 10000), ExitCode.DOES_NOT_FIT, "largest batch that fits"),
    ],
)
def test_what_is_not_there_or_does_not_fit(
    calotype: Calotype, arguments: tuple[object, ...], code: ExitCode, words: str
) -> None:
    seen = calotype("generate", "x", *arguments, "--out", "made")
    assert (seen.code, words in seen.err) == (code, True), seen.err
    assert files() == []


@pytest.mark.parametrize("model", ["emoji", "random:emoji"])
def test_a_prediction_is_taken_whatever_the_model(calotype: Calotype, model: str) -> None:
    for prediction in ("v_prediction", "epsilon"):
        calotype("generate", "x", *SMALL, "--model", model, "--prediction", prediction, "--seed", 1)
    other = pixels("made/x-seed1-2.png")
    assert not np.array_equal(pixels("made/x-seed1.png"), other)
    seen = calotype("generate", "--from", "made/x-seed1-2.png", "--out", "again", "--json")
    (made,) = json.loads(seen.out)
    assert made["record"]["prediction"] == "epsilon"
    assert np.array_equal(pixels("again/x-seed1.png"), other)
    assert seen.err == "", "the same model, by its hash"


def test_no_prompt_at_all(calotype: Calotype) -> None:
    seen = calotype("generate")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "--prompts-file or --from" in seen.err


def test_ctrl_c_stops_between_steps_and_leaves_no_file(
    calotype: Calotype, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, calls = Engine.step, []

    def interrupted(self: Engine, runs: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return advance(self, runs)  # type: ignore[arg-type]  # passed on untouched

    monkeypatch.setattr(Engine, "step", interrupted)
    seen = calotype("generate", "x", "--steps", 50, "--width", 64, "--height", 64, "--out", "made")
    assert seen.code == ExitCode.CANCELLED
    assert len(calls) == 2, "the step under way is finished, no further one begins"
    assert files() == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_place_where_no_folder_can_be_made_is_told_before_the_work(
    calotype: Calotype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("calotype.engine.load.resolve_model", found)
    seen = calotype("generate", "x", *SMALL, "--out", "/proc/x")
    assert seen.code == ExitCode.BAD_REQUEST
    assert seen.err.startswith("error: --out: ")


def test_a_failing_write_leaves_nothing(calotype: Calotype) -> None:
    Path("made").write_text("a file where the folder should be")
    seen = calotype("generate", "x", *SMALL)
    assert seen.code == ExitCode.BAD_REQUEST
    assert "made" in seen.err
