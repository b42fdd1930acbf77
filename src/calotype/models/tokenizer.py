"""Builds, reads and writes CLIP tokenizers, described by a name or by a vocabulary.

A CLIP vocabulary follows from its merges alone: 256 bytes, the same bytes at the end of a word, one entry per
merge, two special tokens. A description therefore holds a name ("clip", "emoji" for the embedded model's,
"bytes" for no merges at all) or the vocabulary itself. Added tokens, as textual inversion trains them, are
listed separately.
"""

import gzip
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

from calotype.core.errors import ModelFileError
from calotype.models.json_file import read_json, read_text_file, write_json

START, END = "<|startoftext|>", "<|endoftext|>"
DEFAULT_LENGTH = 77
Merges = list[tuple[str, str]]
Vocabulary = dict[str, int]

MERGES_HEADER = "#version: 0.2"
NAMED = ("clip", "emoji", "bytes")
ADDED = "added_tokens"
"""Key of a description's added tokens, in the order of their ids; absent if there are none."""
ADDED_FILE = "added_tokens.json"


@cache
def _clip_merges() -> tuple[tuple[str, str], ...]:
    packed = (files("calotype.resources.assets") / "clip_tokenizer" / "merges.txt.gz").read_bytes()
    return tuple(_parse_merge(line) for line in gzip.decompress(packed).decode().splitlines())


@cache
def _emoji_merges() -> tuple[tuple[str, str], ...]:
    """The merges that `calotype data emoji` learned from its captions."""
    text = (files("calotype.resources.assets") / "emoji_tokenizer" / "merges.txt").read_text("utf-8")
    return tuple(_parse_merge(line) for line in text.splitlines()[1:])


def _parse_merge(line: str) -> tuple[str, str]:
    left, right = line.split(" ")
    return left, right


def _byte_symbols() -> list[str]:
    """GPT-2's printable stand-in for each byte, in the order CLIP numbers them."""
    printable = [chr(c) for first, last in ("!~", "¡¬", "®ÿ") for c in range(ord(first), ord(last) + 1)]
    return printable + [chr(256 + i) for i in range(256 - len(printable))]


def vocabulary(merges: Merges) -> Vocabulary:
    """Token → id in CLIP's order, for a list of merges."""
    symbols = _byte_symbols()
    joined = [left + right for left, right in merges]
    tokens = [*symbols, *(f"{s}</w>" for s in symbols), *joined, START, END]
    return {token: i for i, token in enumerate(tokens)}


def build_tokenizer(description: Mapping[str, Any]) -> Any:
    """Build transformers' CLIPTokenizer for a description in an Architecture."""
    from transformers import CLIPTokenizer  # noqa: PLC0415 - seconds to import

    vocab, merges = contents(description)
    tokenizer = CLIPTokenizer(
        vocab=vocab,
        merges=merges,
        pad_token=description.get("pad_token", END),
        model_max_length=description.get("model_max_length", DEFAULT_LENGTH),
    )
    tokenizer.add_tokens(list(description.get(ADDED, ())))
    return tokenizer


def contents(description: Mapping[str, Any]) -> tuple[Vocabulary, Merges]:
    """The vocabulary and merges of a description, with a name resolved."""
    match description["vocabulary"]:
        case "clip":
            merges = list(_clip_merges())
            return vocabulary(merges), merges
        case "emoji":
            merges = list(_emoji_merges())
            return vocabulary(merges), merges
        case "bytes":
            return vocabulary([]), []
        case explicit:
            return dict(explicit["vocab"]), [(left, right) for left, right in explicit["merges"]]


