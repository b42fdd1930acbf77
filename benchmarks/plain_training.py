"""The training loop people write with diffusers and torch.compile, for comparison. Uses nothing of Calotype.

The UNet's weights in fp32 under bf16 autocast, frozen encoders in bf16, fused AdamW, clipping, diffusers' own
EMA; random weights of the exact architecture, synthetic data made on the device. Prints one JSON object.

    PYTHONPATH=src:build/offline python3 benchmarks/plain_training.py CONFIG.json --micro-batch 64 --compile
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from diffusers.training_utils import EMAModel
from torch.nn.functional import mse_loss
from transformers import CLIPTextConfig, CLIPTextModel

DEVICE = torch.device("cuda")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("architecture", type=Path, help="a catalogue file, for instance sd2-base.json")
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--latents", action="store_true", help="latents and text embeddings made beforehand")
    parser.add_argument("--warmup-steps", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    step = training_step(json.loads(chosen.architecture.read_text()), chosen)
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first_step_s = time.perf_counter() - started
    for _ in range(chosen.warmup_steps):
        step()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(chosen.steps):
        step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    result = {
        "first_step_s": first_step_s,
        "steps": chosen.steps,
        "seconds": seconds,
        "samples_per_s": chosen.steps * chosen.micro_batch / seconds,
        "micro_batch": chosen.micro_batch,
        "allocated_bytes": torch.cuda.max_memory_allocated(),
    }
    print(json.dumps(result))


def training_step(architecture: dict[str, Any], chosen: argparse.Namespace) -> Any:
    """One update, ready to be called."""
    with DEVICE:
        unet = UNet2DConditionModel.from_config(architecture["unet"])
        vae = AutoencoderKL.from_config(architecture["vae"]).to(torch.bfloat16).requires_grad_(False).eval()
        config = CLIPTextConfig(**plain(architecture["text_encoders"][0]))
        text_encoder = CLIPTextModel(config).to(torch.bfloat16).requires_grad_(False).eval()
    unet.train()
    noises = DDPMScheduler.from_config(architecture["scheduler"])
    ema = EMAModel(unet.parameters(), decay=0.9999, foreach=True)
    optimizer = torch.optim.AdamW(unet.parameters(), 1e-4, weight_decay=0.01, fused=True)
    network = torch.compile(unet) if chosen.compile else unet
    encode = torch.compile(vae.encode) if chosen.compile else vae.encode
    count, side = chosen.micro_batch, int(architecture["native_size"])
    factor = 2 ** (len(architecture["vae"]["block_out_channels"]) - 1)
    shape = (count, int(architecture["vae"]["latent_channels"]), side // factor, side // factor)

    def conditions() -> tuple[torch.Tensor, torch.Tensor]:
        if chosen.latents:
            width = int(architecture["unet"]["cross_attention_dim"])
            context = torch.randn(count, 77, width, device=DEVICE, dtype=torch.bfloat16)
            return torch.randn(shape, device=DEVICE), context
        pixels = torch.rand(count, 3, side, side, device=DEVICE, dtype=torch.bfloat16) * 2 - 1
        tokens = torch.randint(0, config.vocab_size, (count, 77), device=DEVICE)
        with torch.no_grad():
            latents = encode(pixels).latent_dist.sample() * vae.config.scaling_factor
            return latents.float(), text_encoder(tokens)[0]

    def step() -> None:
        latents, context = conditions()
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, noises.config.num_train_timesteps, (count,), device=DEVICE)
        noisy = noises.add_noise(latents, noise, timesteps)
        with torch.autocast("cuda", torch.bfloat16):
            answer = network(noisy, timesteps, context, return_dict=False)[0]
        mse_loss(answer.float(), noise).backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ema.step(unet.parameters())

    return step


def plain(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if not key.startswith("_")}


if __name__ == "__main__":
    main()
