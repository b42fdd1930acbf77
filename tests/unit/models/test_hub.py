"""Hub ids: the cache on this machine is used, half a cache is not, and no network is said in plain words.

Each question is asked in a process of its own, because the hub's client reads its environment when it is
imported.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest

from calotype.core.errors import ModelFileError, NotFoundError, OfflineError
from calotype.models import hub
from calotype.models.diffusers_layout import read_architecture
from calotype.models.resolve import resolve_model
from tests.small_models import shrunk
from tests.unit.models.conftest import FolderOf
from tests.unit.models.on_disk import assert_same_parts, folder_tensors, read_weights

HUB_ID = "some-studio/emoji-1.0"
REVISION = "0123456789abcdef0123456789abcdef01234567"
ASK = "import sys; from calotype.models.hub import snapshot; print(snapshot(sys.argv[1]))"


def fill_cache(home: Path, folder: Path) -> Path:
    """Put a folder into a hub cache as the hub's client does: files apart, links to them by revision."""
    repository = home / "hub" / "models--some-studio--emoji-1.0"
    snapshot = repository / "snapshots" / REVISION
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    (repository / "blobs").mkdir()
    for number, file in enumerate(sorted(f for f in folder.rglob("*") if f.is_file())):
        blob = repository / "blobs" / f"{number:040x}"
        shutil.copy(file, blob)
        link = snapshot / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot


def ask(home: Path, hub_id: str = HUB_ID) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    environment.pop("HF_HUB_CACHE", None)
    command = [sys.executable, "-c", ASK, hub_id]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def cached(folder_of: FolderOf, tmp_path: Path) -> Path:
    return fill_cache(tmp_path / "home", folder_of("emoji"))


def test_cache_is_used_without_a_network(cached: Path, tmp_path: Path) -> None:
    answer = ask(tmp_path / "home")
    assert answer.stdout.strip() == str(cached), answer.stderr


def test_not_in_the_cache_and_no_network(tmp_path: Path) -> None:
    answer = ask(tmp_path / "home")
    assert answer.returncode != 0
    last = answer.stderr.strip().splitlines()[-1]
    assert last.startswith(f"calotype.core.errors.OfflineError: {HUB_ID} is not in the local cache")
    assert "HF_HOME" in last
    assert "calotype models random" in last


