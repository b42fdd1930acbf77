"""CLIP's tokenizer on the tokenizers library alone, which saves the seconds of importing transformers.

It covers what image generation needs. To pad, save or add tokens, use transformers' (`build_tokenizer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from calotype.models.tokenizer import ADDED, END, START, contents

_WORDS = r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""


class Tokens(NamedTuple):
    """The tokens of a text; the field has transformers' name."""

    input_ids: list[int]


class FastTokenizer:
    """Converts text to token ids."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        vocab, merges = contents(description)
        special_tokens = (START, END, str(description.get("pad_token", END)))
        self.backend_tokenizer = _backend(vocab, merges, special_tokens)
        self.backend_tokenizer.add_tokens(list(description.get(ADDED, ())))
        self.bos_token_id, self.eos_token_id, self.pad_token_id = (
            self.backend_tokenizer.token_to_id(token) for token in special_tokens
        )

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = False) -> Tokens:
        """The text's tokens, enclosed in start and end tokens if `add_special_tokens`."""
        del verbose  # transformers would warn of long texts
        return Tokens(self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)


def _backend(
    vocab: dict[str, int], merges: list[tuple[str, str]], special_tokens: tuple[str, ...]
) -> Tokenizer:
    """Build the same tokenizer as transformers, to the last setting; a test compares both as JSON."""
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
    # The library removes duplicates.
    backend.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in special_tokens]
    )
    end, start = ((token, backend.token_to_id(token) or 0) for token in (END, START))
    backend.post_processor = processors.RobertaProcessing(
        end, start, trim_offsets=False, add_prefix_space=False
    )
    return backend