def read_tokenizer(folder: Path, *, inside: Path | None = None) -> dict[str, Any]:
    """The description of the tokenizer in a diffusers folder, from the slow or the fast files."""
    settings = _read_settings(folder, inside)
    try:
        vocab, merges = _read_vocabulary(folder, inside)
        pad = settings.get("pad_token") or END
        pad = pad["content"] if isinstance(pad, dict) else str(pad)
        longest = int(settings.get("model_max_length", DEFAULT_LENGTH))
        added = _in_order(_read_added(folder, settings, inside), vocab, pad)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ModelFileError(folder, f"holds no tokenizer that can be read: {error!r}") from error
    explicit = {"vocab": vocab, "merges": [list(merge) for merge in merges]}
    same_names = (name for name in NAMED if contents({"vocabulary": name}) == (vocab, merges))
    return {
        "vocabulary": next(same_names, explicit),
        "pad_token": pad,
        "model_max_length": longest,
        **({ADDED: added} if added else {}),
    }


def _read_settings(folder: Path, inside: Path | None) -> dict[str, Any]:
    """The tokenizer's settings, merged from the newer and the older file as transformers does."""
    config, special_tokens = folder / "tokenizer_config.json", folder / "special_tokens_map.json"
    settings = read_json(config, inside=inside) if config.exists() else {}
    # Stable Diffusion 2 names another padding token in the older file. The older file takes precedence unless
    # the newer one comes from a transformers version that no longer needs it.
    if special_tokens.exists() and "added_tokens_decoder" not in settings:
        settings |= read_json(special_tokens, inside=inside)
    return settings


def _read_vocabulary(folder: Path, inside: Path | None) -> tuple[Vocabulary, Merges]:
    slow, fast = folder / "vocab.json", folder / "tokenizer.json"
    if slow.exists():
        lines = read_text_file(folder / "merges.txt", inside=inside).splitlines()
        if lines and lines[0].startswith("#version"):
            lines = lines[1:]
        return read_json(slow, inside=inside), [_parse_merge(line) for line in lines if line]
    if fast.exists():
        model = read_json(fast, inside=inside)["model"]
        pairs = [_parse_merge(m) if isinstance(m, str) else (m[0], m[1]) for m in model["merges"]]
        return dict(model["vocab"]), pairs
    raise ModelFileError(folder, "no tokenizer here: expected vocab.json and merges.txt, or tokenizer.json")


def _read_added(folder: Path, settings: Mapping[str, Any], inside: Path | None) -> Vocabulary:
    """The added tokens, from any of the files that versions of transformers write them to."""
    older, fast = folder / ADDED_FILE, folder / "tokenizer.json"
    added = dict(read_json(older, inside=inside)) if older.exists() else {}
    decoder = settings.get("added_tokens_decoder") or {}
    added |= {token["content"]: int(key) for key, token in decoder.items()}
    if fast.exists():
        tokens = read_json(fast, inside=inside).get("added_tokens", [])
        added |= {token["content"]: token["id"] for token in tokens}
    return added


def _in_order(added: Vocabulary, vocab: Vocabulary, pad: str) -> list[str]:
    """The added words without special tokens; raise if adding them again would change their ids."""
    words = [word for word in sorted(added, key=lambda word: added[word]) if word not in (START, END, pad)]
    for word, expected in _added_ids(words, vocab, pad).items():
        if added[word] != expected:
            raise ValueError(f"the added word {word!r} has the id {added[word]}, expected {expected}")
    return words


def _added_ids(words: Iterable[str], vocab: Vocabulary, pad: str) -> Vocabulary:
    following = count(len(vocab) + (pad not in vocab))
    return {word: vocab[word] if word in vocab else next(following) for word in words}


def write_tokenizer(folder: Path, description: Mapping[str, Any]) -> None:
    """Write the slow files, which every version of transformers reads."""
    vocab, merges = contents(description)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    lines = [MERGES_HEADER, *(f"{left} {right}" for left, right in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {
        "tokenizer_class": "CLIPTokenizer",
        "bos_token": START,
        "eos_token": END,
        "unk_token": END,
        "pad_token": description.get("pad_token", END),
        "model_max_length": description.get("model_max_length", DEFAULT_LENGTH),
        "do_lower_case": True,
        "add_prefix_space": False,
    }
    write_json(folder / "tokenizer_config.json", settings)
    if description.get(ADDED):
        ids = _added_ids(description[ADDED], vocab, description.get("pad_token", END))
        write_json(folder / ADDED_FILE, ids)
