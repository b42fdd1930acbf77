"""Descriptions of models that do not hold together are refused with the reason."""

from dataclasses import replace
from typing import Any

import pytest

from calotype.core.errors import ModelFileError
from calotype.models.architecture import Architecture, family_of
from tests.small_models import shrunk


def _without(config: Any, key: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != key}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"family": "sd3"}, "family 'sd3' is unknown; known are sd1, sd2, sdxl"),
        ({"native_size": "large"}, "native_size 'large' is not a number of pixels"),
        ({"tokenizers": []}, "1 text encoders and 0 tokenizers"),
        ({"text_encoders": [], "tokenizers": []}, "0 text encoders"),
        ({"text_encoders": [{"_class_name": "T5EncoderModel"}]}, "text_encoder is a T5EncoderModel"),
        ({"unet": {"_class_name": "SD3Transformer2DModel"}}, "unet is a SD3Transformer2DModel, only UNet2D"),
        ({"vae": _without(shrunk("sd15").vae, "latent_channels")}, "vae configuration lacks latent_channels"),
        ({"unet": _without(shrunk("sd15").unet, "layers_per_block")}, "lacks layers_per_block"),
        ({"scheduler": {}}, "scheduler has no '_class_name'"),
        ({"text_encoders": 3}, "not the description of a model"),
        ({"unet": "big"}, "not the description of a model"),
        ({"colour": "blue"}, "not the description of a model.*'colour'"),
    ],
)
def test_description_that_makes_no_model_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Architecture.from_dict({**shrunk("sd15").as_dict(), **changes})


def test_description_without_a_part_is_refused() -> None:
    with pytest.raises(ValueError, match="text_encoders"):
        Architecture.from_dict(_without(shrunk("sd15").as_dict(), "text_encoders"))


def test_settings_that_do_not_fit_together_name_the_part() -> None:
    broken = replace(shrunk("sd15"), unet={**shrunk("sd15").unet, "norm_num_groups": 7})
    with pytest.raises(ModelFileError, match="shrunk-sd15: its unet configuration builds no model"):
        broken.tensor_shapes("unet")


@pytest.mark.parametrize(
    ("name", "family"), [("sd15", "sd1"), ("sd2-base", "sd2"), ("sdxl", "sdxl"), ("emoji", "sd1")]
)
def test_family_is_told_by_the_text_encoders(name: str, family: str) -> None:
    assert family_of(shrunk(name).text_encoders) == family == shrunk(name).family
