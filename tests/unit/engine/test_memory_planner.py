"""Memory planned before it is used: tiles when needed, refusals that name what would fit, and does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.bench.references.load import distinct
from calotype.bench.references.units import first
from calotype.core.errors import DoesNotFitError
from calotype.core.hardware import Memory
from calotype.engine import device
from calotype.engine.compile.region import Region
from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.engine.memory_planner import (
    HEADROOM,
    MAX_AT_ONCE,
    UNJOINED_FACTOR,
    WORKSPACE_BYTES,
    Extras,
    MemoryBudget,
    MemoryDemand,
    decode_bytes,
    decoder_bytes,
    fp8_convolution_bytes,
    most_pixels,
    onednn_conv_bytes,
    plan_memory,
    predicted_bytes,
    prompt_bytes,
    quantized_bytes,
    unet_bytes,
    weight_bytes,
    winograd_bytes,
)
from calotype.engine.modules.int8_linear import Int8Linear
from calotype.engine.modules.onednn_conv import pack_weights
from calotype.engine.modules.ops import Operations
from calotype.engine.modules.vae_decoder import Decoder
from calotype.engine.presets import PRESETS
from calotype.mig.performance_model import CONTEXT_BYTES
from calotype.models import catalogue
from calotype.spec.generate_request import GenerateRequest
from tests.engines import latents_of, small_engine
from tests.peak_memory import Living

GIB = 2**30
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SDXL = catalogue.architecture("sdxl")
LOW_MEMORY = Extras(decoder_bytes(SDXL, 2), decoder_dtype_bytes=2, prompt_bytes=prompt_bytes(SDXL, 2))
"""Of the preset on a GPU."""
MEASURED = [
    row
    for row in json.loads((BENCHMARKS / "2026-11-15-memory" / "results.json").read_text())["rows"].values()
    if row["point"]["preset"] == "low-memory"
]


def budget(gib: float) -> MemoryBudget:
    return MemoryBudget(int(gib * GIB), "GPU memory", dtype_bytes=2, vae_dtype_bytes=4)


def refusal(gib: float, demand: MemoryDemand, extras: Extras | None = None) -> str:
    with pytest.raises(DoesNotFitError) as caught:
        plan_memory(SDXL, budget(gib), demand, extras)
    return str(caught.value)


@pytest.mark.parametrize("gib", [0.6, 1, 2.5, 6, 11.3])
@pytest.mark.parametrize("sides", [(1, 1), (1, 4), (16, 1)])
def test_what_is_refused_at_the_door_never_fits_and_not_much_else_is_let_in(
    gib: float, sides: tuple[int, int]
) -> None:
    pixels = most_pixels(SDXL, budget(gib))
    unit = (pixels / (sides[0] * sides[1])) ** 0.5
    width, height = (ceil(1.01 * unit * side / 8) * 8 for side in sides)
    refusal(gib, MemoryDemand(width, height, guided=False, tile_vae=True))
    if sides == (1, 1) and gib > 1:
        side = int((0.9 * pixels) ** 0.5) // 8 * 8
        assert plan_memory(SDXL, budget(gib), MemoryDemand(side, side, guided=False)).batch_size == 1


@pytest.mark.parametrize("gib", [0.6, 1, 2.5, 6, 11.3])
@pytest.mark.parametrize(
    "demand",
    [
        MemoryDemand(16384, 16384),
        MemoryDemand(16384, 12000, guided=False),
        MemoryDemand(12000, 16384),
        MemoryDemand(16384, 7200),
        MemoryDemand(4096, 4096, tile_vae=False),
        MemoryDemand(16384, 16384, tile_vae=True),
    ],
)
def test_the_largest_that_is_named_fits_and_a_little_more_does_not(gib: float, demand: MemoryDemand) -> None:
    message = refusal(gib, demand)
    named = re.search(r"the largest image of this aspect ratio that fits is (\d+)×(\d+)$", message)
    assert named, message
    fits = replace(demand, width=int(named[1]), height=int(named[2]))
    assert plan_memory(SDXL, budget(gib), fits).peak_bytes <= budget(gib).usable_bytes
    assert fits.width / fits.height == pytest.approx(demand.width / demand.height, rel=0.1)
    refusal(gib, replace(fits, width=fits.width + 16, height=fits.height + 16))


def test_a_very_long_picture_keeps_its_least_height() -> None:
    message = refusal(0.3, MemoryDemand(16384, 16))
    assert re.search(r"fits is \d+×16$", message), message


def test_a_refusal_says_what_is_needed_and_what_there_is() -> None:
    message = refusal(4, MemoryDemand(8192, 8192))
    assert re.match(
        r"8192×8192 needs about \d+\.\d GiB, 3\.5 GiB of GPU memory can be used; the largest", message
    )


def test_without_any_memory_that_is_said() -> None:
    assert "not even the smallest image of this aspect ratio fits" in refusal(0.2, MemoryDemand(512, 512))


def test_a_large_picture_in_little_memory_is_decoded_in_tiles() -> None:
    roomy, tight = (
        plan_memory(SDXL, budget(40), MemoryDemand(2048, 2048)),
        plan_memory(SDXL, budget(8), MemoryDemand(2048, 2048)),
    )
    assert not roomy.tiled
    assert tight.tiled
    assert tight.peak_bytes < roomy.peak_bytes


@pytest.mark.parametrize("gib", [8, 12, 16])
@pytest.mark.parametrize("extras", [Extras(), Extras(graphed=True), Extras(activations=1.7)])
def test_a_picture_smaller_than_one_that_fits_does_too(gib: float, extras: Extras) -> None:
    for side in range(2304, 1024, -64):
        assert (
            plan_memory(SDXL, budget(gib), MemoryDemand(side, side), extras).peak_bytes
            <= budget(gib).usable_bytes
        )


def test_tiles_make_room_for_the_batch_that_is_asked_for() -> None:
    usable, asked = budget(16).usable_bytes, MemoryDemand(1536, 1536, count=8, batch_size=8)
    whole = plan_memory(SDXL, budget(100), asked, Extras(graphed=True))
    assert not whole.tiled
    assert whole.peak_bytes > usable
    found = plan_memory(SDXL, budget(16), asked, Extras(graphed=True))
    assert (found.batch_size, found.tiled) == (8, True)


def test_tiles_can_be_asked_for_and_refused() -> None:
    assert plan_memory(SDXL, budget(40), MemoryDemand(2048, 2048, tile_vae=True)).tiled
    assert "2048×2048 needs about" in refusal(8, MemoryDemand(2048, 2048, tile_vae=False))
    assert "without tiles" in refusal(8, MemoryDemand(2048, 2048, tile_vae=False))


@pytest.mark.parametrize("gib", [4, 10, 24])
def test_the_largest_batch_that_is_named_fits_and_one_more_does_not(gib: float) -> None:
    demand = MemoryDemand(1024, 1024, count=10_000, batch_size=5000)
    named = re.search(r"batch size 5000 .* the largest batch that fits is (\d+)$", refusal(gib, demand))
    assert named
    largest = int(named[1])
    assert plan_memory(SDXL, budget(gib), replace(demand, batch_size=largest)).batch_size == largest
    refusal(gib, replace(demand, batch_size=largest + 1))


def test_a_batch_nobody_chose_is_what_fits() -> None:
    assert plan_memory(SDXL, budget(100), MemoryDemand(512, 512, count=100)).batch_size == MAX_AT_ONCE
    assert plan_memory(SDXL, budget(100), MemoryDemand(512, 512, count=3)).batch_size == 3
    assert 1 <= plan_memory(SDXL, budget(6), MemoryDemand(1536, 1536, count=100)).batch_size < MAX_AT_ONCE


def test_a_batch_larger_than_the_count_is_the_count() -> None:
    assert plan_memory(SDXL, budget(6), MemoryDemand(1024, 1024, count=1, batch_size=1000)).batch_size == 1


def test_guidance_doubles_the_rows() -> None:
    assert unet_bytes(SDXL, 2, 128, 128, 2) == pytest.approx(2 * unet_bytes(SDXL, 1, 128, 128, 2), abs=1)
    unguided = plan_memory(SDXL, budget(24), MemoryDemand(1024, 1024, guided=False))
    assert unguided.peak_bytes <= plan_memory(SDXL, budget(24), MemoryDemand(1024, 1024)).peak_bytes


def test_a_decode_grows_with_the_picture_and_the_precision() -> None:
    assert decode_bytes(SDXL, 1024, 1024, 4) > 3.5 * decode_bytes(SDXL, 512, 512, 4)
    assert decode_bytes(SDXL, 512, 512, 4) == 2 * decode_bytes(SDXL, 512, 512, 2)


class TestOnAnEngine:
    """The engine asks the machine and acts on the plan."""

    @pytest.fixture
    def little_memory(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """As much as decoding 640×640 in one piece takes, and not a byte more."""
        needed = decode_bytes(engine.model.architecture, 640, 640, 4)
        free = int((needed + WORKSPACE_BYTES) / HEADROOM)
        monkeypatch.setattr(device, "read_memory", lambda: Memory(free, free, None))

    @pytest.mark.usefixtures("little_memory")
    def test_what_cannot_fit_is_refused_before_anything_is_done(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine, "begin", None)
        with pytest.raises(DoesNotFitError, match=r"4096×4096 needs about .* of main memory can be used"):
            engine.generate("an apple", width=4096, height=4096)
        with pytest.raises(DoesNotFitError, match=r"batch size 500 at 128×128 .* the largest batch that"):
            engine.generate("an apple", width=128, height=128, count=1000, batch_size=500)

    @pytest.mark.usefixtures("little_memory")
    def test_tiles_are_chosen_and_noted(self, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")

        def tiled(side: int) -> bool:
            values = {"prompt": "an apple", "width": side, "height": side}
            return engine.plan_memory(engine.resolve_defaults(GenerateRequest.parse(values))).tiled

        assert not tiled(632)
        assert tiled(648)
        assert "a whole decode of 648×648 would not fit" in caplog.text

    def test_a_machine_that_does_not_tell_is_tried(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(device, "read_memory", lambda: Memory(None, None, None))
        request = engine.resolve_defaults(GenerateRequest.parse({"prompt": "an apple"}))
        assert engine.plan_memory(request).batch_size == 1


class TestWhatPassesTake:
    """Estimates are what is really made."""

    def test_weights_in_eight_bits(self) -> None:
        engine = small_engine("sdxl", preset="int8")
        latents_of(engine, width=128, height=128, steps=1)
        told: list[Any] = engine._networks.unet._on_change  # type: ignore[attr-defined]
        [linear] = [each.__self__ for each in told if isinstance(each.__self__, Int8Linear)]
        made = [weight.quantised for weight in linear._weights.values()]
        taken = sum(each.values.nbytes + each.scale.nbytes for each in made)
        assert quantized_bytes(engine.model.architecture) == taken

    def test_convolutions_in_eight_bits(self) -> None:
        passes = "passes:own_forward+channels_last+fused_norms+fp8_convolutions"
        engine = small_engine("sdxl", preset=passes)
        latents_of(engine, width=64, height=64, steps=1)
        refresh, *_ = engine._networks.unet._on_change  # type: ignore[attr-defined]
        made = refresh.__self__._weights.values()
        taken = sum(each.values.nbytes + each.scale.nbytes for each in made)
        assert fp8_convolution_bytes(engine.model.architecture) == taken > 0
        assert engine._networks.extras.resident_bytes == taken

    def test_weights_at_winograds_points(self) -> None:
        engine = small_engine("emoji", preset="passes:own_forward+own_decoder+channels_last+winograd")
        engine.generate("a red apple", width=64, height=64, steps=1)
        decoder = engine._networks.decode._made[engine.model.vae]._module  # type: ignore[attr-defined]
        buffers = [*engine.model.unet.named_buffers(), *decoder.named_buffers()]
        taken = sum(each.nbytes for name, each in buffers if name.endswith("winograd"))
        assert winograd_bytes(engine.model.architecture) == taken > 0

    def test_kernels_as_onednn_reads_them(self) -> None:
        engine = small_engine(
            "emoji", preset="passes:own_forward+channels_last+wide_products+wide_convolutions"
        )
        unet = engine.model.unet
        region = Region("unet", unet, unet.forward)
        ours = pack_weights(region)
        opaque = sum(4 * each.numel() for each in ours if each.is_mkldnn)
        at_points = sum(each.nbytes for _, each in unet.named_buffers())
        assert at_points > 0
        assert onednn_conv_bytes(engine.model.architecture) == opaque + at_points
        assert engine._networks.extras.resident_bytes == opaque + at_points

    def test_keys_and_values_of_a_long_prompt(self) -> None:
        engine = small_engine("sdxl", preset="fast")

        def predicted(**knobs: Any) -> int:
            return engine.plan_memory(
                engine.resolve_defaults(GenerateRequest.parse({"prompt": "an apple", **knobs}))
            ).peak_bytes

        long = "a red apple " * 100
        windows = engine.encode(long).context.shape[1] // 77
        more = 2 * (windows - 1) * prompt_bytes(engine.model.architecture, 4)
        assert windows > 3
        assert predicted(prompt=long) == predicted() + more
        # The shorter prompt is made as long as the longer.
        assert predicted(negative_prompt=long) == predicted(prompt=long, negative_prompt=long)

    def test_a_decoder_of_our_own(self) -> None:
        model = small_engine("emoji").model
        parts = (model.vae.decoder, model.vae.post_quant_conv)
        taken = sum(weight.nbytes for part in parts for weight in part.parameters())
        assert decoder_bytes(model.architecture, 4) == taken

    def test_a_decode_on_a_cpu(self) -> None:
        """Of 512², where attention's scores take nearly as much as the largest pictures do later."""
        model = load("emoji", device="cpu").model
        decode = Decoder(model.vae, Operations(), torch.float32)
        with torch.inference_mode(), Living() as living:
            decode(torch.zeros(1, 4, 128, 128))
        planned = UNJOINED_FACTOR * decode_bytes(model.architecture, 512, 512, 4)
        assert 0.8 * planned < living.most < planned

    def test_sdxl(self) -> None:
        # Its transformers have 2.0 of the UNet's 2.6 milliard weights.
        assert quantized_bytes(SDXL) == pytest.approx(2.0e9, rel=0.1)
        assert winograd_bytes(SDXL) < 0.5 * GIB

    def test_resident_bytes_leave_less_for_pictures(self) -> None:
        demand = MemoryDemand(1024, 1024, count=1000, batch_size=None, most_at_once=1000)
        usual = plan_memory(SDXL, budget(24), demand)
        less = plan_memory(SDXL, budget(24), demand, Extras(resident_bytes=8 * GIB))
        same = plan_memory(SDXL, budget(24 - 8 / HEADROOM), demand)
        assert less.batch_size == same.batch_size < usual.batch_size
        assert less.peak_bytes == same.peak_bytes + 8 * GIB
        message = refusal(6, MemoryDemand(2048, 2048), Extras(resident_bytes=5 * GIB))
        assert "0.4 GiB of GPU memory can be used" in message

    def test_a_graph_keeps_its_activations_while_a_picture_is_decoded(self) -> None:
        usual, graphed = plan_memory(SDXL, budget(40), MemoryDemand(1024, 1024)), Extras(graphed=True)
        found = plan_memory(SDXL, budget(40), MemoryDemand(1024, 1024), graphed)
        decode = decode_bytes(SDXL, 1024, 1024, 4)
        assert usual.peak_bytes == decode
        assert decode < found.peak_bytes < 2 * decode
        named = re.search(
            r"the largest image .* is (\d+)×(\d+)$", refusal(6, MemoryDemand(4096, 4096), graphed)
        )
        assert named
        fits = MemoryDemand(int(named[1]), int(named[2]))
        assert plan_memory(SDXL, budget(6), fits, graphed).peak_bytes <= budget(6).usable_bytes
        refusal(6, replace(fits, width=fits.width + 16, height=fits.height + 16), graphed)

    def test_prompts_kept_for_every_row_leave_room_for_fewer_pictures(self) -> None:
        each = prompt_bytes(SDXL, 2)
        assert each == pytest.approx(25.6e6, rel=0.01), "77 tokens, keys and values, 70 layers"
        many = MemoryDemand(512, 512, count=1000, most_at_once=1000)
        usual, fewer = (
            plan_memory(SDXL, budget(24), many),
            plan_memory(SDXL, budget(24), many, Extras(prompt_bytes=each)),
        )
        assert fewer.batch_size < usual.batch_size
        assert fewer.peak_bytes <= budget(24).usable_bytes
        with_one_more = replace(many, count=fewer.batch_size + 1, batch_size=fewer.batch_size + 1)
        assert f"largest batch that fits is {fewer.batch_size}" in refusal(
            24, with_one_more, Extras(prompt_bytes=each)
        )

    def test_our_decoder_is_planned_for_in_its_own_precision(self) -> None:
        # SDXL's autoencoder is in fp32 beside a UNet in fp16, our decoder is not.
        ours = Extras(decoder_dtype_bytes=2)
        assert plan_memory(SDXL, budget(40), MemoryDemand(1024, 1024), ours).peak_bytes == decode_bytes(
            SDXL, 1024, 1024, 2
        )
        given = plan_memory(SDXL, budget(40), MemoryDemand(1024, 1024, encodes=True), ours)
        assert given.peak_bytes == decode_bytes(SDXL, 1024, 1024, 4)


