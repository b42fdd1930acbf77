"""A whole picture from exported files, with numpy and onnxruntime alone, by DDIM. Knows nothing of torch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.unit.engine.onnx.exported import Array, Exported


def picture(model: Exported, prompt: str, negative: str, noise: Array, *, steps: int, cfg: float) -> Array:
    """Pixels in 0…1, one picture per latent of noise."""
    count, factor = len(noise), _vae_factor(model)
    size = tuple(side * factor for side in noise.shape[2:])
    prompts = _conditions(model, [negative] * count + [prompt] * count, size)
    alphas = _alphas(_config(model, "scheduler/scheduler_config.json"))
    latents = noise
    stride = 1000 // steps
    for step in range(steps - 1, -1, -1):
        # diffusers' "leading" spacing with an offset of one.
        now = step * stride + 1
        here, after = alphas[now], alphas[now - stride] if now >= stride else 1.0
        both = model.run(
            "unet",
            sample=np.concatenate([latents, latents]),
            timestep=np.array(now),
            **prompts,
        )["out_sample"]
        against, towards = np.split(both, 2)
        output = against + cfg * (towards - against)
        clean = (latents - np.sqrt(1 - here) * output) / np.sqrt(here)
        latents = np.sqrt(after) * clean + np.sqrt(1 - after) * output
    scale = _config(model, "vae_decoder/config.json")["scaling_factor"]
    pixels = model.run("vae_decoder", latent_sample=latents / scale)["sample"]
    return np.clip(pixels / 2 + 0.5, 0, 1).transpose(0, 2, 3, 1)


def _conditions(model: Exported, texts: list[str], size: tuple[int, ...]) -> dict[str, Array]:
    first = model.run("text_encoder", input_ids=model.ids("tokenizer", texts))
    if not (model.folder / "text_encoder_2").is_dir():
        return {"encoder_hidden_states": first["last_hidden_state"]}
    second = model.run("text_encoder_2", input_ids=model.ids("tokenizer_2", texts))
    before_last = [
        outputs[f"hidden_states.{_config(model, f'{part}/config.json')['num_hidden_layers'] - 1}"]
        for part, outputs in (("text_encoder", first), ("text_encoder_2", second))
    ]
    return {
        "encoder_hidden_states": np.concatenate(before_last, axis=-1),
        "text_embeds": second["text_embeds"],
        "time_ids": np.array([[*size, 0, 0, *size]] * len(texts)),
    }


def _alphas(schedule: dict[str, Any]) -> Array:
    first, last = (schedule[end] ** 0.5 for end in ("beta_start", "beta_end"))
    return np.cumprod(1 - np.linspace(first, last, schedule["num_train_timesteps"]) ** 2)


def _vae_factor(model: Exported) -> int:
    return int(2 ** (len(_config(model, "vae_decoder/config.json")["block_out_channels"]) - 1))


def _config(model: Exported, name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((model.folder / name).read_text())
    return values
