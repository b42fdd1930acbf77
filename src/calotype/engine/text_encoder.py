"""Encodes prompts of any length for the UNet's cross-attention.

Tokens go through the encoder in windows of its maximum length minus the start and end tokens (75 in all of
CLIP's), and the outputs are concatenated. Weights move each token's embedding away from, or towards, the
empty prompt's embedding at that position.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from calotype.engine.cpu_offload import cpu_offload
from calotype.engine.prompt_parser import parse_prompt
from calotype.models.model import Model

WINDOWS_AT_ONCE = 16
CACHE_BYTES = 64 * 2**20
"""About two hundred SDXL prompts of usual length."""

CACHE_WINDOWS = 16

Lookup = Callable[[str], list[Tensor]]
"""Name of a textual-inversion embedding → its vectors, one tensor per text encoder."""
T = TypeVar("T")
Token = tuple[int, float]
"""Token id and weight."""
Encoding = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""Token ids of windows → hidden states for the UNet, and the pooled output if there is one."""


@dataclass(frozen=True, eq=False)
class Conditioning:
    """One encoded prompt, with a leading dimension of one. Compares by identity."""

    context: Tensor
    pooled: Tensor | None

    def zeros(self) -> Conditioning:
        """Zeros of the same shape: the empty prompt of models that were trained so."""
        pooled = None if self.pooled is None else torch.zeros_like(self.pooled)
        return Conditioning(torch.zeros_like(self.context), pooled)

    @property
    def num_bytes(self) -> int:
        return self.context.nbytes + (0 if self.pooled is None else self.pooled.nbytes)