class TestLowMemory:
    """The preset for small cards, by its estimate."""

    def test_its_networks_say_what_is_planned_with(self) -> None:
        engine = small_engine("sdxl", preset="low-memory")
        networks, made = engine._networks, decoder_bytes(engine.model.architecture, 4)
        kept = prompt_bytes(engine.model.architecture, 4)
        assert networks.extras == Extras(
            resident_bytes=made, activations=UNJOINED_FACTOR, decoder_dtype_bytes=4, prompt_bytes=kept
        )
        assert "text_aside" in {one.name for one in PRESETS["low-memory"]}

    def test_weights_are_what_a_model_has(self, sdxl: Engine) -> None:
        model = sdxl.model
        assert weight_bytes(model.architecture, 4, 4) == model.weight_bytes
        text = sum(p.nbytes for encoder in model.text_encoders for p in encoder.parameters())
        assert weight_bytes(model.architecture, 4, 4, text_aside=True) == model.weight_bytes - text

    @pytest.mark.parametrize(
        "entry",
        [e for e in distinct() if e.source == "comfyui" and first(e, "peak_memory")],
        ids=lambda e: e.id,
    )
    def test_no_row_of_the_published_table_is_exceeded(self, entry: Any) -> None:
        asked, published = entry.settings, first(entry, "peak_memory")
        assert published is not None
        assert published.unit == "GB"
        demand = MemoryDemand(asked.width, asked.height, asked.batch, batch_size=asked.batch, tile_vae=False)
        predicted = predicted_bytes(SDXL, budget(1000), demand, LOW_MEMORY, text_aside=True)
        # The figure is of the whole card, where a process takes something before it has done anything.
        assert predicted + CONTEXT_BYTES <= published.value * 1e9

    @pytest.mark.parametrize(
        "row", MEASURED, ids=lambda row: f"{row['point']['width']}x{row['point']['batch']}"
    )
    def test_what_was_measured_is_a_little_less_than_the_estimate(self, row: Any) -> None:
        point = row["point"]
        demand = MemoryDemand(
            point["width"], point["height"], point["batch"], batch_size=point["batch"], tile_vae=False
        )
        predicted = predicted_bytes(SDXL, budget(1000), demand, LOW_MEMORY, text_aside=True)
        assert 0.9 * predicted <= row["allocated_bytes"] <= predicted
