"""Limits of a queue and of its history."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class QueueLimits(BaseModel):
    """Limits of a queue."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    max_queued: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Queued jobs of all clients together; with API keys, a client may have no more than are still free."""
    max_queued_per_client: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Queued jobs of one client; an API key can have a smaller limit."""
    max_losses: Annotated[int, Field(ge=1, le=100)] = 3
    """A job fails after so many deaths of its worker or the server."""
    max_age_s: Annotated[float, Field(gt=0)] = 7 * 86400.0
    """Ended jobs are deleted after this time, with their images."""
    max_bytes: Annotated[int, Field(ge=0)] = 20 * 2**30
    """Images of ended jobs of all clients together; above it, jobs of the clients that hold most are deleted.

    Of a client, the jobs that ended first are deleted first. A client that holds no more than an equal share
    of this limit loses nothing because of others; the same holds for the limits below.
    """
    max_record_bytes: Annotated[int, Field(ge=2**20)] = 2 * 2**30
    """Records of jobs without their images; some jobs have no images."""
    max_upload_bytes: Annotated[int, Field(ge=0)] = 4 * 2**30
    """Uploads for workflows: a client's least recently used are deleted first, all after `max_age_s`."""
    max_uploads: Annotated[int, Field(ge=0)] = 100_000
    """Number of uploads, however small."""
