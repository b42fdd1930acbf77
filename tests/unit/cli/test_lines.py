"""Tables of measurements as they stand in a terminal: no word is cut, however narrow it is."""

from __future__ import annotations

import pytest

from calotype.cli.bench_sweep import print_lines

LINES = [
    {"point": "batch=1 preset=baseline", "seconds": "0.9659", "why": "", "faster than diffusers-eager": ""},
    {
        "point": "batch=2 preset=baseline",
        "seconds": "0.5276",
        "why": "",
        "faster than diffusers-eager": "1.60× (1.32–2.02)",
    },
]
WORDS = ("preset=baseline", "seconds", "0.9659", "diffusers-eager", "(1.32–2.02)")


@pytest.mark.parametrize("width", [120, 60, 41, 30])
def test_words_are_whole_in_every_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_lines(LINES)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= width
    assert not [word for word in WORDS if word not in shown.split()]
    assert "why" not in shown.split(), "a column without anything"


def test_a_long_word_is_whole_beside_a_long_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "performance/peers-read/5/eager"
    monkeypatch.setenv("COLUMNS", str(len(name) + 25 + 3))
    print_lines([{"reference": name, "not comparable": "many words " * 9}])
    assert name in capsys.readouterr().out.split()


def test_a_narrow_terminal_has_a_paragraph_for_each_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    print_lines(LINES)
    told = " ".join(capsys.readouterr().out.split())
    assert told == (
        "batch=1 preset=baseline seconds 0.9659 batch=2 preset=baseline seconds 0.5276 · "
        "faster than diffusers-eager 1.60× (1.32–2.02)"
    )
