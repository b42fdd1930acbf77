"""A folder of shrunk models, and hosts that run nodes on them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from diffusers import ControlNetModel
from safetensors.torch import save_file

from calotype.models.controlnet import original_names
from calotype.models.key_mapping.prefixes import rename_prefixes
from calotype.models.save import write_folder
from calotype.models.weights import RandomWeights
from tests.small_models import shrunk
from tests.unit.models.lora_files import layers_of, random_updates, write_kohya
from tests.workflows import Host

CHECKPOINTS = {"sd15": 1, "sdxl": 1, "sdxl-refiner": 2}
"""Name and seed of the weights."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for name, seed in CHECKPOINTS.items():
        write_folder(RandomWeights(shrunk(name), seed), place / "checkpoints" / name)
    (place / "loras").mkdir()
    for seed in (1, 2):
        sd15 = shrunk("sd15")
        updates = random_updates(sd15, layers_of(sd15, ["unet", "text_encoder"])[::5], seed)
        write_kohya(place / "loras" / f"style{seed}.safetensors", updates, 2.0, one_encoder=True)
    write_folder(RandomWeights(shrunk("sd15"), 9), place / "another")
    (place / "vae").mkdir()
    (place / "another" / "vae").rename(place / "vae" / "other")
    (place / "embeddings").mkdir()
    save_file({"emb_params": torch.randn(3, 32)}, place / "embeddings" / "shiny.safetensors")
    _write_control_nets(place / "controlnet")
    return place


def _write_control_nets(place: Path) -> None:
    """The same random one as a diffusers folder and as a file with the original names."""
    torch.manual_seed(4)
    from calotype.engine.load import load

    unet = load(str(place.parent / "checkpoints" / "sd15"), device="cpu", preset="baseline").model.unet
    net = ControlNetModel.from_unet(unet)
    # They begin at zero, so that at first they say nothing.
    for name, parameter in net.named_parameters():
        if name.startswith("controlnet_"):
            torch.nn.init.normal_(parameter, std=0.3)
    net.save_pretrained(place / "folder")
    names = original_names(net.config)
    state = {
        f"control_model.{rename_prefixes(name, names)}": t.contiguous()
        for name, t in net.state_dict().items()
    }
    save_file(state, place / "original.safetensors")


@pytest.fixture(scope="session")
def host(folder: Path) -> Host:
    """Engines are kept over all tests; what one saves is the next one's too."""
    # Whose modules are diffusers' own: they are what results are compared with.
    return Host(folder, preset="baseline")
