"""TLS contexts that trust a server of this machine by its certificate file."""

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
    """The identity of a server that has exactly this certificate."""

    certificate: bytes
    context: ssl.SSLContext
    name: str | None
    """The name to use for the connection; None where its host is in the certificate."""


def identity_at(url: str, certificate: Path) -> Identity:
    """Connect to the server at a URL and check its certificate."""
    where = urlsplit(url)
    try:
        known = certificate.read_bytes()
    except OSError as error:
        raise NotFoundError(f"certificate: {certificate} cannot be read: {error.strerror or error}") from None
    try:
        context = ssl.create_default_context(cafile=str(certificate))
        # The certificate itself is trusted, whatever names it holds and whoever signed it.
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        with (
            socket.create_connection((where.hostname, where.port), TIMEOUT_S) as plain,
            context.wrap_socket(plain) as secure,
        ):
            certificate_fields: Any = secure.getpeercert()
    except OSError as error:
        raise UnavailableError(f"{url} cannot be reached over TLS: {error.strerror or error}") from error
    names = [str(name) for _, name in certificate_fields.get("subjectAltName", ())]
    name = None if where.hostname in names or not names else names[0].replace("*", "any")
    return Identity(known, context, name)
