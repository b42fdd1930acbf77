"""A byte-pair vocabulary of our own in the format of CLIP's tokenizer. The same texts give the same merges.

All 256 bytes are in it, so every text can be written. Knows nothing of emoji.
"""

import json
from collections.abc import Iterable
from typing import Any

from calotype.models.tokenizer import build_tokenizer, vocabulary

MAX_TOKENS = 4096
_END_OF_WORD = "</w>"
_MIN_OCCURRENCES = 2


def learn_merges(texts: Iterable[str], most_tokens: int = MAX_TOKENS) -> dict[str, Any]:
    """The description of a tokenizer, as an Architecture holds it, that says `texts` in few tokens."""
    from tokenizers import Tokenizer, models, trainers  # noqa: PLC0415 - slow to import

    # Texts are cut into words exactly as they will be when the vocabulary is used.
    bare = build_tokenizer({"vocabulary": "bytes"}).backend_tokenizer
    learner = Tokenizer(models.BPE(end_of_word_suffix=_END_OF_WORD))
    learner.normalizer, learner.pre_tokenizer = bare.normalizer, bare.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=most_tokens,
        min_frequency=_MIN_OCCURRENCES,
        # Numbered beforehand: the trainer would number them as a hash table yields them, differently each
        # time, and decides between equally frequent pairs by number.
        special_tokens=list(vocabulary([])),
        end_of_word_suffix=_END_OF_WORD,
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    merges = [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"]]
    return {"vocabulary": {"vocab": vocabulary(merges), "merges": merges}}


def longest(texts: Iterable[str], description: dict[str, Any]) -> int:
    """Tokens of the longest text, the marks at its ends included."""
    encoded = build_tokenizer(description).backend_tokenizer.encode_batch_fast(list(texts))
    return max(len(text) for text in encoded)
