"""CLIP tokenizers from a vocabulary description, a diffusers folder, or the vocabulary shipped with Calotype.

A CLIP vocabulary follows from its merges alone: 256 bytes, the same bytes ending a word, one entry per merge, two
marks. So a description holds a name ("clip", or "bytes" for no merges at all) or the vocabulary itself.
"""

import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from calotype.core.errors import ModelFileError

START, END = "<|startoftext|>", "<|endoftext|>"
Merges = list[tuple[str, str]]


@cache
def _clip_merges() -> tuple[tuple[str, str], ...]:
    packed = (files("calotype.assets") / "clip_tokenizer" / "merges.txt.gz").read_bytes()
    return tuple(_parse_merge(line) for line in gzip.decompress(packed).decode().splitlines())


def _parse_merge(line: str) -> tuple[str, str]:
    left, right = line.split()
    return left, right


def _byte_symbols() -> list[str]:
    """GPT-2's printable stand-in for each byte, in the order CLIP numbers them."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def vocabulary(merges: Merges) -> dict[str, int]:
    """Token → id in CLIP's order, for a list of merges."""
    symbols = _byte_symbols()
    tokens = [*symbols, *(f"{s}</w>" for s in symbols), *(left + right for left, right in merges), START, END]
    return {token: i for i, token in enumerate(tokens)}


def build_tokenizer(description: Mapping[str, Any]) -> Any:
    """A transformers CLIPTokenizer for a description in an Architecture."""
    from transformers import CLIPTokenizer  # noqa: PLC0415 - seconds to import

    vocab, merges = _contents(description)
    return CLIPTokenizer(
        vocab=vocab,
        merges=merges,
        pad_token=description.get("pad_token", END),
        model_max_length=description.get("model_max_length", 77),
    )


def _contents(description: Mapping[str, Any]) -> tuple[dict[str, int], Merges]:
    match description["vocabulary"]:
        case "clip":
            merges = list(_clip_merges())
            return vocabulary(merges), merges
        case "bytes":
            return vocabulary([]), []
        case own:
            return dict(own["vocab"]), [(left, right) for left, right in own["merges"]]


def read_tokenizer(folder: Path) -> dict[str, Any]:
    """The description of the tokenizer in a diffusers folder, from the slow or the fast files."""
    settings_file = folder / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text()) if settings_file.is_file() else {}
    vocab, merges = _read_vocabulary(folder)
    known: Any = {"vocab": vocab, "merges": [list(m) for m in merges]}
    for name in ("clip", "bytes"):
        if _contents({"vocabulary": name}) == (vocab, merges):
            known = name
    pad = settings.get("pad_token", END)
    return {
        "vocabulary": known,
        "pad_token": pad["content"] if isinstance(pad, dict) else pad,
        "model_max_length": int(settings.get("model_max_length", 77)),
    }


def _read_vocabulary(folder: Path) -> tuple[dict[str, int], Merges]:
    slow, fast = folder / "vocab.json", folder / "tokenizer.json"
    if slow.is_file():
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        merges = [_parse_merge(line) for line in lines if line and not line.startswith("#version")]
        return json.loads(slow.read_text(encoding="utf-8")), merges
    if fast.is_file():
        model = json.loads(fast.read_text(encoding="utf-8"))["model"]
        pairs = [_parse_merge(m) if isinstance(m, str) else (m[0], m[1]) for m in model["merges"]]
        return dict(model["vocab"]), pairs
    raise ModelFileError(folder, "no tokenizer here: expected vocab.json and merges.txt, or tokenizer.json")


def write_tokenizer(folder: Path, description: Mapping[str, Any]) -> None:
    """Write the slow files, which every version of transformers reads."""
    vocab, merges = _contents(description)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    lines = "".join(f"{left} {right}\n" for left, right in merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}", encoding="utf-8")
    settings = {
        "tokenizer_class": "CLIPTokenizer",
        "bos_token": START,
        "eos_token": END,
        "unk_token": END,
        "pad_token": description.get("pad_token", END),
        "model_max_length": description.get("model_max_length", 77),
        "do_lower_case": True,
        "add_prefix_space": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
