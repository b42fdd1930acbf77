"""Packages are fetched once, checked always, and every way it can fail says what to do."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from calotype.core.errors import NotFoundError, OfflineError
from calotype.datasets.emoji.build import Ingredients, gather
from calotype.datasets.emoji.npm import NOTO, Package, PackageError, fetch_package
from calotype.train.data.sources import http_download
from tests.unit.train.data.web_server import Script, serving


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(http_download, "FIRST_PAUSE_S", 0.0)


@pytest.fixture
def noto(ingredients: Ingredients) -> tuple[Package, bytes]:
    """The fixture's package and its content."""
    unpacked = ingredients.styles[0][1]
    return unpacked.package, unpacked.file.read_bytes()


def test_addresses_are_those_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("npm_config_registry", raising=False)
    assert NOTO.url == "https://registry.npmjs.org/@iconify-json/noto/-/noto-1.2.9.tgz"
    monkeypatch.setenv("npm_config_registry", "http://mirror.test/npm/")
    assert NOTO.url == "http://mirror.test/npm/@iconify-json/noto/-/noto-1.2.9.tgz"


def test_a_package_is_fetched_once_and_then_needs_no_network(
    noto: tuple[Package, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    package, content = noto
    with serving(Script(content)) as server:
        monkeypatch.setenv("npm_config_registry", server.url)
        with pytest.raises(OfflineError, match="not in the cache"):
            fetch_package(package, offline=True)
        first = fetch_package(package)
        assert [path for path, _ in server.asked] == ["/@iconify-json/noto/-/noto-1.2.9.tgz"]
    assert fetch_package(package) == fetch_package(package, offline=True) == first
    assert first.file.read_bytes() == content


def test_a_wrong_checksum_is_refused_and_fetched_anew(
    noto: tuple[Package, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    package, content = noto
    with serving(Script(content[:-1] + b"x")) as server:
        monkeypatch.setenv("npm_config_registry", server.url)
        with pytest.raises(PackageError, match=r"is not @iconify-json/noto@1\.2\.9: its checksum is sha512-"):
            fetch_package(package)
        server.content = content
        assert fetch_package(package).file.read_bytes() == content


def test_a_tarball_of_the_user_s_is_checked_and_never_removed(
    noto: tuple[Package, bytes], tmp_path: Path
) -> None:
    package, content = noto
    file = tmp_path / package.file_name
    file.write_bytes(content + b"x")
    with pytest.raises(PackageError, match="its checksum is"):
        fetch_package(package, folder=tmp_path)
    assert file.exists()


@pytest.mark.parametrize("name", ["noto-1.2.9.tgz", "iconify-json-noto-1.2.9.tgz"])
def test_tarballs_may_be_called_as_npm_pack_calls_them(
    noto: tuple[Package, bytes], tmp_path: Path, name: str
) -> None:
    package, content = noto
    (tmp_path / name).write_bytes(content)
    assert fetch_package(package, folder=tmp_path).file == tmp_path / name


def test_a_missing_tarball_is_named(noto: tuple[Package, bytes], tmp_path: Path) -> None:
    with pytest.raises(
        NotFoundError, match=r"has neither noto-1\.2\.9\.tgz nor iconify-json-noto-1\.2\.9\.tgz"
    ):
        fetch_package(noto[0], folder=tmp_path)


def test_no_network_says_how_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Script(b"")) as server:
        closed = server.url
    monkeypatch.setenv("npm_config_registry", closed)
    with pytest.raises(OfflineError, match=r"not be downloaded .* `npm pack @iconify-json/noto@1\.2\.9`"):
        fetch_package(NOTO)


def test_a_registry_without_the_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Script(b"", [404])) as server:
        monkeypatch.setenv("npm_config_registry", server.url)
        with pytest.raises(NotFoundError, match="the registry does not have it; check npm_config_registry"):
            fetch_package(NOTO)


def test_all_packages_come_from_one_folder(ingredients: Ingredients, tarballs: Path, tmp_path: Path) -> None:
    shutil.copytree(tarballs, tmp_path / "copy")
    styles = [style for style, _ in ingredients.styles]
    gathered = gather(folder=tmp_path / "copy", styles=styles, names=ingredients.names.package)
    assert {unpacked.file.parent for _, unpacked in gathered.styles} == {tmp_path / "copy"}
    assert gathered.names == replace(ingredients.names, file=tmp_path / "copy" / "emojibase-data-17.0.0.tgz")
