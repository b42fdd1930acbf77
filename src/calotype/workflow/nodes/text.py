"""Nodes that make CONDITIONING of text."""

from collections.abc import Hashable

from calotype.core.errors import did_you_mean
from calotype.engine.prompt_parser import parse_prompt
from calotype.workflow.node_api import (
    CLIP,
    CONDITIONING,
    FLOAT,
    STRING,
    Catalogue,
    Context,
    Input,
    InputValues,
    NodeDef,
    Output,
)
from calotype.workflow.nodes.inputs import pixels, stamp
from calotype.workflow.nodes.lazy import lazy_import

_HELP = "(word) and (word:1.2) weigh words, embedding:name is a learned one."


def _missing_words(catalogue: Catalogue, inputs: InputValues) -> str | None:
    """Learned words of the texts that are not in the folder."""
    known = _learned(catalogue)
    for name, text in inputs.items():
        missing = next((word for word in _words(text) if word not in known), None)
        if missing is not None:
            return f"{name}: there is no learned word {missing!r}; {did_you_mean(missing, sorted(known))}"
    return None


def _stamps(context: Context, inputs: InputValues) -> Hashable:
    """Changes when the file of a learned word does."""
    known = _learned(context.catalogue)
    names = {known[word] for text in inputs.values() for word in _words(text) if word in known}
    files = [str(context.catalogue.find("embeddings", name)) for name in sorted(names)]
    return tuple((file, stamp(file)) for file in files) or None


def _learned(catalogue: Catalogue) -> dict[str, str]:
    """Files by what a prompt calls them: by their names, or without what these end in."""
    found = catalogue.files("embeddings")
    return {name.rpartition(".")[0]: name for name in found} | {name: name for name in found}


def _words(value: object) -> list[str]:
    if not isinstance(value, str) or "embedding:" not in value:
        return []
    return [piece.text for piece in parse_prompt(value) if piece.is_embedding]


def _text(name: str) -> Input:
    return Input(name, STRING, default="", multiline=True, help=_HELP)


NODES = (
    NodeDef(
        "CLIPTextEncode",
        lazy_import("text", "encode"),
        inputs=(Input("text", STRING, multiline=True, help=_HELP), Input("clip", CLIP)),
        outputs=(Output(CONDITIONING),),
        title="CLIP Text Encode (Prompt)",
        category="conditioning",
        help="A prompt as the model reads it.",
        check=_missing_words,
        changes=_stamps,
    ),
    NodeDef(
        "CLIPTextEncodeSDXL",
        lazy_import("text", "encode_sdxl"),
        inputs=(
            Input("clip", CLIP),
            pixels("width", 1024),
            pixels("height", 1024),
            pixels("crop_w", 0),
            pixels("crop_h", 0),
            pixels("target_width", 1024),
            pixels("target_height", 1024),
            _text("text_g"),
            _text("text_l"),
        ),
        outputs=(Output(CONDITIONING),),
        category="advanced/conditioning",
        help="A prompt for each of SDXL's text encoders, and the sizes and crop that it is told.",
        check=_missing_words,
        changes=_stamps,
    ),
    NodeDef(
        "CLIPTextEncodeSDXLRefiner",
        lazy_import("text", "encode_refiner"),
        inputs=(
            Input("clip", CLIP),
            Input("ascore", FLOAT, default=6.0, minimum=0.0, maximum=1000.0, step=0.01),
            pixels("width", 1024),
            pixels("height", 1024),
            _text("text"),
        ),
        outputs=(Output(CONDITIONING),),
        category="advanced/conditioning",
        help="A prompt for SDXL's refiner, with the score that the picture should have.",
        check=_missing_words,
        changes=_stamps,
    ),
)
