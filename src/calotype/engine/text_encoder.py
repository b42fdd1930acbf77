"""From a prompt to what the UNet's cross-attention reads. Knows nothing of sampling.

Prompts of any length: tokens go through the encoder in windows of as many as it has places for between their
marks (75 in all of CLIP's), and the windows are laid end to end. Weights move each token's embedding away
from, or towards, what the empty prompt has at that place.
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
REMEMBERED_BYTES = 64 * 2**20
"""About two hundred SDXL prompts of usual length."""

REMEMBERED_WINDOWS = 16

Lookup = Callable[[str], list[Tensor]]
"""Name of a learned word → its vectors, one tensor per text encoder."""
T = TypeVar("T")
Token = tuple[int, float]
"""Token id and weight."""
Encoding = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""Token ids of windows → what the UNet reads of them, and the summary of each where there is one."""


@dataclass(frozen=True, eq=False)
class Conditioning:
    """One prompt as the UNet reads it, with a leading dimension of one. Equal to itself alone."""

    context: Tensor
    pooled: Tensor | None

    def zeros(self) -> Conditioning:
        """What 'nothing' is for models that were trained so."""
        pooled = None if self.pooled is None else torch.zeros_like(self.pooled)
        return Conditioning(torch.zeros_like(self.context), pooled)

    @property
    def num_bytes(self) -> int:
        return self.context.nbytes + (0 if self.pooled is None else self.pooled.nbytes)


class TextConditioner:
    """Encodes prompts with all of a model's text encoders and remembers the last ones."""

    def __init__(
        self,
        model: Model,
        lookup: Lookup,
        *,
        aside: bool = False,
        run: Callable[[Encoding], Encoding] = lambda encoding: encoding,
    ) -> None:
        """With `aside` the encoders wait in main memory, and each layer is on the device while it runs.

        `run` decides how an encoder is run; its answers may be overwritten by the next ones.
        """
        self._model = model
        self._lookup = lookup
        self._aside = aside
        if aside:
            for encoder in model.text_encoders:
                encoder.to("cpu")
        self._run = run
        self._on_device: set[int] = set()
        """Encoders that are moved there for a while."""
        self._encodings: dict[tuple[int, int], Encoding] = {}
        self._learned: dict[str, list[list[int]]] = {}
        self._windows_of: OrderedDict[str | tuple[str, ...], list[list[list[Token]]]] = OrderedDict()
        """Of the last prompts: a job's is needed several times before its first step."""
        self._remembered: OrderedDict[Hashable, Conditioning] = OrderedDict()
        self._nothing: Conditioning | None = None

    def clear_cache(self) -> None:
        """Drop what is remembered: the encoders' weights have changed."""
        self._remembered.clear()

    def clear_learned_words(self, words: Iterable[str]) -> None:
        """Learned words that have been written anew: they are read again when they are said."""
        for word in words:
            self._learned.pop(word, None)
        self._windows_of.clear()
        self.clear_cache()

    def encode(self, prompt: str | tuple[str, ...], clip_skip: int = 0) -> Conditioning:
        """The prompt as all encoders together read it, `clip_skip` layers before where each usually stops.

        Several prompts are one for each encoder; the shorter is filled up with nothing.
        """
        key = (prompt, clip_skip)
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        with self._at_hand(*range(len(self._model.text_encoders))):
            conditioning = result_of(self.encode_in_slices(prompt, clip_skip))
        self._remember(key, conditioning)
        return conditioning

    @torch.inference_mode()
    def encode_in_slices(
        self, prompt: str | tuple[str, ...], clip_skip: int = 0
    ) -> Generator[None, None, Conditioning]:
        """The same, one slice of at most `WINDOWS_AT_ONCE` windows at a time; it yields between slices.

        Its result is not remembered: weights may change and change back between two slices.
        """
        if (prompt, clip_skip) in self._remembered:
            return self._remembered[prompt, clip_skip]
        contexts, pooled = [], None
        for index, windows in enumerate(self._all_windows(prompt)):
            if index and len(windows) > WINDOWS_AT_ONCE:
                yield
            context, pooled = yield from self._encode_windows(windows, index, clip_skip)
            contexts.append(context)
        # A learned word may be longer for one encoder than for the other; then the shorter prompt rules.
        shortest = min(context.shape[1] for context in contexts)
        return Conditioning(torch.cat([c[:, :shortest] for c in contexts], dim=-1), pooled)

    def num_windows(self, prompt: str | tuple[str, ...]) -> int:
        """Windows of tokens that the prompt takes."""
        return max(len(windows) for windows in self._all_windows(prompt))

    def nothing(self, like: Conditioning) -> Conditioning:
        """`like.zeros()`, the very same for all prompts of a length: what is made of it is made once."""
        if self._nothing is None or self._nothing.context.shape != like.context.shape:
            self._nothing = like.zeros()
        return self._nothing

    @contextmanager
    def _at_hand(self, *indices: int) -> Iterator[None]:
        """Meanwhile these encoders are on the device; those that are there already stay."""
        with ExitStack() as visits:
            for index in indices if self._aside else ():
                if index not in self._on_device:
                    visits.enter_context(cpu_offload(self._model.text_encoders[index], self._model.device))
                    self._on_device.add(index)
                    visits.callback(self._on_device.remove, index)
            yield

    def _remember(self, key: Hashable, conditioning: Conditioning) -> None:
        # One prompt that is too large by itself must not drop all others.
        if conditioning.num_bytes > REMEMBERED_BYTES:
            return
        self._remembered[key] = conditioning
        while sum(one.num_bytes for one in self._remembered.values()) > REMEMBERED_BYTES:
            self._remembered.popitem(last=False)

    def _all_windows(self, prompt: str | tuple[str, ...]) -> list[list[list[Token]]]:
        """The windows of each encoder."""
        if prompt not in self._windows_of:
            self._windows_of[prompt] = self._made_windows(prompt)
            while len(self._windows_of) > REMEMBERED_WINDOWS:
                self._windows_of.popitem(last=False)
        self._windows_of.move_to_end(prompt)
        return self._windows_of[prompt]

    def _made_windows(self, prompt: str | tuple[str, ...]) -> list[list[list[Token]]]:
        count = len(self._model.text_encoders)
        if isinstance(prompt, str):
            return [self._windows(prompt, index) for index in range(count)]
        if len(prompt) != count:
            raise ValueError(f"{len(prompt)} prompts for {count} text encoders; give one for each")
        each = [self._windows(one, index) for index, one in enumerate(prompt)]
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
        room = self._places(index) - 2
        return [tokens[start : start + room] for start in range(0, len(tokens), room)] or [[]]

    def _places(self, index: int) -> int:
        """Tokens of one window, the marks at its ends included."""
        return int(self._model.text_encoders[index].config.max_position_embeddings)

    def _learned_ids(self, name: str) -> list[list[int]]:
        """Ids of a learned word, one list per encoder; its vectors join the encoder's table on first use."""
        if name not in self._learned:
            vectors = self._lookup(name)
            encoders = self._model.text_encoders
            self._learned[name] = [_extend_table(enc, v) for enc, v in zip(encoders, vectors, strict=True)]
            # The tables lie elsewhere now, and a recording would read where they were.
            self._encodings.clear()
        return self._learned[name]

    def _encode_windows(
        self, windows: Sequence[Sequence[Token]], index: int, clip_skip: int
    ) -> Generator[None, None, tuple[Tensor, Tensor | None]]:
        tokenizer = self._model.tokenizers[index]
        weighted = any(weight != 1.0 for window in windows for _, weight in window)
        places = self._places(index)
        rows = [_row([token for token, _ in window], tokenizer, places) for window in windows]
        if weighted:
            rows.append(_row([], tokenizer, places))
        hidden, pooled = yield from self._encoded(rows, index, clip_skip)
        if weighted:
            weights = torch.tensor([_row_weights(window, places) for window in windows], device=hidden.device)
            empty = hidden[-1:].float()
            hidden = ((hidden[:-1].float() - empty) * weights[..., None] + empty).to(hidden.dtype)
        # The summary of the whole is that of the first window: models were trained on one window only.
        return hidden.reshape(1, -1, hidden.shape[-1]), None if pooled is None else pooled[:1]

    def _encoded(
        self, rows: Sequence[Sequence[int]], index: int, clip_skip: int
    ) -> Generator[None, None, tuple[Tensor, Tensor | None]]:
        key = (index, clip_skip)
        contexts: list[Tensor] = []
        summaries: list[Tensor | None] = []
        for some in torch.tensor(rows, device=self._model.device).split(WINDOWS_AT_ONCE):
            if contexts:
                yield
            # A learned word of another prompt may have made the table anew since the last slice.
            if key not in self._encodings:
                self._encodings[key] = self._run(_encoding(self._model, index, clip_skip))
            with self._at_hand(index):
                context, summary = self._encodings[key](some)
            contexts.append(context.clone())
            summaries.append(None if summary is None else summary.clone())
        return torch.cat(contexts), summaries[0]


