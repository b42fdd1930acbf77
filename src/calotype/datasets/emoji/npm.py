"""Fetches and verifies the pinned npm packages of the emoji dataset."""

import base64
import hashlib
import json
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calotype.core.errors import CalotypeError, NotFoundError, OfflineError
from calotype.train.data.sources.http_download import fetch, kept_at

DEFAULT_REGISTRY = "https://registry.npmjs.org"
_REGISTRY_VARIABLES = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
_BY_HAND = "or get it with `npm pack {spec}` and name the folder it is in with --from"


@dataclass(frozen=True)
class Package:
    """One version of a package, pinned by its checksum."""

    name: str
    version: str
    integrity: str
    """npm's integrity value: the algorithm and the digest in base 64."""
    licence: str
    attribution: str

    @property
    def file_name(self) -> str:
        return f"{self.name.rpartition('/')[2]}-{self.version}.tgz"

    @property
    def packed_name(self) -> str:
        """The file name that `npm pack` uses."""
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"

    @property
    def url(self) -> str:
        named = (os.environ.get(name) for name in _REGISTRY_VARIABLES)
        registry = next(filter(None, named), DEFAULT_REGISTRY)
        return f"{registry.rstrip('/')}/{self.name}/-/{self.file_name}"


class PackageError(CalotypeError):
    """A missing or invalid package."""

    def __init__(self, file: Path, rule: str) -> None:
        super().__init__(f"{file}: {rule}")


@dataclass(frozen=True)
class Unpacked:
    """A verified package on disk."""

    package: Package
    file: Path

    def read_json(self, members: Iterable[str]) -> list[Any]:
        """Return the values of these JSON members, in the given order."""
        try:
            with tarfile.open(self.file, mode="r:gz") as archive:
                return [json.load(_opened(archive, member)) for member in members]
        except (tarfile.TarError, KeyError, ValueError, OSError) as error:
            raise PackageError(self.file, f"cannot be read: {error}") from error


def _opened(archive: tarfile.TarFile, member: str) -> Any:
    return archive.extractfile(f"package/{member}")


def fetch_package(package: Package, *, folder: Path | None = None, offline: bool = False) -> Unpacked:
    """Get a verified package from `folder`, the cache or the registry."""
    if folder is not None:
        file = _in_folder(package, folder)
    elif offline:
        file = _in_cache(package)
    else:
        file = _fetched(package)
    found = f"sha512-{base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()}"
    if found != package.integrity:
        fix = "remove it"
        if folder is None:
            file.unlink()
            fix = f"it is removed from the cache: run again, {_BY_HAND.format(spec=_spec(package))}"
        rule = f"is not {_spec(package)}: its checksum is {found}, it must be {package.integrity}"
        raise PackageError(file, f"{rule}; {fix}")
    return Unpacked(package, file)


def _spec(package: Package) -> str:
    return f"{package.name}@{package.version}"


def _in_folder(package: Package, folder: Path) -> Path:
    for name in (package.file_name, package.packed_name):
        if (folder / name).is_file():
            return folder / name
    rule = f"has neither {package.file_name} nor {package.packed_name}"
    raise NotFoundError(f"{folder} {rule}; get it there with `npm pack {_spec(package)}`")


def _in_cache(package: Package) -> Path:
    file = kept_at(package.url)
    if not file.is_file():
        rule = f"is not in the cache ({file}); run once without --offline"
        raise OfflineError(f"{_spec(package)} {rule}, {_BY_HAND.format(spec=_spec(package))}")
    return file


def _fetched(package: Package) -> Path:
    try:
        return fetch(package.url)
    except OfflineError as error:
        raise OfflineError(f"{error}, {_BY_HAND.format(spec=_spec(package))}") from None
    except NotFoundError:
        rule = "the registry does not have it; check npm_config_registry"
        raise NotFoundError(f"{package.url}: {rule}, {_BY_HAND.format(spec=_spec(package))}") from None


NOTO = Package(
    "@iconify-json/noto",
    "1.2.9",
    "sha512-DQiuXENbun41ch+XPSV55H9FaWKpHTyz46YIKtSaKYD4fIDDzL1tR6H4np/T38jfrTAeI3rcKF0mqHYeZVAuaw==",
    "Apache-2.0",
    "Noto Emoji, Google Inc. (https://github.com/googlefonts/noto-emoji)",
)
FLUENT = Package(
    "@iconify-json/fluent-emoji-flat",
    "1.2.6",
    "sha512-RY47RgPb47fYUiyrA64sIOL0+UU02s29sXpNBbIQRBUlPlfNFTKUmZDERGuxDs/7yNGWqQYvuaSYM1M4fRXlUw==",
    "MIT",
    "Fluent Emoji, Microsoft Corporation (https://github.com/microsoft/fluentui-emoji)",
)
TWEMOJI = Package(
    "@iconify-json/twemoji",
    "1.2.5",
    "sha512-uKpuIEV0v6K5BW3Mjdyl+XKFVAbbcPxAgifKvEMtZoUZB5+YiY5zaMm2uNNCxyXzAWU9yNLlj41WU6/mvgALsw==",
    "CC-BY-4.0",
    "Twemoji, Twitter, Inc. and other contributors (https://github.com/jdecked/twemoji)",
)
EMOJIBASE = Package(
    "emojibase-data",
    "17.0.0",
    "sha512-Yvgb5AWoHViHV/gq1qr5ZAarcBip+B27/ZLRsUJkbgAEaLlZ/fof9g882LTpmEpyhBNEC0m2SEmItljHsTygjA==",
    "MIT",
    "Emojibase, Miles Johnson (https://github.com/milesj/emojibase)",
)
