"""Our own vocabulary: the same every time, able to write anything, loaded by transformers as any other."""

import subprocess
import sys
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from transformers import CLIPTokenizer

from calotype.datasets.emoji.bpe import learn_merges, longest
from calotype.datasets.emoji.manifest import Built
from calotype.models.tokenizer import build_tokenizer, read_tokenizer, vocabulary
from tests.unit.datasets.emoji.dataset_reader import samples_in

TEXTS = ["a red apple, noto style", "a green apple on a red background", "red apples, flat style"] * 3
_LEARN = (
    "import json; from calotype.datasets.emoji.bpe import learn_merges; "
    "print(json.dumps(learn_merges({texts!r})))"
)


def test_other_processes_learn_the_same() -> None:
    command = [sys.executable, "-c", _LEARN.format(texts=TEXTS)]
    said = {subprocess.run(command, capture_output=True, check=True, timeout=300).stdout for _ in range(2)}
    assert len(said) == 1


def test_common_words_become_one_token_and_the_size_has_a_limit() -> None:
    description = learn_merges(TEXTS)
    tokenizer = build_tokenizer(description)
    assert tokenizer.tokenize("Red APPLE") == ["red</w>", "apple</w>"]
    assert list(description["vocabulary"]["vocab"].values()) == list(range(len(tokenizer)))
    assert len(learn_merges(TEXTS, most_tokens=530)["vocabulary"]["vocab"]) <= 532


def test_the_longest_text_is_counted_with_its_marks() -> None:
    description = learn_merges(TEXTS)
    assert longest(["red apple", "red apple red", "apple"], description) == 5


def test_transformers_loads_the_files(built: Built) -> None:
    folder = built.folder / "tokenizer"
    loaded = CLIPTokenizer.from_pretrained(folder)
    ours = build_tokenizer(read_tokenizer(folder))
    assert len(loaded) == len(ours) == built.record["vocabulary"]["num_tokens"]
    assert loaded.bos_token_id == len(loaded) - 2
    assert loaded.eos_token_id == loaded.pad_token_id == len(loaded) - 1
    samples = samples_in(built.folder / "train") + samples_in(built.folder / "heldout")
    captions = sorted({caption for sample in samples for caption in sample.about["captions"]})
    ids = loaded(captions).input_ids
    assert ids == ours(captions).input_ids
    assert max(len(row) for row in ids) == built.record["vocabulary"]["longest_caption_tokens"] < 77


def test_a_read_vocabulary_follows_from_its_merges(built: Built) -> None:
    own = read_tokenizer(built.folder / "tokenizer")["vocabulary"]
    assert own["vocab"] == vocabulary([(left, right) for left, right in own["merges"]])


@given(st.text(max_size=40))
def test_any_text_can_be_written_and_read_back(text: str) -> None:
    tokenizer = _tokenizer()
    expected = tokenizer.backend_tokenizer.normalizer.normalize_str(text)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    written = tokenizer.convert_ids_to_tokens(ids)
    assert tokenizer.unk_token not in written or tokenizer.unk_token in expected
    assert _squeezed(tokenizer.decode(ids)) == _squeezed(expected)


def _squeezed(text: str) -> str:
    """CLIP's words end in spaces whether or not there were any."""
    return "".join(text.split())


@cache
def _tokenizer() -> Any:
    return build_tokenizer(learn_merges(TEXTS))