class TextConditioner:
    """Encodes prompts with all text encoders of a model and caches the last ones."""

    def __init__(
        self,
        model: Model,
        lookup: Lookup,
        *,
        offload: bool = False,
        run: Callable[[Encoding], Encoding] = lambda encoding: encoding,
    ) -> None:
        """With `offload` the encoders stay in main memory, and each layer is on the device while it runs.

        `run` wraps an encoder; a later call may overwrite the output of an earlier one.
        """
        self._model = model
        self._lookup = lookup
        self._offload = offload
        if offload:
            for encoder in model.text_encoders:
                encoder.to("cpu")
        self._run = run
        self._on_device: set[int] = set()
        """Encoders that are offloaded but on the device at present."""
        self._encodings: dict[tuple[int, int], Encoding] = {}
        self._learned: dict[str, list[list[int]]] = {}
        self._windows_of: OrderedDict[str | tuple[str, ...], list[list[list[Token]]]] = OrderedDict()
        """Token windows of the last prompts: a job needs them several times before its first step."""
        self._cache: OrderedDict[Hashable, Conditioning] = OrderedDict()
        self._nothing: Conditioning | None = None

    def clear_cache(self) -> None:
        """Drop cached encodings: the encoders' weights have changed."""
        self._cache.clear()

    def clear_learned_words(self, words: Iterable[str]) -> None:
        """Drop embeddings whose files have changed; they are read again on their next use."""
        for word in words:
            self._learned.pop(word, None)
        self._windows_of.clear()
        self.clear_cache()

    def encode(self, prompt: str | tuple[str, ...], clip_skip: int = 0) -> Conditioning:
        """Encode the prompt with all encoders, stopping `clip_skip` layers earlier than usual.

        A tuple holds one prompt for each encoder; the shorter ones are padded with empty windows.
        """
        key = (prompt, clip_skip)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        with self._on_device_during(*range(len(self._model.text_encoders))):
            conditioning = result_of(self.encode_in_slices(prompt, clip_skip))
        self._cache_encoding(key, conditioning)
        return conditioning

    @torch.inference_mode()
    def encode_in_slices(
        self, prompt: str | tuple[str, ...], clip_skip: int = 0
    ) -> Generator[None, None, Conditioning]:
        """Like `encode`, in slices of at most `WINDOWS_AT_ONCE` windows; yields between slices.

        The result is not cached: weights may change and change back between two slices.
        """
        if (prompt, clip_skip) in self._cache:
            return self._cache[prompt, clip_skip]
        contexts, pooled = [], None
        for index, windows in enumerate(self._all_windows(prompt)):
            if index and len(windows) > WINDOWS_AT_ONCE:
                yield
            context, pooled = yield from self._encode_windows(windows, index, clip_skip)
            contexts.append(context)
        # An embedding may be longer for one encoder than for the other; the shorter context sets the length.
        shortest = min(context.shape[1] for context in contexts)
        return Conditioning(torch.cat([c[:, :shortest] for c in contexts], dim=-1), pooled)

    def num_windows(self, prompt: str | tuple[str, ...]) -> int:
        """Number of token windows of the prompt."""
        return max(len(windows) for windows in self._all_windows(prompt))

    def nothing(self, like: Conditioning) -> Conditioning:
        """`like.zeros()`, the same object for all prompts of a length, so derived tensors are cached."""
        if self._nothing is None or self._nothing.context.shape != like.context.shape:
            self._nothing = like.zeros()
        return self._nothing

    @contextmanager
    def _on_device_during(self, *indices: int) -> Iterator[None]:
        """Keep these offloaded encoders on the device for the duration."""
        with ExitStack() as stack:
            for index in indices if self._offload else ():
                if index not in self._on_device:
                    stack.enter_context(cpu_offload(self._model.text_encoders[index], self._model.device))
                    self._on_device.add(index)
                    stack.callback(self._on_device.remove, index)
            yield

    def _cache_encoding(self, key: Hashable, conditioning: Conditioning) -> None:
        # A single prompt above the limit must not evict all others.
        if conditioning.num_bytes > CACHE_BYTES:
            return
        self._cache[key] = conditioning
        while sum(each.num_bytes for each in self._cache.values()) > CACHE_BYTES:
            self._cache.popitem(last=False)

    def _all_windows(self, prompt: str | tuple[str, ...]) -> list[list[list[Token]]]:
        """The token windows of each encoder."""
        if prompt not in self._windows_of:
            self._windows_of[prompt] = self._split_windows(prompt)
            while len(self._windows_of) > CACHE_WINDOWS:
                self._windows_of.popitem(last=False)
        self._windows_of.move_to_end(prompt)
        return self._windows_of[prompt]

    def _split_windows(self, prompt: str | tuple[str, ...]) -> list[list[list[Token]]]:
        count = len(self._model.text_encoders)
        if isinstance(prompt, str):
            return [self._windows(prompt, index) for index in range(count)]
        if len(prompt) != count:
            raise ValueError(f"{len(prompt)} prompts for {count} text encoders; give one for each")
        each = [self._windows(text, index) for index, text in enumerate(prompt)]
        longest = max(len(windows) for windows in each)
        return [windows + [[]] * (longest - len(windows)) for windows in each]

    def _windows(self, prompt: str, index: int) -> list[list[Token]]:
        tokenizer = self._model.tokenizers[index]
        tokens: list[Token] = []
        for piece in parse_prompt(prompt):
            if piece.is_embedding:
                ids = self._learned_ids(piece.text)[index]
            else:
                ids = tokenizer(piece.text, add_special_tokens=False, verbose=False).input_ids
            tokens += [(token, piece.weight) for token in ids]
        room = self._window_length(index) - 2
        return [tokens[start : start + room] for start in range(0, len(tokens), room)] or [[]]

    def _window_length(self, index: int) -> int:
        """Tokens of one window, including the start and end tokens."""
        return int(self._model.text_encoders[index].config.max_position_embeddings)

    def _learned_ids(self, name: str) -> list[list[int]]:
        """Token ids of an embedding, one list per encoder; the first use adds its vectors to the table."""
        if name not in self._learned:
            vectors = self._lookup(name)
            encoders = self._model.text_encoders
            self._learned[name] = [_extend_table(enc, v) for enc, v in zip(encoders, vectors, strict=True)]
            # The tables have moved, and a captured graph would read the old addresses.
            self._encodings.clear()
        return self._learned[name]

    def _encode_windows(
        self, windows: Sequence[Sequence[Token]], index: int, clip_skip: int
    ) -> Generator[None, None, tuple[Tensor, Tensor | None]]:
        tokenizer = self._model.tokenizers[index]
        weighted = any(weight != 1.0 for window in windows for _, weight in window)
        length = self._window_length(index)
        rows = [_row([token for token, _ in window], tokenizer, length) for window in windows]
        if weighted:
            rows.append(_row([], tokenizer, length))
        hidden, pooled = yield from self._run_encoder(rows, index, clip_skip)
        if weighted:
            weights = torch.tensor([_row_weights(window, length) for window in windows], device=hidden.device)
            empty = hidden[-1:].float()
            hidden = ((hidden[:-1].float() - empty) * weights[..., None] + empty).to(hidden.dtype)
        # The pooled output is that of the first window: models were trained on one window only.
        return hidden.reshape(1, -1, hidden.shape[-1]), None if pooled is None else pooled[:1]

    def _run_encoder(
        self, rows: Sequence[Sequence[int]], index: int, clip_skip: int
    ) -> Generator[None, None, tuple[Tensor, Tensor | None]]:
        key = (index, clip_skip)
        contexts: list[Tensor] = []
        pooled_outputs: list[Tensor | None] = []
        for batch in torch.tensor(rows, device=self._model.device).split(WINDOWS_AT_ONCE):
            if contexts:
                yield
            # An embedding of another prompt may have replaced the table since the last slice.
            if key not in self._encodings:
                self._encodings[key] = self._run(_encoding(self._model, index, clip_skip))
            with self._on_device_during(index):
                context, pooled = self._encodings[key](batch)
            contexts.append(context.clone())
            pooled_outputs.append(None if pooled is None else pooled.clone())
        return torch.cat(contexts), pooled_outputs[0]


