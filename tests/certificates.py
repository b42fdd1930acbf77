"""Certificates that are signed by themselves, as openssl makes them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_WORDS = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certified(NamedTuple):
    certificate: Path
    key: Path


def certified(folder: Path, name: str) -> Certified:
    """For this name alone, such as `IP:127.0.0.1` or `DNS:*.example`."""
    made = Certified(folder / "cert.pem", folder / "key.pem")
    more = ["-subj", "/CN=test", "-addext", f"subjectAltName={name}", "-days", "2"]
    files = ["-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run([*_WORDS, *more, *files], check=True, capture_output=True, timeout=300)
    return made
