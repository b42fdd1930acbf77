"""How much a queue takes in, and how long it remembers. Knows nothing of how."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class QueueLimits(BaseModel):
    """Bounds of a queue."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    max_queued: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Jobs that wait, of all clients together; with API keys, no client may have more than are still free."""
    max_queued_per_client: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Jobs that wait, of one client; an API key can have a smaller bound of its own."""
    max_losses: Annotated[int, Field(ge=1, le=100)] = 3
    """A job under which a worker or the server died this often fails."""
    max_age_s: Annotated[float, Field(gt=0)] = 7 * 86400.0
    """Ended jobs are forgotten after this time, with their pictures."""
    max_bytes: Annotated[int, Field(ge=0)] = 20 * 2**30
    """Images of ended jobs, of all clients together; beyond it jobs of the clients that hold most go first.

    Of a client the job that ended first goes first. A client that holds no more than an equal share of this
    limit loses nothing because of others; the same holds for the limits below.
    """
    max_record_bytes: Annotated[int, Field(ge=2**20)] = 2 * 2**30
    """What is remembered of jobs beside their images, which some have none of."""
    max_upload_bytes: Annotated[int, Field(ge=0)] = 4 * 2**30
    """Uploads for workflows; of a client the least recently used goes first, and all go after `max_age_s`."""
    max_uploads: Annotated[int, Field(ge=0)] = 100_000
    """How many uploads, however small."""
