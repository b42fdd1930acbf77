"""Nodes that make CONDITIONING of text."""

from calotype.core.errors import near_matches
from calotype.engine.prompt import parse_prompt
from calotype.workflow.interface import (
    CLIP,
    CONDITIONING,
    FLOAT,
    STRING,
    Catalogue,
    Input,
    InputValues,
    NodeClass,
    Output,
)
from calotype.workflow.nodes.inputs import pixels
from calotype.workflow.nodes.later import later

_HELP = "(word) and (word:1.2) weigh words, embedding:name is a learned one."


def _missing_words(catalogue: Catalogue, inputs: InputValues) -> str | None:
    """Learned words of the texts that are not in the folder."""
    found = catalogue.files("embeddings")
    known = {*found, *(name.rpartition(".")[0] for name in found)}
    for name, text in inputs.items():
        words = [piece.text for piece in parse_prompt(text) if piece.is_embedding] if _is_text(text) else []
        missing = next((word for word in words if word not in known), None)
        if missing is not None:
            return f"{name}: there is no learned word {missing!r}; {near_matches(missing, sorted(known))}"
    return None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "embedding:" in value


def _text(name: str) -> Input:
    return Input(name, STRING, default="", multiline=True, help=_HELP)


NODES = (
    NodeClass(
        "CLIPTextEncode",
        later("text", "encode"),
        inputs=(Input("text", STRING, multiline=True, help=_HELP), Input("clip", CLIP)),
        outputs=(Output(CONDITIONING),),
        title="CLIP Text Encode (Prompt)",
        category="conditioning",
        help="A prompt as the model reads it.",
        check=_missing_words,
    ),
    NodeClass(
        "CLIPTextEncodeSDXL",
        later("text", "encode_sdxl"),
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
    ),
    NodeClass(
        "CLIPTextEncodeSDXLRefiner",
        later("text", "encode_refiner"),
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
    ),
)
