"""While a model loads: Ctrl-C stops at once, since nothing is lost, and no room for it is told as such."""

import json
import signal
from pathlib import Path

import pytest

from calotype.core.errors import ExitCode
from tests.unit.cli.conftest import Calotype

GENERATE = ("generate", "x", "--out", "made", "--device", "cpu")
COMPARE = ("compare", "--presets", "fast", "--out", "made", "x", "--device", "cpu")
PROFILE = ("profile", "generate", "emoji", "x", "--out", "made", "--device", "cpu")
GRAPH = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "emoji"}},
    "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "x", "clip": ["1", 1]}},
    "3": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
    "4": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["1", 2]}},
    "5": {"class_type": "SaveImage", "inputs": {"images": ["4", 0], "filename_prefix": "x"}},
}


@pytest.mark.parametrize(
    "words",
    [
        GENERATE,
        COMPARE,
        PROFILE,
        ("run", "graph.json", "--out", "made", "--device", "cpu"),
    ],
    ids=lambda words: words[0],
)
def test_stops_at_once_while_a_model_loads(
    calotype: Calotype, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    went_on = []

    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        went_on.append(1)
        raise AssertionError("it goes on loading")

    monkeypatch.setattr("calotype.engine.load.resolve_model", interrupted)
    Path("graph.json").write_text(json.dumps(GRAPH))
    seen = calotype(*words)
    assert (seen.code, seen.err, went_on) == (ExitCode.CANCELLED, "cancelled\n", [])
    assert not Path("made").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("words", [GENERATE, COMPARE, PROFILE], ids=lambda words: words[0])
@pytest.mark.parametrize("why", ["CUDA out of memory. Tried to allocate 20 MiB", "CUDA error: out of memory"])
def test_no_room_for_a_model_is_told_as_such(
    calotype: Calotype, words: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError(f"{why}\nmore that nobody wants to know")

    monkeypatch.setattr("calotype.models.model.load_part", full)
    seen = calotype(*words)
    assert seen.code == ExitCode.DOES_NOT_FIT
    assert seen.err.startswith(f"error: not enough memory to load emoji: {why}; stop other programs")
    assert not Path("made").exists()
