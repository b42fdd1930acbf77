"""Why a running deployment accepts no jobs, by its own readiness route."""

from __future__ import annotations

import httpx

from calotype.serve.lifecycle.registry import Endpoint

_TIMEOUT_S = 2.0


def refusal_of(running: Endpoint) -> str | None:
    """What `/readyz` says about a queue that accepts no jobs; None if it accepts them or does not answer."""
    try:
        # No secret is sent, and the certificate may be the deployment's own.
        answer = httpx.get(f"{running.http}/readyz", timeout=_TIMEOUT_S, verify=False, trust_env=False)  # noqa: S501
        refusal = answer.json().get("refusal")
    except (httpx.HTTPError, ValueError, AttributeError):
        return None
    return refusal if isinstance(refusal, str) else None
