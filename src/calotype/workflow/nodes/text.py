"""Declares the nodes that encode text to CONDITIONING."""

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

_HELP = "(word) and (word:1.2) weight words; embedding:name inserts a textual inversion."


def _missing_embeddings(catalogue: Catalogue, inputs: InputValues) -> str | None:
    """Report an embedding in the texts that is not in the folder."""
    known = _embeddings(catalogue)
    for name, text in inputs.items():
        missing = next((word for word in _embedding_names(text) if word not in known), None)
        if missing is not None:
            return f"{name}: there is no embedding {missing!r}; {did_you_mean(missing, sorted(known))}"
    return None


def _stamps(context: Context, inputs: InputValues) -> Hashable:
    """A value that changes with the files of the embeddings in the texts."""
    known = _embeddings(context.catalogue)
    names = {known[word] for text in inputs.values() for word in _embedding_names(text) if word in known}
    files = [str(context.catalogue.find("embeddings", name)) for name in sorted(names)]
    return tuple((file, stamp(file)) for file in files) or None


def _embeddings(catalogue: Catalogue) -> dict[str, str]:
    """Embedding files by their names in prompts: with or without the suffix."""
    found = catalogue.files("embeddings")
    return {name.rpartition(".")[0]: name for name in found} | {name: name for name in found}


def _embedding_names(value: object) -> list[str]:
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
        help="Encodes a prompt for the model.",
        check=_missing_embeddings,
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
        help="Encodes a prompt for each of SDXL's text encoders, with sizes and crop.",
        check=_missing_embeddings,
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
        help="Encodes a prompt for SDXL's refiner, with the aesthetic score of the image.",
        check=_missing_embeddings,
        changes=_stamps,
    ),
)
