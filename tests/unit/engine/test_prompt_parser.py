"""The grammar of prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calotype.engine.prompt_parser import MAX_WEIGHT, parse_prompt
from calotype.spec.generate_request import MAX_PROMPT_LENGTH


def parsed(prompt: str) -> list[tuple[str, float]]:
    return [(piece.text, round(piece.weight, 6)) for piece in parse_prompt(prompt)]


@pytest.mark.parametrize(
    ("prompt", "pieces"),
    [
        ("", []),
        ("a red apple", [("a red apple", 1)]),
        ("a (red) apple", [("a ", 1), ("red", 1.1), (" apple", 1)]),
        ("a (red:1.4) apple", [("a ", 1), ("red", 1.4), (" apple", 1)]),
        ("(red: 0.5 )", [("red", 0.5)]),
        ("(red:.5)", [("red", 0.5)]),
        ("(red:-1)", [("red", -1)]),
        ("(red:0)", [("red", 0)]),
        ("((red))", [("red", 1.21)]),
        ("((red) round)", [("red", 1.21), (" round", 1.1)]),
        ("(a (b:1.5) c:0.5)", [("a ", 0.5), ("b", 1.5), (" c", 0.5)]),
        ("(a (b) c:2)", [("a ", 2), ("b", 2.2), (" c", 2)]),
        ("((a:1.5))", [("a", 1.5)]),
        ("(red)(apple)", [("red", 1.1), ("apple", 1.1)]),
        ("(a:b:1.2)", [("a:b", 1.2)]),
        ("(a:b)", [("a:b", 1.1)]),
        ("a:1.2", [("a:1.2", 1)]),
        ("(red:99)", [("red", MAX_WEIGHT)]),
    ],
)
def test_brackets_weigh_what_they_hold(prompt: str, pieces: list[tuple[str, float]]) -> None:
    assert parsed(prompt) == pieces


@pytest.mark.parametrize(
    ("prompt", "pieces"),
    [
        (r"a \(red\) apple", [("a (red) apple", 1)]),
        (r"(a \(red\):1.3)", [("a (red)", 1.3)]),
        (r"smile :\)", [("smile :)", 1)]),
        (r"\\(a)", [(r"\(a)", 1)]),
        ("back\\slash\\", [("back\\slash\\", 1)]),
    ],
)
def test_an_escaped_bracket_is_text(prompt: str, pieces: list[tuple[str, float]]) -> None:
    assert parsed(prompt) == pieces


@pytest.mark.parametrize(
    ("prompt", "pieces"),
    [
        ("a (red apple", [("a ", 1), ("red apple", 1.1)]),
        ("(red:1.4", [("red", 1.4)]),
        ("(a (b", [("a ", 1.1), ("b", 1.21)]),
        ("a) b", [("a) b", 1)]),
        ("(a)) b", [("a", 1.1), (") b", 1)]),
        ("()", []),
        ("(", []),
    ],
)
def test_brackets_that_do_not_match_are_no_error(prompt: str, pieces: list[tuple[str, float]]) -> None:
    assert parsed(prompt) == pieces


def test_learned_words_are_told_from_text() -> None:
    pieces = parse_prompt("embedding:style, a (embedding:sub/name-2.pt:1.3) xembedding:no, embedding:")
    assert [(piece.text, piece.weight) for piece in pieces if piece.is_embedding] == [
        ("style", 1.0),
        ("sub/name-2.pt", 1.3),
    ]
    assert [piece.text for piece in pieces if not piece.is_embedding] == [
        ", a ",
        " xembedding:no, embedding:",
    ]


@pytest.mark.parametrize("prompt", ["(" * MAX_PROMPT_LENGTH, "(a" * (MAX_PROMPT_LENGTH // 2), "((a)" * 5000])
def test_brackets_without_end_have_an_end(prompt: str) -> None:
    """Neither the interpreter's stack nor the weight may run away."""
    assert all(abs(piece.weight) <= MAX_WEIGHT for piece in parse_prompt(prompt))


@given(st.text(alphabet="ab ():.1-\\,", max_size=60))
def test_any_text_is_a_prompt(prompt: str) -> None:
    pieces = parse_prompt(prompt)
    assert all(abs(piece.weight) <= MAX_WEIGHT and piece.text for piece in pieces)
    letters = [character for piece in pieces for character in piece.text if character in "ab"]
    assert letters == [character for character in prompt if character in "ab"]


@given(st.text(max_size=60))
def test_an_escaped_text_comes_back_as_it_was(text: str) -> None:
    quoted = text.replace("(", "\\(").replace(")", "\\)")
    read = "".join(piece.text for piece in parse_prompt(quoted) if not piece.is_embedding)
    assert "embedding:" in text or read == text
