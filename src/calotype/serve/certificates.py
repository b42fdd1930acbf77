"""Which name a server of this machine has in its certificate. Knows nothing of what is asked of it."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from calotype.serve.service import UnavailableError

PATIENCE_S = 10.0


def certified_name(url: str, certificate: Path) -> str | None:
    """A name to ask the server by that has this very certificate; None where its host is one."""
    where = urlsplit(url)
    context = ssl.create_default_context(cafile=str(certificate))
    # It is known by its certificate, whatever names that has, and whoever has signed it.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        with (
            socket.create_connection((where.hostname, where.port), PATIENCE_S) as plain,
            context.wrap_socket(plain) as secure,
        ):
            found: Any = secure.getpeercert()
    except OSError as error:
        raise UnavailableError(f"{url} cannot be asked over TLS: {error.strerror or error}") from error
    names = [str(name) for _, name in found.get("subjectAltName", ())]
    return None if where.hostname in names or not names else names[0].replace("*", "any")
