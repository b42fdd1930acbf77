"""A typical minimal server around diffusers: one pipeline, one lock, one request at a time.

    python -m calotype.bench.serve.baseline_server --fd N MODEL

It listens on the inherited socket N. Weights, precision and device are those of the deployment that it is
compared with.
"""

from __future__ import annotations

import argparse
import io
import socket
import threading
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel

from calotype.bench.inference.diffusers_baseline import pipeline_of
from calotype.engine.device import choose_device, choose_dtype
from calotype.models.model import load_model
from calotype.models.resolve import resolve_model


class BaselineRequest(BaseModel):
    """A request for one image; other fields of a load are ignored."""

    prompt: str
    steps: int = 20
    cfg: float = 7.5
    width: int | None = None
    height: int | None = None
    seed: int = 0


def create_app(pipeline: Any) -> FastAPI:
    """Create the app with its two routes."""
    app, lock = FastAPI(), threading.Lock()

    # Not `async`: FastAPI runs such routes in threads, so that other requests are not blocked.
    @app.post("/generate")
    def generate(request: BaselineRequest) -> Response:
        with lock:
            image = pipeline(
                request.prompt,
                num_inference_steps=request.steps,
                guidance_scale=request.cfg,
                width=request.width,
                height=request.height,
                generator=torch.Generator("cpu").manual_seed(request.seed),
            ).images[0]
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return Response(buffer.getvalue(), media_type="image/png")

    @app.get("/healthz")
    def healthz() -> dict[str, bool]:
        return {"alive": True}

    return app


def plain_pipeline(model: str, device: str | None, precision: str | None, folder: Path | None) -> Any:
    """Load the model into a diffusers pipeline."""
    target = choose_device(device)
    resolved = resolve_model(model, models=folder)
    with resolved.weights as weights:
        live = load_model(weights, resolved.identity, dtype=choose_dtype(precision, target), device=target)
    return pipeline_of(live)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--device")
    parser.add_argument("--precision")
    parser.add_argument("--models-folder", type=Path)
    arguments = parser.parse_args()
    listening = socket.socket(fileno=arguments.fd)
    app = create_app(
        plain_pipeline(arguments.model, arguments.device, arguments.precision, arguments.models_folder)
    )
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
