"""Settings of the interfaces: addresses, TLS, admins and limits on requests."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MEBI = 2**20

Port = Annotated[int, Field(ge=0, le=65535)]
Names = Annotated[tuple[str, ...], Field(strict=False)]
File = Annotated[Path, Field(strict=False)]


class ServeSettings(BaseModel):
    """Where to listen, whom to trust and how much to accept."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on. Any address but loopback needs an API key."""
    http_port: Port = 0
    """0 takes any free port."""
    grpc_port: Port | None = None
    """None disables gRPC; 0 takes any free port."""
    allowed_hosts: Names = ()
    """Host names that browsers and clients may use for this server, besides its own addresses."""
    allowed_origins: Names = ()
    """Origins of other servers' web pages that may use this one, as `https://name:port`."""
    admins: Names = ()
    """API keys, by name, that may load and unload models and see every client's jobs."""
    tls_certificate: File | None = None
    """PEM file of the certificate and its chain; with `tls_key`, both interfaces accept TLS only."""
    tls_key: File | None = None
    """PEM file of the certificate's key."""
    largest_body_bytes: Annotated[int, Field(ge=1024, le=2**31 - 1)] = 64 * MEBI
    """Of one request, input images included."""
    most_bytes_in_flight: Annotated[int, Field(ge=1024)] = 1024 * MEBI
    """Of all requests that are being read or answered; a waiting request keeps its input images."""
    most_connections: Annotated[int, Field(ge=1)] = 1000
    """Open requests of each interface. A key or address may hold as many as are free."""
    body_timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """How long a request may take to arrive."""
    head_timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    """How long the head of an HTTP request may take to arrive."""
    deepest_json: Annotated[int, Field(ge=4, le=500)] = 32
    """Nesting depth of a JSON body."""
    most_json_parts: Annotated[int, Field(ge=100)] = 50_000
    """Strings, brackets and braces of one JSON body; it may have four times as many commas."""
    most_pixels: Annotated[int, Field(ge=1)] = 8192 * 8192
    """Of one input image."""
    most_pixels_in_flight: Annotated[int, Field(ge=1)] = 2 * 8192 * 8192
    """Of all large images that are decoded at a time; one image is always decoded, whatever its size."""
    ping_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 15.0
    """Seconds of silence after which an event stream sends a keep-alive."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_certificate"
            raise ValueError(f"TLS needs a certificate and its key; give `{missing}` too")
        return self

    @property
    def loopback_only(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address always means this machine."""
    if host == "localhost":
        return True
    address = as_address(host)
    return address is not None and address.is_loopback


def as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """A host as an IP address; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
