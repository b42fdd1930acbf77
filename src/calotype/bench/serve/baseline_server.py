"""A server as people write it around diffusers: one pipeline, one lock, one request at a time.

    python -m calotype.bench.serve.baseline_server --fd N MODEL

It listens on the inherited socket N. Weights, precision and device are those of the deployment it stands
beside. Knows nothing of the load.
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
    """One picture; what else a load sends means nothing here."""

    prompt: str
    steps: int = 20
    cfg: float = 7.5
    width: int | None = None
    height: int | None = None
    seed: int = 0


def create_app(pipeline: Any) -> FastAPI:
    """Two routes over a pipeline."""
    app, lock = FastAPI(), threading.Lock()

    # Not `async`: such routes run in threads, so that others can be answered meanwhile.
    @app.post("/generate")
    def generate(wanted: BaselineRequest) -> Response:
        with lock:
            image = pipeline(
                wanted.prompt,
                num_inference_steps=wanted.steps,
                guidance_scale=wanted.cfg,
                width=wanted.width,
                height=wanted.height,
                generator=torch.Generator("cpu").manual_seed(wanted.seed),
            ).images[0]
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return Response(buffer.getvalue(), media_type="image/png")

    @app.get("/healthz")
    def healthz() -> dict[str, bool]:
        return {"alive": True}

    return app


def plain_pipeline(model: str, device: str | None, precision: str | None, folder: Path | None) -> Any:
    """The model in diffusers' own pipeline."""
    place = choose_device(device)
    found = resolve_model(model, models=folder)
    with found.weights as weights:
        live = load_model(weights, found.identity, dtype=choose_dtype(precision, place), device=place)
    return pipeline_of(live)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--device")
    parser.add_argument("--precision")
    parser.add_argument("--models-folder", type=Path)
    chosen = parser.parse_args()
    listening = socket.socket(fileno=chosen.fd)
    app = create_app(plain_pipeline(chosen.model, chosen.device, chosen.precision, chosen.models_folder))
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
