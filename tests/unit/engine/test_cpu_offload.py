"""Networks whose layers visit a device. A device without numbers stands in for a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from calotype.engine.cpu_offload import cpu_offload
from calotype.engine.engine import Engine
from calotype.engine.text_encoder import TextConditioner
from tests.engines import small_engine

AWAY = torch.device("meta")
"""Torch refuses to compute with numbers of two devices, so whatever stays at home is found."""


@pytest.mark.parametrize("name", ["engine", "sdxl"])
def test_text_encoders_are_away_layer_by_layer(name: str, request: pytest.FixtureRequest) -> None:
    engine: Engine = request.getfixturevalue(name)
    ids = torch.zeros(1, 77, dtype=torch.long)
    for encoder in engine.model.text_encoders:
        away: list[int] = []
        layers = [each for each in encoder.modules() if isinstance(each, nn.Linear | nn.Embedding)]

        def look(*_: object, encoder: nn.Module = encoder, away: list[int] = away) -> None:
            away.append(sum(each.is_meta for each in encoder.parameters()))

        with cpu_offload(encoder, AWAY):
            watched = [layer.register_forward_hook(look) for layer in layers]
            answer = encoder(ids.to(AWAY), output_hidden_states=True)
            for each in watched:
                each.remove()
        assert answer.last_hidden_state.device == AWAY
        assert len(away) >= len(layers)
        assert max(away) <= 2, "a layer's weight and bias"
        assert not any(each.is_meta for each in (*encoder.parameters(), *encoder.buffers()))
        assert not encoder(ids).last_hidden_state.is_meta


def test_buffers_go_with_their_layer() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.ones(2))
            self.seen: list[torch.device] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert isinstance(self.shift, torch.Tensor)
            self.seen.append(self.shift.device)
            return x + self.shift

    layer = Shifted()
    with cpu_offload(layer, AWAY):
        layer(torch.zeros(2, device=AWAY))
    layer(torch.zeros(2))
    assert layer.seen == [AWAY, torch.device("cpu")]


def test_what_was_away_is_at_home_after_an_error() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    before = list(network.parameters())
    with pytest.raises(RuntimeError), cpu_offload(network, AWAY):
        network(torch.zeros(1, 3, device=AWAY))
    assert all(one is other for one, other in zip(network.parameters(), before, strict=True))


def test_an_offloaded_encoder_gives_the_same_output_and_learns_words() -> None:
    model = small_engine("emoji").model

    def word(_: str) -> list[torch.Tensor]:
        return [torch.full((2, each.config.hidden_size), 0.1) for each in model.text_encoders]

    prompt = "a red embedding:pear"
    plain, offloaded = (TextConditioner(model, word, offload=each).encode(prompt) for each in (False, True))
    assert torch.equal(plain.context, offloaded.context)
    assert not torch.equal(plain.context, TextConditioner(model, word).encode("a red").context)
