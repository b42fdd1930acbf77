"""How a server of this machine is known over TLS: by its certificate. Knows nothing of what it is asked."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from calotype.core.errors import NotFoundError
from calotype.serve.service import UnavailableError

TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Identity:
    """Of a server that has this very certificate."""

    certificate: bytes
    context: ssl.SSLContext
    name: str | None
    """To ask it by; None where its host is one that it is certified for."""


def identity_at(url: str, certificate: Path) -> Identity:
    """Of the server at a URL, which is asked for its certificate."""
    where = urlsplit(url)
    try:
        known = certificate.read_bytes()
    except OSError as error:
        raise NotFoundError(f"certificate: {certificate} cannot be read: {error.strerror or error}") from None
    try:
        context = ssl.create_default_context(cafile=str(certificate))
        # It is known by its certificate, whatever names that has, and whoever has signed it.
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        with (
            socket.create_connection((where.hostname, where.port), TIMEOUT_S) as plain,
            context.wrap_socket(plain) as secure,
        ):
            found: Any = secure.getpeercert()
    except OSError as error:
        raise UnavailableError(f"{url} cannot be asked over TLS: {error.strerror or error}") from error
    names = [str(name) for _, name in found.get("subjectAltName", ())]
    name = None if where.hostname in names or not names else names[0].replace("*", "any")
    return Identity(known, context, name)
