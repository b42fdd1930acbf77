r"""Parses a prompt into pieces of text with weights, and textual-inversion embeddings.

`(word)` weighs 1.1, `(word:1.4)` weighs 1.4, brackets nest, `\(` is a literal bracket, and `embedding:name`
stands for an embedding. A bracket that is never closed closes at the end of the prompt.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

STEP_UP = 1.1
MAX_WEIGHT = 10.0
_BRACKET = re.compile(r"\\[()]|[()]")
_EXPLICIT = re.compile(r":\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*$")
_MAX_EXPLICIT_LENGTH = 64
_EMBEDDING = re.compile(r"(?:^|(?<=[\s,(]))embedding:([^\s,()]+)")


@dataclass(frozen=True)
class WeightedText:
    """Some text, or the name of an embedding, and its weight."""

    text: str
    weight: float = 1.0
    is_embedding: bool = False


def parse_prompt(prompt: str) -> list[WeightedText]:
    """Split a prompt into pieces, in order. A bracket ends a word, as a space does."""
    pieces: list[WeightedText] = []
    for text, weight in _weighted(prompt):
        pieces += _with_embeddings(_unescape(text), weight)
    return pieces


def _weighted(prompt: str) -> Iterator[tuple[str, float]]:
    """Text between brackets, each with the weight of the enclosing brackets."""
    closing = _closing_brackets(prompt)
    ends, weights = [len(prompt)], [1.0]
    start = 0
    for position in sorted({*closing, *closing.values()}):
        # Text after the end of a bracket's words is that bracket's weight, not text.
        yield prompt[start : min(position, ends[-1])], weights[-1]
        if position in closing:
            end = min(closing[position], ends[-1])
            explicit = _EXPLICIT.search(prompt, max(position + 1, end - _MAX_EXPLICIT_LENGTH), end)
            ends.append(explicit.start() if explicit else end)
            weights.append(_bounded(float(explicit[1]) if explicit else weights[-1] * STEP_UP))
        elif len(ends) > 1:
            ends.pop()
            weights.pop()
        start = position + 1
    yield prompt[start : ends[-1]], weights[-1]


def _closing_brackets(prompt: str) -> dict[int, int]:
    """Position of each opening bracket → position of its closing bracket, or the prompt's end."""
    closing: dict[int, int] = {}
    open_positions: list[int] = []
    for match in _BRACKET.finditer(prompt):
        if match[0] == "(":
            open_positions.append(match.start())
        elif match[0] == ")" and open_positions:
            closing[open_positions.pop()] = match.start()
    return closing | dict.fromkeys(open_positions, len(prompt))


def _bounded(weight: float) -> float:
    return max(-MAX_WEIGHT, min(MAX_WEIGHT, weight))


def _unescape(text: str) -> str:
    return text.replace("\\(", "(").replace("\\)", ")")


def _with_embeddings(text: str, weight: float) -> list[WeightedText]:
    pieces, start = [], 0
    for match in _EMBEDDING.finditer(text):
        pieces.append(WeightedText(text[start : match.start()], weight))
        pieces.append(WeightedText(match[1], weight, is_embedding=True))
        start = match.end()
    pieces.append(WeightedText(text[start:], weight))
    return [piece for piece in pieces if piece.text]
