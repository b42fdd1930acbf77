"""Finds models by Hugging Face id: in the local cache, else by download, else with an error that names a fix.

The hub's client reads the token from the environment (HF_TOKEN).
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from calotype.core.errors import CalotypeError, NotFoundError, OfflineError
from calotype.models.json_file import read_json

PARTS = ("unet", "vae", "text_encoder", "text_encoder_2")
CONFIGURATION = ("model_index.json", "*/config.json", "scheduler/*.json", "tokenizer*/*")


class Choice(NamedTuple):
    """File patterns of one of a repository's copies of the same weights."""

    wanted: tuple[str, ...]
    unwanted: tuple[str, ...] = ()


# Full precision converts to any dtype; some repositories hold only fp16, older ones only pickles.
CHOICES = (
    Choice(("*.safetensors*",), ("*.fp16[.-]*", "*.non_ema[.-]*")),
    Choice(("*.fp16*.safetensors", "*.safetensors.index.fp16.json", "*.fp16.safetensors.index.json")),
    Choice(("*.bin",), ("*.fp16.bin", "*.non_ema.bin")),
)


def snapshot(hub_id: str) -> Path:
    """The local folder of a hub model, downloaded if it is not in the cache."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - half a second to import
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415 - as above

    try:
        index = try_to_load_from_cache(hub_id, "model_index.json")
    except HFValidationError as error:
        rule = str(error).partition("\n")[0]
        raise NotFoundError(f"{hub_id!r} is neither a file, a folder nor a valid hub id: {rule}") from error
    if isinstance(index, str) and not missing_parts(Path(index).parent):
        return Path(index).parent
    return _download(hub_id)


def _download(hub_id: str) -> Path:
    from huggingface_hub import list_repo_files, snapshot_download  # noqa: PLC0415 - slow to import
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError  # noqa: PLC0415 - as above

    try:
        choice = best_choice(hub_id, list_repo_files(hub_id))
        wanted = [*CONFIGURATION, *(f"{part}/{form}" for part in PARTS for form in choice.wanted)]
        folder = snapshot_download(hub_id, allow_patterns=wanted, ignore_patterns=list(choice.unwanted))
    except CalotypeError:
        raise
    except GatedRepoError as error:
        rule = "requires accepting its licence on the hub; accept it there, then set HF_TOKEN"
        raise NotFoundError(f"{hub_id} {rule}") from error
    except RepositoryNotFoundError as error:
        rule = "or it is private: set HF_TOKEN to a token with access"
        raise NotFoundError(f"the hub has no model {hub_id!r}, {rule}") from error
    except Exception as error:  # proxies, sockets, servers and disks raise different types
        raise _unreachable(hub_id, error) from error
    return Path(folder)


def best_choice(hub_id: str, files: Sequence[str]) -> Choice:
    """The first choice that has weights for every part in the repository."""
    parts = [part for part in PARTS if f"{part}/config.json" in files]
    if "model_index.json" not in files or not parts:
        raise NotFoundError(
            f"{hub_id} on the hub is not a diffusers model: it has no model_index.json or no parts"
        )
    for choice in CHOICES:
        if all(_offers(choice, part, files) for part in parts):
            return choice
    raise NotFoundError(f"{hub_id} on the hub has no weights for {', '.join(parts)} that can be read")


def _offers(choice: Choice, part: str, files: Sequence[str]) -> bool:
    return any(
        any(fnmatch(file, f"{part}/{form}") for form in choice.wanted)
        and not any(fnmatch(file, form) for form in choice.unwanted)
        for file in files
    )


def _unreachable(hub_id: str, error: Exception) -> OfflineError:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return OfflineError(
        f"{hub_id} is not in the local cache, or not all of it, and could not be downloaded ({reason}). Copy "
        "the model's folder here and give its path, or set HF_HOME to a cache that has it, or use "
        "`calotype models random` for made-up weights"
    )


def missing_parts(folder: Path) -> list[str]:
    """Parts that the index names and the folder lacks; an interrupted download leaves a cache incomplete."""
    if not (folder / "model_index.json").is_file():
        return ["model_index.json"]
    index = read_json(folder / "model_index.json", inside=link_boundary(folder))
    indexed = [part for part in PARTS if isinstance(index.get(part), list) and any(index[part])]
    return [part for part in indexed or PARTS[:1] if not _has_weights(folder / part)]


def _has_weights(part: Path) -> bool:
    files = (file for pattern in ("*.safetensors", "*.bin") for file in part.glob(pattern))
    return (part / "config.json").is_file() and any(file.is_file() for file in files)


def link_boundary(folder: Path) -> Path:
    """The folder that links in a model folder may not leave: itself, or its repository in a hub cache.

    A hub cache keeps the files apart from the snapshot folders that link to them.
    """
    return folder.parents[1] if _in_hub_cache(folder) else folder


def folder_name(folder: Path) -> str:
    """The model's name: the folder's, or the hub id in a hub cache, where folders are named by revision."""
    if _in_hub_cache(folder):
        return folder.parents[1].name.removeprefix("models--").replace("--", "/")
    return folder.absolute().name


def _in_hub_cache(folder: Path) -> bool:
    return (
        len(folder.parents) > 1
        and folder.parent.name == "snapshots"
        and folder.parents[1].name.startswith("models--")
    )
