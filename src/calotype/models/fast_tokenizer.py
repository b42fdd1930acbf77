"""CLIP's tokenizer by the tokenizers library alone: what transformers wraps, without its seconds of import.

Does what making pictures needs. Whoever pads, saves or adds more words has transformers' (`build_tokenizer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from calotype.models.tokenizer import ADDED, END, START, contents

_WORDS = r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""


class Tokens(NamedTuple):
    """Of a text, by transformers' name."""

    input_ids: list[int]


class FastTokenizer:
    """Text to token ids."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        vocab, merges = contents(description)
        marks = (START, END, str(description.get("pad_token", END)))
        self.backend_tokenizer = _backend(vocab, merges, marks)
        self.backend_tokenizer.add_tokens(list(description.get(ADDED, ())))
        self.bos_token_id, self.eos_token_id, self.pad_token_id = (
            self.backend_tokenizer.token_to_id(mark) for mark in marks
        )

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = False) -> Tokens:
        """The text's tokens, between the marks of its ends if `add_special_tokens`."""
        del verbose  # transformers would warn of long texts
        return Tokens(self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)


def _backend(vocab: dict[str, int], merges: list[tuple[str, str]], marks: tuple[str, ...]) -> Tokenizer:
    """As transformers puts it together, to the last setting; a test compares both as JSON."""
    words = BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix="</w>", unk_token=END)
    backend = Tokenizer(words)
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    # Of two that are the same the library keeps one.
    backend.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in marks])
    end, start = ((mark, backend.token_to_id(mark) or 0) for mark in (END, START))
    backend.post_processor = processors.RobertaProcessing(
        end, start, trim_offsets=False, add_prefix_space=False
    )
    return backend
