"""How uvicorn serves the application. Knows nothing of what it answers."""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI

from calotype.serve.settings import ServeSettings


def server_config(app: FastAPI, settings: ServeSettings) -> uvicorn.Config:
    """For `uvicorn.Server`; logging and signals stay with who runs it."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.http_port,
        # It bounds the size of headers by itself.
        http="h11",
        ws="none",
        lifespan="off",
        # What a client says of its own address is not believed.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
