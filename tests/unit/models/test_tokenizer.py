"""Our tokenizers against known CLIP ids and against transformers' own reading of the same folder."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import CLIPTokenizer

from calotype.core.errors import ModelFileError
from calotype.models import catalogue
from calotype.models.fast_tokenizer import FastTokenizer
from calotype.models.tokenizer import END, build_tokenizer, read_tokenizer, vocabulary, write_tokenizer

# As `calotype data emoji` of the pinned packages writes them (`files` in its dataset.json).
EMOJI_FILES = {
    "merges.txt": "6efccb12162dc2b895ecf95b139f1b10024753c37840e25adbc993cbf7bd8a9e",
    "tokenizer_config.json": "9fe36bfa79e8e139b8cad8b035c629acce702e52e8b00cb44e30c0a725521e50",
    "vocab.json": "494a62d1bf32c0edfc144c58aaa14a596c8dbf765b7129e907e55938453479dc",
}
CLIP = {"vocabulary": "clip", "pad_token": END, "model_max_length": 77}
MERGES = [["r", "e"], ["re", "d</w>"], ["c", "a"], ["ca", "t</w>"]]
OWN = {
    "vocabulary": {"vocab": vocabulary([(a, b) for a, b in MERGES]), "merges": MERGES},
    "pad_token": END,
    "model_max_length": 77,
}
ADDED = {**CLIP, "added_tokens": ["<cat-toy>", "sks2"]}
PROMPT = "a photo of an astronaut riding a horse on mars"
# As OpenAI's own CLIP tokenizer gives them.
PROMPT_IDS = [49406, 320, 1125, 539, 550, 18376, 6765, 320, 4558, 525, 7496, 49407]
PROMPTS = [
    PROMPT,
    "",
    "a <cat-toy>, a <Cat-Toy> and sks2",
    "Ünïcödé 猫 🐈!",
    "don't  STOP -- 1234 (red:1.2)",
    "x" * 300,
]


def test_clip_ids_are_the_known_ones() -> None:
    assert build_tokenizer(CLIP)(PROMPT).input_ids == PROMPT_IDS


def test_clip_vocabulary_ends_with_the_marks() -> None:
    tokenizer = build_tokenizer(CLIP)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, len(tokenizer)) == (49406, 49407, 49408)


def test_bytes_spell_every_word() -> None:
    tokenizer = build_tokenizer({"vocabulary": "bytes"})
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, len(tokenizer)) == (512, 513, 514)
    # 'a' is the 65th printable byte after '!', so it has id 64 within a word and 256 more at its end.
    assert tokenizer("aa a").input_ids == [512, 64, 320, 320, 513]


def test_the_embedded_models_vocabulary_is_the_one_its_data_set_was_given(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, {"vocabulary": "emoji"})
    written = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in tmp_path.iterdir()}
    assert written == EMOJI_FILES
    tokenizer = build_tokenizer({"vocabulary": "emoji"})
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, len(tokenizer)) == (4094, 4095, 4096)
    words = ["red</w>", "apple</w>", "noto</w>", "style</w>"]
    assert tokenizer.tokenize("Red apple noto style") == words


def test_own_merges_are_used() -> None:
    assert build_tokenizer(OWN)("red cat").input_ids == [516, 513, 515, 517]


@pytest.mark.parametrize(
    "description",
    [
        CLIP,
        {**CLIP, "pad_token": "!"},
        {**CLIP, "vocabulary": "bytes"},
        *catalogue.architecture("emoji").tokenizers,
        OWN,
        ADDED,
        {**ADDED, "pad_token": "<fill>"},
    ],
)
def test_what_is_written_is_read_again(tmp_path: Path, description: dict[str, Any]) -> None:
    write_tokenizer(tmp_path, description)
    assert read_tokenizer(tmp_path) == description


@pytest.mark.parametrize(
    "description", [CLIP, {**CLIP, "pad_token": "!"}, {**CLIP, "vocabulary": "bytes"}, ADDED]
)
def test_transformers_reads_what_is_written(tmp_path: Path, description: dict[str, Any]) -> None:
    write_tokenizer(tmp_path, description)
    theirs, ours = CLIPTokenizer.from_pretrained(tmp_path), build_tokenizer(description)
    for prompt in PROMPTS:
        assert _padded(theirs, prompt) == _padded(ours, prompt), prompt


@pytest.mark.parametrize("description", [CLIP, {**CLIP, "pad_token": "!"}, OWN, ADDED])
def test_what_transformers_saves_is_read(tmp_path: Path, description: dict[str, Any]) -> None:
    build_tokenizer(description).save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    assert not (tmp_path / "vocab.json").exists()
    assert read_tokenizer(tmp_path) == description


def test_an_added_word_is_one_token(tmp_path: Path) -> None:
    """As in folders of people who taught a model a word; transformers has noted it in three places so far."""
    write_tokenizer(tmp_path, CLIP)
    for noted in (
        {"added_tokens.json": {"<cat-toy>": 49408}},
        {"tokenizer_config.json": {"added_tokens_decoder": {"49408": {"content": "<cat-toy>"}}}},
        {"tokenizer.json": {"added_tokens": [{"id": 49408, "content": "<cat-toy>"}]}},
    ):
        for name, values in noted.items():
            (tmp_path / name).write_text(json.dumps(values))
        bare = FastTokenizer(read_tokenizer(tmp_path))
        assert bare("a <cat-toy>").input_ids == [49406, 320, 49408, 49407], noted
        (tmp_path / name).unlink()


def test_stable_diffusion_2_pads_with_the_token_of_its_older_file(tmp_path: Path) -> None:
    """Of two files that name one; see diffusers issue 2201. Transformers is the reference for which rules."""
    write_tokenizer(tmp_path, CLIP)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": {"content": "!"}}))
    read = read_tokenizer(tmp_path)
    assert read == catalogue.architecture("sd2-base").tokenizers[0]
    assert _padded(build_tokenizer(read), "cat") == _padded(CLIPTokenizer.from_pretrained(tmp_path), "cat")
    assert _padded(build_tokenizer(read), "cat")[-1] == 0


@pytest.mark.parametrize(
    "description",
    [
        CLIP,
        {**CLIP, "pad_token": "!"},
        {**CLIP, "pad_token": "<fill>"},
        {"vocabulary": "bytes"},
        OWN,
        ADDED,
        {**ADDED, "pad_token": "<fill>"},
    ],
)
def test_the_bare_tokenizer_is_transformers_in_every_setting(description: dict[str, Any]) -> None:
    bare, theirs = FastTokenizer(description), build_tokenizer(description)
    settings = [json.loads(each.backend_tokenizer.to_str()) for each in (bare, theirs)]
    assert settings[0] == settings[1]
    for mark in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(bare, mark) == getattr(theirs, mark)
    for prompt in [*PROMPTS, "a cat<|endoftext|> on a mat"]:
        for marked in (False, True):
            known = theirs(prompt, add_special_tokens=marked, verbose=False).input_ids
            assert bare(prompt, add_special_tokens=marked).input_ids == known, prompt


def _padded(tokenizer: Any, prompt: str) -> list[int]:
    ids: list[int] = tokenizer(prompt, padding="max_length", max_length=77, truncation=True).input_ids
    return ids


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _put(name: str, text: str | bytes) -> Callable[[Path], None]:
    data = text.encode() if isinstance(text, str) else text

    def write(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return write


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_remove("vocab.json"), "expected vocab.json and merges.txt, or tokenizer.json"),
        (_remove("merges.txt"), "merges.txt: is missing"),
        (_put("merges.txt", "#version: 0.2\na b c\n"), "holds no tokenizer that can be read"),
        (_put("merges.txt", b"\xff\xfe"), "merges.txt: it is not UTF-8 text"),
        (_put("vocab.json", "[1, 2]"), "vocab.json: it is a JSON list, not an object"),
        (_put("vocab.json", '{"a": 1'), "vocab.json: it is not JSON"),
        (_put("tokenizer_config.json", "no"), "tokenizer_config.json: it is not JSON"),
        (_put("tokenizer_config.json", '{"model_max_length": "long"}'), "holds no tokenizer"),
        (_put("tokenizer_config.json", '{"added_tokens_decoder": [1]}'), "holds no tokenizer"),
        (_put("added_tokens.json", '{"<cat>": 700}'), "'<cat>' has the id 700, expected 518"),
    ],
)
def test_broken_tokenizer_names_the_file(tmp_path: Path, damage: Callable[[Path], None], reason: str) -> None:
    write_tokenizer(tmp_path, OWN)
    damage(tmp_path)
    with pytest.raises(ModelFileError, match=reason):
        read_tokenizer(tmp_path)


def test_broken_fast_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {}}}')
    with pytest.raises(ModelFileError, match="holds no tokenizer that can be read: KeyError"):
        read_tokenizer(tmp_path)
