"""What a user may write where a model is meant: what it leads to, and what it never leads to."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from calotype.core.errors import ModelFileError, NotFoundError, RequestError
from calotype.models import catalogue, resolve
from calotype.models.resolve import file_sha256, read_config, resolve_model
from calotype.models.save import write_single_file
from calotype.models.weights import RandomWeights
from tests.open_files import open_below
from tests.small_models import shrunk, shrunk_folder
from tests.unit.models.conftest import FolderOf
from tests.unit.models.on_disk import assert_same_parts, original_tensors, read_weights

EMOJI = shrunk("emoji")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A model folder as ComfyUI users have it, with one file and one diffusers folder."""
    checkpoints = tmp_path / "models" / "checkpoints"
    checkpoints.mkdir(parents=True)
    write_single_file(RandomWeights(EMOJI, 1), checkpoints / "photo.safetensors")
    shrunk_folder(checkpoints / "mine", "emoji", 2)
    return tmp_path / "models"


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids that the hub was asked for; it has none of them."""
    asked: list[str] = []

    def snapshot(hub_id: str) -> Path:
        asked.append(hub_id)
        raise NotFoundError(f"asked the hub for {hub_id}")

    monkeypatch.setattr(resolve, "snapshot", snapshot)
    return asked


@pytest.mark.parametrize(
    ("name", "seed"),
    [("photo.safetensors", 1), ("photo", 1), ("mine/emoji-2", 2)],
    ids=["file", "without-suffix", "folder"],
)
def test_name_in_the_model_folder(models: Path, name: str, seed: int) -> None:
    found = resolve_model(name, models=models)
    with found.weights as weights:
        assert_same_parts(read_weights(weights), read_weights(RandomWeights(EMOJI, seed)))
    assert found.identity.reference == name
    assert not found.identity.random


def test_model_folder_comes_from_the_environment(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALOTYPE_MODELS", str(models))
    with resolve_model("photo").weights as weights:
        assert weights.architecture == EMOJI


def test_path_to_a_file_and_to_a_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)
    for path in ("checkpoints/photo.safetensors", str(models / "checkpoints" / "mine" / "emoji-2")):
        with resolve_model(path, models=models / "elsewhere").weights as weights:
            assert weights.architecture.family == "sd1"


def test_record_does_not_tell_where_the_file_lay(models: Path) -> None:
    found = resolve_model(str(models / "checkpoints" / "photo.safetensors"))
    with found.weights:
        assert found.identity.reference == "photo.safetensors"


def test_content_counts_and_not_the_suffix(tmp_path: Path) -> None:
    """A pickle called .safetensors, and the reverse."""
    config = tmp_path / "emoji.json"
    config.write_text(json.dumps(EMOJI.as_dict()))
    torch.save(original_tensors(EMOJI, 3), tmp_path / "pickle.safetensors")
    save_file(original_tensors(EMOJI, 3), tmp_path / "safe.ckpt")
    for name in ("pickle.safetensors", "safe.ckpt"):
        with resolve_model(str(tmp_path / name), config=config).weights as weights:
            assert_same_parts(read_weights(weights), read_weights(RandomWeights(EMOJI, 3)))


def test_hash_is_that_of_the_file(models: Path) -> None:
    file = models / "checkpoints" / "photo.safetensors"
    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    for _ in range(2):
        found = resolve_model("photo", models=models)
        with found.weights:
            assert found.identity.sha256 == expected


def test_hash_of_a_changed_file_is_not_remembered(tmp_path: Path) -> None:
    """Not even of one with the same size and date, as some tools make them."""
    file = tmp_path / "file"
    file.write_text("one")
    file_sha256(file)
    status = file.stat()
    while file.stat().st_ctime_ns == status.st_ctime_ns:  # the clock of a file system ticks every few ms
        file.write_text("two")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_sha256(file) == hashlib.sha256(b"two").hexdigest()


def test_hash_without_a_place_to_remember_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "taken"))
    assert file_sha256(tmp_path / "taken") == hashlib.sha256(b"").hexdigest()


def test_hash_of_a_folder_follows_its_weights(folder_of: FolderOf, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder_of("emoji"), tmp_path / "copy"))

    def digest() -> str:
        found = resolve_model(str(copy))
        with found.weights:
            return found.identity.sha256

    before = digest()
    assert digest() == before
    vae = copy / "vae" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(vae)
    tensors["quant_conv.bias"] += 1
    save_file(tensors, vae)
    assert digest() != before


@pytest.mark.parametrize(("text", "seed"), [("random:sd15", 0), ("random:sd15:7", 7), ("random:emoji:0", 0)])
def test_random_weights_by_name(text: str, seed: int) -> None:
    found = resolve_model(text)
    with found.weights as weights:
        architecture = catalogue.architecture(text.split(":")[1])
        assert weights.architecture == architecture
        expected = RandomWeights(architecture, seed).read("vae", "quant_conv.weight")
        assert torch.equal(weights.read("vae", "quant_conv.weight"), expected)
    assert found.identity.random


def test_other_seed_is_another_model() -> None:
    hashes = {resolve_model(f"random:emoji:{seed}").identity.sha256 for seed in (0, 1, 2)}
    assert len(hashes) == 3


@pytest.mark.parametrize("seed", ["", "abc", "-1", "1.5", "²", str(2**64), "1:2", "9" * 5000])
def test_seed_that_is_no_number_is_refused(seed: str) -> None:
    with pytest.raises(RequestError, match="is no seed: a whole number from 0 to 18446744073709551615"):
        resolve_model(f"random:sd15:{seed}")


def test_random_model_that_is_not_known() -> None:
    with pytest.raises(NotFoundError, match="no model 'sd51' in the catalogue; did you mean 'sd15'"):
        resolve_model("random:sd51")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("sdx1", "'sdxl'"),
        ("fhoto.safetensors", "'photo.safetensors'"),
        ("emojis", "'emoji'"),
        ("qqqq", "known: "),
    ],
)
def test_unknown_name_is_answered_with_near_ones(models: Path, name: str, near: str) -> None:
    with pytest.raises(NotFoundError, match=f"no model '{name}': not a file, .*{near}"):
        resolve_model(name, models=models)


def test_empty_model_folder_lists_the_catalogue(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="known: emoji, sd15, sd2-base, sdxl"):
        resolve_model("qqqq", models=tmp_path / "nothing")


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "..\\x",
        "a/../../x",
        "%2e%2e/x",
        "a\0b",
        "",
        "/nowhere/model.safetensors",
        "~nobody-of-this-name/x",
        "C:\\models\\x",
        "line\nbreak",
        "x" * 10_000,
    ],
)
def test_names_that_could_leave_the_folder_are_refused(
    models: Path, name: str, no_hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where nothing is called so beside it.
    monkeypatch.chdir(models)
    with pytest.raises(RequestError, match=r"model: .* is not a usable name: ") as caught:
        resolve_model(name, models=models)
    assert len(str(caught.value)) < 300
    assert no_hub == []


def _link_file(models: Path) -> None:
    (models / "checkpoints" / "out.safetensors").symlink_to(models.parent / "secret.safetensors")


def _link_folder(models: Path) -> None:
    (models / "checkpoints" / "out").symlink_to(models.parent)


@pytest.mark.parametrize(
    ("make", "name"),
    [(_link_file, "out.safetensors"), (_link_file, "out"), (_link_folder, "out/secret.safetensors")],
)
def test_link_that_leaves_the_model_folder_is_refused(
    models: Path, make: Callable[[Path], None], name: str
) -> None:
    shutil.copy(models / "checkpoints" / "photo.safetensors", models.parent / "secret.safetensors")
    make(models)
    with pytest.raises(RequestError, match="is a link that leaves"):
        resolve_model(name, models=models)


def test_link_within_the_model_folder_is_followed(models: Path) -> None:
    (models / "checkpoints" / "alias.safetensors").symlink_to("photo.safetensors")
    with resolve_model("alias", models=models).weights as weights:
        assert weights.architecture == EMOJI


@pytest.mark.parametrize(
    "hub_id", ["stabilityai/stable-diffusion-xl-base-1.0", "stable-diffusion-v1-5/stable-diffusion-v1-5"]
)
def test_hub_id_goes_to_the_hub(models: Path, no_hub: list[str], hub_id: str) -> None:
    with pytest.raises(NotFoundError, match="asked the hub"):
        resolve_model(hub_id, models=models)
    assert no_hub == [hub_id]


def test_missing_file_in_a_subfolder_is_no_hub_id(models: Path, no_hub: list[str]) -> None:
    with pytest.raises(NotFoundError, match=r"no model 'sub/model.safetensors'"):
        resolve_model("sub/model.safetensors", models=models)
    assert no_hub == []


def test_catalogue_name_goes_to_the_hub(
    tmp_path: Path, no_hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of that name where the user happens to stand is not meant."""
    (tmp_path / "sdxl").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match="asked the hub"):
        resolve_model("sdxl")
    assert no_hub == ["stabilityai/stable-diffusion-xl-base-1.0"]


