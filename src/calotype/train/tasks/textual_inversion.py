"""Textual inversion (Gal et al. 2022, arXiv:2208.01618): train embedding vectors for a new word."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from calotype.core.errors import Problem, RequestError
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.data.types import Batch
from calotype.train.loss import LossInput
from calotype.train.rng import SampleNoise
from calotype.train.tasks.base import UNetTask
from calotype.train.tasks.lora import NO_METADATA
from calotype.train.tasks.unet_with_text import UNetWithText, predict_from_captions


class LearnedWord(nn.Module):
    """An embedding table whose last rows are trained and whose other rows are frozen."""

    def __init__(self, table: nn.Embedding, initial: Tensor) -> None:
        super().__init__()
        self.weight = table.weight
        self.vectors = nn.Parameter(initial.clone().float())

    def forward(self, ids: Tensor) -> Tensor:
        return embedding(ids, torch.cat([self.weight, self.vectors.to(self.weight.dtype)]))


class TextualInversionTask(UNetTask):
    """Trained vectors for a new word in every text encoder of the model."""

    def __init__(self, model: Model, recipe: Recipe) -> None:
        super().__init__(model, recipe)
        model.unet.requires_grad_(False)
        part = recipe.textual_inversion
        self._words = nn.ModuleList()
        tokens = [f"{part.word}_{i}" for i in range(part.num_vectors)]
        self._tokens = " ".join(tokens)
        for encoder, tokenizer in zip(model.text_encoders, model.tokenizers, strict=True):
            ids = tokenizer(part.initial_word, add_special_tokens=False).input_ids
            if not ids:
                raise RequestError(
                    [Problem("textual_inversion.initial_word", f"{part.initial_word!r} has no tokens")]
                )
            body = getattr(encoder, "text_model", encoder)
            table = body.embeddings.token_embedding
            # Start from a similar word, with its tokens repeated if there are more vectors than tokens.
            rows = [ids[i % len(ids)] for i in range(part.num_vectors)]
            learned = LearnedWord(table, table.weight[rows].detach())
            body.embeddings.token_embedding = learned
            body.eos_token_id = tokenizer.eos_token_id
            tokenizer.add_tokens(tokens)
            self._words.append(learned)

        self._network = UNetWithText(model, self._words)

    @property
    def network(self) -> nn.Module:
        return self._network

    def parameters(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self._words.named_parameters() if name.endswith("vectors")}

    def _predict(
        self, loss_input: LossInput, batch: Batch, draws: SampleNoise
    ) -> Callable[[nn.Module], Tensor]:
        captions = [self._with_word(caption) for caption in batch.captions]
        return predict_from_captions(self.model, loss_input, batch, draws, captions)

    def spelled(self, prompt: str) -> str:
        """Replace the word (plain or as `embedding:`) by the tokens of its vectors in the prompt."""
        named = rf"(?<!\w)(?:embedding:)?{re.escape(self._recipe.textual_inversion.word)}(?!\w)"
        return re.sub(named, lambda _: self._tokens, prompt)

    def _with_word(self, caption: str) -> str:
        named = self.spelled(caption)
        return named if self._tokens in named else f"a photo of {self._tokens}"

    def export(
        self, file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = NO_METADATA
    ) -> None:
        """Write the word in the format that ComfyUI, diffusers and Calotype read."""
        vectors = [tensors[name].detach().cpu().float().contiguous() for name in sorted(tensors)]
        names: Sequence[str] = ("emb_params",) if len(vectors) == 1 else ("clip_l", "clip_g")
        named = dict(zip(names, vectors, strict=True))
        specs = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in named.items()}
        write_safetensors(file, specs, named.__getitem__, {"format": "pt", **metadata})
