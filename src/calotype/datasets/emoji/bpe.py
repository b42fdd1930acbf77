"""Trains a byte-pair vocabulary in the format of CLIP's tokenizer; equal texts give equal merges.

It contains all 256 bytes, so it can encode every text.
"""

import json
from collections.abc import Iterable
from typing import Any

from calotype.models.tokenizer import build_tokenizer, vocabulary

MAX_TOKENS = 4096
_END_OF_WORD = "</w>"
_MIN_OCCURRENCES = 2


def learn_merges(texts: Iterable[str], most_tokens: int = MAX_TOKENS) -> dict[str, Any]:
    """Train a tokenizer on `texts`; return its description as an Architecture holds it."""
    from tokenizers import Tokenizer, models, trainers  # noqa: PLC0415 - slow to import

    # Pre-tokenization must be the same as when the vocabulary is used.
    bare = build_tokenizer({"vocabulary": "bytes"}).backend_tokenizer
    learner = Tokenizer(models.BPE(end_of_word_suffix=_END_OF_WORD))
    learner.normalizer, learner.pre_tokenizer = bare.normalizer, bare.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=most_tokens,
        min_frequency=_MIN_OCCURRENCES,
        # The alphabet gets fixed ids: the trainer would number it in hash table order, which varies, and it
        # breaks ties between equally frequent pairs by id.
        special_tokens=list(vocabulary([])),
        end_of_word_suffix=_END_OF_WORD,
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    merges = [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"]]
    return {"vocabulary": {"vocab": vocabulary(merges), "merges": merges}}


def longest(texts: Iterable[str], description: dict[str, Any]) -> int:
    """Return the number of tokens of the longest text, including start and end tokens."""
    encoded = build_tokenizer(description).backend_tokenizer.encode_batch_fast(list(texts))
    return max(len(text) for text in encoded)