def test_half_a_cache_is_not_taken_for_a_model(cached: Path, tmp_path: Path) -> None:
    """Another tool fetched the configuration alone."""
    (cached / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    assert "OfflineError" in ask(tmp_path / "home").stderr


def test_cached_model_is_loaded_under_its_own_name(
    cached: Path, tmp_path: Path, folder_of: FolderOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    found = resolve_model(HUB_ID)
    with found.weights as weights:
        assert_same_parts(read_weights(weights), folder_tensors(folder_of("emoji")))
        assert weights.architecture.name == HUB_ID
    assert found.identity.reference == HUB_ID


def test_link_out_of_the_cache_is_refused(cached: Path, tmp_path: Path) -> None:
    config = cached / "unet" / "config.json"
    shutil.copy(config, tmp_path / "outside.json")
    config.unlink()
    config.symlink_to(tmp_path / "outside.json")
    with pytest.raises(ModelFileError, match=r"config.json: is a link to .*outside.json, which is outside"):
        read_architecture(cached)


def test_folder_that_only_looks_like_a_snapshot_gets_no_more_room(
    folder_of: FolderOf, tmp_path: Path
) -> None:
    folder = tmp_path / "snapshots" / "mine"
    shutil.copytree(folder_of("emoji"), folder)
    (folder / "unet" / "config.json").rename(tmp_path / "outside.json")
    (folder / "unet" / "config.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(ModelFileError, match="is a link to"):
        read_architecture(folder)


@pytest.mark.parametrize("hub_id", ["a/b--c..d", "-bad/name", "org/" + "x" * 200])
def test_what_is_no_hub_id_is_said_in_one_line(hub_id: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="is neither a file, a folder nor a valid hub id") as caught:
        resolve_model(hub_id, models=tmp_path)
    assert "\n" not in str(caught.value)


class _Repository:
    """Stands in for the network: says which files a folder has, and hands over those that are asked for."""

    def __init__(self, folder: Path, place: Path) -> None:
        self._folder, self._place = folder, place

    def files(self, _: str) -> list[str]:
        return [str(f.relative_to(self._folder)) for f in self._folder.rglob("*") if f.is_file()]

    def download(self, hub_id: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        for file in self.files(hub_id):
            wanted = any(Path(file).match(pattern) for pattern in allow_patterns)
            if wanted and not any(Path(file).match(pattern) for pattern in ignore_patterns):
                (self._place / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self._folder / file, self._place / file)
        return str(self._place)


@pytest.fixture
def on_the_hub(folder_of: FolderOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a repository that can be downloaded; nothing of it is in the cache."""
    folder = Path(shutil.copytree(folder_of("emoji"), tmp_path / "on-the-hub"))
    stands_in = _Repository(folder, tmp_path / "here")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(huggingface_hub, "list_repo_files", stands_in.files)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", stands_in.download)
    return folder


def _rename_weights(folder: Path, ending: str) -> None:
    for file in [*folder.glob("*/*.safetensors")]:
        file.rename(file.with_name(file.name.replace(".safetensors", ending)))


ENDINGS = [".safetensors", ".fp16.safetensors", ".bin"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_weights_are_fetched_in_the_form_there_is(on_the_hub: Path, ending: str) -> None:
    _rename_weights(on_the_hub, ending)
    folder = hub.snapshot(HUB_ID)
    assert hub.missing_parts(folder) == []
    assert (folder / "unet" / f"diffusion_pytorch_model{ending}").is_file()
    assert read_architecture(folder).unet == shrunk("emoji").unet


@pytest.mark.parametrize("best", range(len(ENDINGS)))
def test_only_the_best_copy_is_fetched(on_the_hub: Path, best: int) -> None:
    for file in [*on_the_hub.glob("*/*.safetensors")]:
        stem = file.name.removesuffix(".safetensors")
        for ending in [*ENDINGS[max(best, 1) :], ".non_ema.safetensors", ".fp16.bin"]:
            shutil.copy(file, file.with_name(f"{stem}{ending}"))
        if best > 0:
            file.unlink()
    folder = hub.snapshot(HUB_ID)
    assert [f.name for f in folder.glob("unet/diffusion*")] == [f"diffusion_pytorch_model{ENDINGS[best]}"]


@pytest.mark.parametrize("full", [True, False])
def test_a_variant_in_several_files_comes_with_its_index_or_not_at_all(on_the_hub: Path, full: bool) -> None:
    """As diffusers names them."""
    for file in [*on_the_hub.glob("*/*.safetensors")]:
        stem = file.name.removesuffix(".safetensors")
        for number in (1, 2):
            shutil.copy(file, file.with_name(f"{stem}.fp16-{number:05}-of-00002.safetensors"))
        file.with_name(f"{stem}.safetensors.index.fp16.json").write_text("{}")
        if not full:
            file.unlink()
    folder = hub.snapshot(HUB_ID)
    stem = "diffusion_pytorch_model"
    variant = [f"{stem}.fp16-{number:05}-of-00002.safetensors" for number in (1, 2)]
    wanted = [f"{stem}.safetensors"] if full else [*variant, f"{stem}.safetensors.index.fp16.json"]
    assert sorted(file.name for file in folder.glob("unet/diffusion*")) == wanted


def test_repository_without_weights_is_said_to_have_none(on_the_hub: Path) -> None:
    _rename_weights(on_the_hub, ".onnx")
    with pytest.raises(
        NotFoundError, match="on the hub has no weights for unet, vae, text_encoder that can be"
    ):
        hub.snapshot(HUB_ID)


def test_repository_of_something_else_is_refused(on_the_hub: Path) -> None:
    (on_the_hub / "model_index.json").unlink()
    with pytest.raises(NotFoundError, match="on the hub is not a diffusers model"):
        hub.snapshot(HUB_ID)


@pytest.mark.parametrize("error", [ConnectionError("proxy says no"), OSError(28, "No space left on device")])
@pytest.mark.parametrize("function", ["list_repo_files", "snapshot_download"])
def test_failed_download_says_why(
    on_the_hub: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, function, fail)
    with pytest.raises(OfflineError, match=r"proxy says no|No space left on device"):
        hub.snapshot(HUB_ID)