def test_catalogue_name_is_looked_for_in_the_model_folder_first(models: Path, no_hub: list[str]) -> None:
    (models / "checkpoints" / "photo.safetensors").rename(models / "checkpoints" / "sd15.safetensors")
    with resolve_model("sd15", models=models).weights as weights:
        assert weights.architecture == EMOJI
    assert no_hub == []


def test_embedded_model_is_random_until_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "package_files", lambda _: tmp_path)
    assert resolve_model("emoji").identity.random
    shrunk_folder(tmp_path, "emoji", 1).rename(tmp_path / "emoji")
    found = resolve_model("emoji")
    with found.weights as weights:
        assert weights.architecture.title == "Calotype Emoji, the embedded model"
    assert not found.identity.random


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_prediction_type_can_be_overruled(models: Path, kind: str) -> None:
    name = {"file": "photo", "folder": "mine/emoji-2"}[kind]
    with resolve_model(name, models=models, prediction_type="epsilon").weights as weights:
        assert weights.architecture.prediction_type == "epsilon"


def test_empty_and_foreign_folders_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match=r"is not a diffusers model folder: it has no model_index.json"):
        resolve_model(str(tmp_path / "empty"))


def test_refused_file_is_not_left_open(models: Path) -> None:
    file = models / "checkpoints" / "bad.safetensors"
    tensors = original_tensors(EMOJI)
    tensors.pop("model.diffusion_model.out.2.bias")
    save_file(tensors, file, {"calotype.architecture": json.dumps(EMOJI.as_dict())})
    with pytest.raises(ModelFileError, match=r"'model.diffusion_model.out.2.bias'"):
        resolve_model("bad", models=models)
    assert open_below(models) == []


def test_refused_folder_is_not_left_open(models: Path) -> None:
    folder = models / "checkpoints" / "mine" / "emoji-2"
    (folder / "text_encoder" / "model.safetensors").unlink()
    with pytest.raises(NotFoundError, match=r"has neither model.safetensors"):
        resolve_model("mine/emoji-2", models=models)
    assert open_below(models) == []


@pytest.mark.parametrize("shown", [False, True], ids=["plain", "as-models-show-prints-it"])
def test_config_is_read_from_json(tmp_path: Path, shown: bool) -> None:
    plain = EMOJI.as_dict()
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"architecture": plain, "parameters": {}} if shown else plain))
    assert read_config(file) == EMOJI


def test_config_is_read_from_a_folder(folder_of: FolderOf) -> None:
    assert read_config(folder_of("emoji")).unet == EMOJI.unet


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "is not JSON"), ("{}", "not the description of a model"), ("[]", "not an object")],
)
def test_broken_config_names_the_file(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelFileError, match=f"config.json: .*{reason}"):
        read_config(tmp_path / "config.json")
