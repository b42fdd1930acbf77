"""`calotype models` as a user meets it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from calotype.core.errors import ExitCode
from tests.unit.cli.conftest import Calotype


def test_list_shows_catalogue_and_folder(calotype: Calotype) -> None:
    lora = Path("models/loras/style.safetensors")
    lora.parent.mkdir(parents=True)
    lora.write_bytes(b"")
    seen = calotype("models", "list")
    assert all(name in seen.out for name in ("sd15", "sd2-base", "sdxl", "emoji", "loras/style.safetensors"))
    listed = json.loads(calotype("models", "list", "--json").out)
    assert listed["files"]["loras"] == ["style.safetensors"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sd2-base", "1289.952427 M parameters, 865.910724 M of them trainable"),
        ("sdxl", "2567.463684 M"),
        ("sd15", "859.520964 M"),
    ],
)
def test_show_counts_parameters(calotype: Calotype, name: str, words: str) -> None:
    assert words in calotype("models", "show", name).out


def test_show_names_the_card_of_the_embedded_model(calotype: Calotype) -> None:
    (line,) = [line for line in calotype("models", "show", "emoji").out.splitlines() if "model card" in line]
    card = Path(line.split(maxsplit=2)[2])
    assert all(licence in card.read_text(encoding="utf-8") for licence in ("Apache-2.0", "MIT", "CC-BY-4.0"))
    assert "model card" not in calotype("models", "show", "sd15").out


def test_show_of_an_unknown_name(calotype: Calotype) -> None:
    seen = calotype("models", "show", "sdx1")
    assert seen.code == ExitCode.NOT_FOUND
    assert "did you mean 'sdxl'" in seen.err


def test_random_inspect_convert_generate(calotype: Calotype) -> None:
    """The whole life of a model: invented as a folder, made one file, an old ckpt, and a folder again."""
    assert calotype("models", "random", "emoji", "folder", "--dtype", "fp32", "--seed", 3).code == ExitCode.OK
    assert calotype("models", "convert", "folder", "one.safetensors").code == ExitCode.OK
    assert calotype("models", "convert", "one.safetensors", "old.ckpt").code == ExitCode.OK
    config = json.loads(calotype("models", "show", "folder", "--json").out)["architecture"]
    Path("config.json").write_text(json.dumps(config))
    assert calotype("models", "convert", "old.ckpt", "back", "--config", "config.json").code == ExitCode.OK
    for part in ("unet/diffusion_pytorch_model", "vae/diffusion_pytorch_model", "text_encoder/model"):
        there, here = (load_file(f"{folder}/{part}.safetensors") for folder in ("folder", "back"))
        assert there.keys() == here.keys()
        assert all(torch.equal(there[name], here[name]) for name in there)
    found = json.loads(calotype("models", "inspect", "one.safetensors", "--json", "--values").out)
    assert (found["kind"], found["base"], found["safe"], found["non_finite"]) == (
        "checkpoint",
        "sd1",
        True,
        [],
    )
    assert "sandboxed process" in calotype("models", "inspect", "old.ckpt").out
    assert "diffusers folder" in calotype("models", "inspect", "back").out
    small = ("--width", 64, "--height", 64, "--steps", 1, "--seed", 1)
    for model in ("folder", "one.safetensors"):
        assert calotype("generate", model, *small, "--model", model, "--out", "made").code == ExitCode.OK
    same = [Path(f"made/{name}-seed1.png") for name in ("folder", "one-safetensors")]
    assert all(path.is_file() for path in same)


def test_nothing_is_overwritten(calotype: Calotype) -> None:
    Path("taken.safetensors").write_text("mine")
    seen = calotype("models", "random", "emoji", "taken.safetensors")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "exists already" in seen.err
    assert Path("taken.safetensors").read_text() == "mine"


def test_inspect_of_an_unsafe_file_names_the_rule(calotype: Calotype) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            import os

            return os.system, ("touch trace",)

    torch.save({"state_dict": {"x": Evil()}}, "evil.ckpt")
    seen = calotype("models", "inspect", "evil.ckpt")
    assert seen.code == ExitCode.BAD_MODEL_FILE
    assert "NO" in seen.out
    assert "system" in seen.out
    assert not Path("trace").exists()


@pytest.mark.parametrize("name", ["new.pt", "new.bin", "new.CKPT"])
def test_a_kind_of_file_that_is_not_written_is_no_folder(calotype: Calotype, name: str) -> None:
    seen = calotype("models", "convert", "emoji", name)
    assert seen.code == ExitCode.BAD_REQUEST
    assert f"'{name}' should end in .safetensors or .ckpt" in seen.err
    assert not Path(name).exists()


@pytest.mark.parametrize("verb", ["inspect", "convert"])
def test_a_missing_file(calotype: Calotype, verb: str) -> None:
    extra = () if verb == "inspect" else ("new",)
    seen = calotype("models", verb, "missing.safetensors", *extra)
    assert seen.code == ExitCode.NOT_FOUND
    assert "missing.safetensors" in seen.err
