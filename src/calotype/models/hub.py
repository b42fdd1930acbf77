"""Models by Hugging Face id: the local cache first, the network if it is there, a clear word if it is not.

The token comes from the environment (HF_TOKEN), where the hub's own client looks for it.
"""

from pathlib import Path

from calotype.core.errors import NotFoundError, OfflineError

WANTED_FILES = (
    "model_index.json",
    "*/config.json",
    "scheduler/*.json",
    "tokenizer*/*",
    "unet/*.safetensors*",
    "vae/*.safetensors*",
    "text_encoder*/*.safetensors*",
)
UNWANTED_FILES = ("*.fp16.safetensors*", "*.non_ema.safetensors*")


def snapshot(hub_id: str) -> Path:
    """The folder of a hub model on this machine, downloaded if need be and possible."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - half a second to import
    from huggingface_hub.errors import (  # noqa: PLC0415
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    patterns = {"allow_patterns": list(WANTED_FILES), "ignore_patterns": list(UNWANTED_FILES)}
    try:
        return Path(snapshot_download(hub_id, local_files_only=True, **patterns))
    except HFValidationError as error:
        raise NotFoundError(f"{hub_id!r} is neither a file, a folder nor a valid hub id: {error}") from error
    except LocalEntryNotFoundError:
        pass
    try:
        return Path(snapshot_download(hub_id, **patterns))
    except GatedRepoError as error:
        raise NotFoundError(f"{hub_id} asks for its licence to be accepted on the hub; then set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise NotFoundError(f"the hub has no model {hub_id!r}, or it is private: set HF_TOKEN to a token with access") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise OfflineError(
            f"{hub_id} is not in the local cache and the hub cannot be reached. Copy the model's folder here and give "
            f"its path, or set HF_HOME to a cache that has it, or use `calotype models random` for made-up weights"
        ) from error