def result_of(slices: Generator[None, None, T]) -> T:
    """Run all slices and return the result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return cast("T", end.value)


def _row(tokens: list[int], tokenizer: Any, length: int) -> list[int]:
    row = [tokenizer.bos_token_id, *tokens, tokenizer.eos_token_id]
    return row + [tokenizer.pad_token_id] * (length - len(row))


def _row_weights(window: Sequence[Token], length: int) -> list[float]:
    weights = [1.0, *(weight for _, weight in window)]
    return weights + [1.0] * (length - len(weights))


def _encoding(model: Model, index: int, clip_skip: int) -> Encoding:
    encoder = model.text_encoders[index]
    body = getattr(encoder, "text_model", encoder)
    # Old configurations set eos_token_id to 2, which makes the encoder take the largest id as the end; but
    # embeddings have larger ids.
    body.eos_token_id = model.tokenizers[index].eos_token_id

    def encode_ids(ids: Tensor) -> tuple[Tensor, Tensor | None]:
        output = encoder(input_ids=ids, output_hidden_states=True)
        if model.architecture.family == "sdxl":
            # SDXL was trained on the second to last layer, without the final norm.
            return output.hidden_states[-(clip_skip + 2)], getattr(output, "text_embeds", None)
        if clip_skip == 0:
            return output.last_hidden_state, None
        return body.final_layer_norm(output.hidden_states[-(clip_skip + 1)]), None

    return encode_ids


# The table outlives the call: it must not become an inference tensor, which cannot be changed later.
@torch.inference_mode(False)
def _extend_table(encoder: Any, vectors: Tensor) -> list[int]:
    table = encoder.get_input_embeddings()
    first = table.weight.shape[0]
    weight = torch.cat([table.weight, vectors.to(table.weight.device, table.weight.dtype)])
    table.weight = nn.Parameter(weight, requires_grad=False)
    table.num_embeddings = len(weight)
    return list(range(first, first + len(vectors)))
