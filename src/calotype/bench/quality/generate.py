"""Generates a model's images for many prompts in batches, each image from its own seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calotype.bench.quality.dataset import scaled
from calotype.core.errors import Problem, RequestError
from calotype.core.progress import CancelToken, Progress
from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs
from calotype.engine.vae import Vae
from calotype.spec.generate_request import GenerateRequest
from calotype.train.tasks.vae_loss import psnr

MAX_AT_ONCE = 64
"""Default batch size; larger batches gain little."""
_RESTORED_AT_A_TIME = 16


def check_size(engine: Engine, side: int) -> None:
    """Raise an error if the model's default size differs from that of the real images."""
    native = engine.model.architecture.native_size
    if native != side:
        name = engine.model.identity.reference
        rule = f"{name} makes pictures of {native}×{native}, those of the set are {side}×{side}"
        raise RequestError([Problem("model", rule, native)])


def generate_images(
    engine: Engine,
    requests: Sequence[GenerateRequest],
    *,
    batch_size: int | None,
    progress: Progress,
    cancel: CancelToken,
) -> Tensor:
    """Generate an image for each request, (number, 3, height, width) in uint8.

    Only prompts and seeds differ.
    """
    first = engine.resolve_defaults(requests[0])
    wanted = min(len(requests), batch_size or MAX_AT_ONCE)
    plan = engine.plan_memory(first.with_changes(count=wanted), batch_size)
    resolved = [engine.resolve_defaults(request).with_changes(tile_vae=plan.tiled) for request in requests]
    pictures = []
    for start in range(0, len(resolved), plan.batch_size):
        batch = resolved[start : start + plan.batch_size]
        runs = [engine.begin(request, Inputs(), [request.seed]) for request in batch]
        while not all(run.done for run in runs):
            cancel.check()
            engine.step([run for run in runs if not run.done])
        for run, request in zip(runs, batch, strict=True):
            (image,) = engine.finish(run, request, Inputs())
            pictures.append(scaled(image, image.width))
            progress.advance()
    return torch.stack(pictures)


def reconstruct_images(engine: Engine, pixels: Tensor, cancel: CancelToken) -> tuple[Tensor, Tensor]:
    """Encode and decode real images with the model's autoencoder; return them with their PSNR in dB."""
    autoencoder, back, near = Vae(engine.model), [], []
    for some in pixels.split(_RESTORED_AT_A_TIME):
        cancel.check()
        original = some.float() / 127.5 - 1
        decoded = autoencoder.decode(autoencoder.encode(original, tiled=False), tiled=False).cpu()
        near.append(psnr(decoded, original))
        back.append(((decoded.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8))
    return torch.cat(back), torch.cat(near)
