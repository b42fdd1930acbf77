"""Reads from a running deployment's readiness route why it accepts no jobs."""

from __future__ import annotations

import httpx

from calotype.serve.lifecycle.registry import Endpoint

_TIMEOUT_S = 2.0


def refusal_of(running: Endpoint) -> str | None:
    """The refusal in `/readyz`; None if the queue accepts jobs or the server does not answer."""
    try:
        # The request holds no secret, and the certificate may be self-signed.
        answer = httpx.get(f"{running.http}/readyz", timeout=_TIMEOUT_S, verify=False, trust_env=False)  # noqa: S501
        refusal = answer.json().get("refusal")
    except (httpx.HTTPError, ValueError, AttributeError):
        return None
    return refusal if isinstance(refusal, str) else None