def result_of(slices: Generator[None, None, T]) -> T:
    """The result of work in slices, all of them one after another."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return cast("T", end.value)


def _row(tokens: list[int], tokenizer: Any, places: int) -> list[int]:
    row = [tokenizer.bos_token_id, *tokens, tokenizer.eos_token_id]
    return row + [tokenizer.pad_token_id] * (places - len(row))


def _row_weights(window: Sequence[Token], places: int) -> list[float]:
    weights = [1.0, *(weight for _, weight in window)]
    return weights + [1.0] * (places - len(weights))


def _encoding(model: Model, index: int, clip_skip: int) -> Encoding:
    encoder = model.text_encoders[index]
    body = getattr(encoder, "text_model", encoder)
    # Old configurations give an end mark of 2, which makes the encoder take the largest id for the end; but
    # learned words have larger ids.
    body.eos_token_id = model.tokenizers[index].eos_token_id

    def encoded(ids: Tensor) -> tuple[Tensor, Tensor | None]:
        output = encoder(input_ids=ids, output_hidden_states=True)
        if model.architecture.family == "sdxl":
            # SDXL was trained on the last but one layer, without the final norm.
            return output.hidden_states[-(clip_skip + 2)], getattr(output, "text_embeds", None)
        if clip_skip == 0:
            return output.last_hidden_state, None
        return body.final_layer_norm(output.hidden_states[-(clip_skip + 1)]), None

    return encoded


# The table outlives the call: it must not become a tensor of inference mode, which nobody may change later.
@torch.inference_mode(False)
def _extend_table(encoder: Any, vectors: Tensor) -> list[int]:
    table = encoder.get_input_embeddings()
    first = table.weight.shape[0]
    weight = torch.cat([table.weight, vectors.to(table.weight.device, table.weight.dtype)])
    table.weight = nn.Parameter(weight, requires_grad=False)
    table.num_embeddings = len(weight)
    return list(range(first, first + len(vectors)))
