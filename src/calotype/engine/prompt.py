"""What a prompt says: pieces of text with weights, and learned words. Knows nothing of tokens or models.

`(word)` weighs 1.1, `(word:1.4)` weighs 1.4, brackets nest, `\\(` is a bracket to be read, and `embedding:name` stands
for a learned word. A bracket that is never closed is read as one that closes at the end.
"""

import re
from dataclasses import dataclass

STEP_UP = 1.1
HEAVIEST = 10.0
_EXPLICIT = re.compile(r"^(.*):\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*$", re.DOTALL)
_EMBEDDING = re.compile(r"(?:^|(?<=[\s,(]))embedding:([^\s,()]+)")


@dataclass(frozen=True)
class Piece:
    """Some text, or one learned word, and how much it counts."""

    text: str
    weight: float = 1.0
    is_embedding: bool = False


def parse_prompt(prompt: str) -> list[Piece]:
    """The pieces of a prompt in order, with equal neighbours joined."""
    pieces: list[Piece] = []
    for text, weight in _weighted(prompt, 1.0):
        pieces += _with_embeddings(_unescape(text), weight)
    return _joined(pieces)


def _weighted(text: str, weight: float) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for part, bracketed in _top_level(text):
        if not bracketed:
            found.append((part, weight))
            continue
        explicit = _EXPLICIT.match(part)
        if explicit:
            inner, inner_weight = explicit[1], max(-HEAVIEST, min(HEAVIEST, float(explicit[2])))
        else:
            inner, inner_weight = part, weight * STEP_UP
        found += _weighted(inner, inner_weight)
    return found


def _top_level(text: str) -> list[tuple[str, bool]]:
    """Cut at the outermost brackets: (text, whether it stood in brackets)."""
    parts: list[tuple[str, bool]] = []
    depth = start = position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        if character == "(":
            if depth == 0:
                parts.append((text[start:position], False))
                start = position + 1
            depth += 1
        elif character == ")" and depth > 0:
            depth -= 1
            if depth == 0:
                parts.append((text[start:position], True))
                start = position + 1
        position += 1
    parts.append((text[start:], depth > 0))
    return [(part, bracketed) for part, bracketed in parts if part]


def _unescape(text: str) -> str:
    return text.replace("\\(", "(").replace("\\)", ")")


def _with_embeddings(text: str, weight: float) -> list[Piece]:
    pieces, start = [], 0
    for match in _EMBEDDING.finditer(text):
        pieces.append(Piece(text[start : match.start()], weight))
        pieces.append(Piece(match[1], weight, is_embedding=True))
        start = match.end()
    pieces.append(Piece(text[start:], weight))
    return [piece for piece in pieces if piece.text]


def _joined(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and last.weight == piece.weight and not last.is_embedding and not piece.is_embedding:
            joined[-1] = Piece(last.text + piece.text, piece.weight)
        else:
            joined.append(piece)
    return joined
