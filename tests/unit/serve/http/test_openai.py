"""OpenAI's own client against a server that really listens."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from calotype.imaging.image_io import encode_image, find_record
from calotype.serve.decoding.operations import applied, recoded
from calotype.serve.request_parsing import seed_for
from calotype.spec.job import Job
from tests.unit.imaging.test_image_io import record
from tests.unit.serve.http.fake_service import StandIn, StandInKeys, png
from tests.unit.serve.http.running import Running, running


@pytest.fixture(scope="module")
def client(keyed: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="alice-key", base_url=f"{keyed.url}/v1", max_retries=0, timeout=20) as found:
        yield found


def opened(text: str | None) -> Image.Image:
    assert text
    return Image.open(io.BytesIO(base64.b64decode(text)))


def test_pictures_of_a_text(client: openai.OpenAI, keyed: Running) -> None:
    made = client.images.generate(
        prompt="a red apple", model="sd15", n=2, size="64x48", user="u-1", extra_body={"seed": 7, "steps": 3}
    )
    assert made.data
    assert [opened(one.b64_json).size for one in made.data] == [(64, 48), (64, 48)]
    assert [opened(one.b64_json).getpixel((0, 0)) for one in made.data] == [(7, 0, 0), (8, 0, 0)]
    assert made.size == "64x48"
    assert made.output_format == "png"
    assert made.safety_identifier == "u-1"
    newest = keyed.await_(keyed.service.jobs(limit=1))[0]
    assert (newest.client, newest.model) == ("alice", "sd15")
    assert (newest.request["steps"], newest.request["seed"]) == (3, 7)


def test_seeds_differ_where_none_is_given(client: openai.OpenAI, keyed: Running) -> None:
    for _ in range(2):
        client.images.generate(prompt="a red apple")
    one, other = keyed.await_(keyed.service.jobs(limit=2))
    assert one.request["seed"] != other.request["seed"]


def test_the_same_key_is_the_same_job_where_no_seed_is_given(client: openai.OpenAI) -> None:
    made = [
        client.images.generate(prompt="a red apple", extra_headers={"Idempotency-Key": key}).created
        for key in ("one", "one")
    ]
    assert len(set(made)) == 1
    seeds = {seed_for("one"), seed_for("other"), seed_for("one")}
    assert len(seeds) == 2


@pytest.mark.parametrize(("quality", "steps"), [("low", 10), ("auto", None), ("high", 40)])
def test_quality_is_steps(client: openai.OpenAI, keyed: Running, quality: Any, steps: int | None) -> None:
    """`auto` leaves them to the model."""
    client.images.generate(prompt="a red apple", quality=quality)
    assert keyed.await_(keyed.service.jobs(limit=1))[0].request.get("steps") == steps


def test_pictures_at_an_address(client: openai.OpenAI) -> None:
    made = client.images.generate(prompt="a red apple", response_format="url")
    assert made.data
    address = made.data[0].url
    assert address
    assert httpx.get(address).status_code == 401
    file = httpx.get(address, headers={"Authorization": "Bearer alice-key"})
    assert Image.open(io.BytesIO(file.content)).size == (64, 64)


@pytest.mark.parametrize("output_format", ["jpeg", "webp"])
def test_other_formats(client: openai.OpenAI, output_format: Any) -> None:
    made = client.images.generate(prompt="a red apple", output_format=output_format, output_compression=50)
    assert made.data
    assert opened(made.data[0].b64_json).format == output_format.upper()
    with pytest.raises(openai.BadRequestError, match="is not available at a url"):
        client.images.generate(prompt="a red apple", output_format=output_format, response_format="url")


def test_sides_that_a_format_cannot_have_are_refused_beforehand(
    client: openai.OpenAI, keyed: Running
) -> None:
    before = len(keyed.await_(keyed.service.jobs(limit=1000)))
    words = r"output_format: 'webp' has at most 16383 pixels a side, and the image has 16384x16; use png"
    with pytest.raises(openai.BadRequestError, match=words):
        client.images.generate(prompt="a", size="16384x16", output_format="webp")
    with pytest.raises(openai.BadRequestError, match=words):
        client.images.edit(prompt="a", image=("a.png", png(16384, 16)), output_format="webp")
    assert len(keyed.await_(keyed.service.jobs(limit=1000))) == before
    made = client.images.generate(prompt="a", size="16384x16", output_format="jpeg")
    assert made.size == "16384x16"


def test_a_stream_shows_previews_and_then_each_picture(client: openai.OpenAI) -> None:
    with client.images.generate(
        prompt="a red apple", n=2, stream=True, partial_images=3, extra_body={"steps": 8}
    ) as stream:
        told = list(stream)
    kinds = [event.type for event in told]
    assert kinds == ["image_generation.partial_image"] * 3 + ["image_generation.completed"] * 2
    assert [event.partial_image_index for event in told[:3] if hasattr(event, "partial_image_index")] == [
        0,
        1,
        2,
    ]
    assert [opened(event.b64_json).size for event in told] == [(8, 8)] * 3 + [(64, 64)] * 2
    assert told[-1].size == "64x64"


def test_previews_are_in_the_format_that_they_say(client: openai.OpenAI) -> None:
    with client.images.generate(prompt="a", output_format="jpeg", stream=True, partial_images=1) as stream:
        told = [(event.type, event.output_format, opened(event.b64_json).format) for event in stream]
    kinds = ("partial_image", "completed")
    assert told == [(f"image_generation.{kind}", "jpeg", "JPEG") for kind in kinds]


def test_a_stream_ends_with_the_error(client: openai.OpenAI) -> None:
    with (
        pytest.raises(openai.APIError, match="as was asked"),
        client.images.generate(prompt="fail internal", stream=True) as stream,
    ):
        list(stream)


def test_a_stream_ends_with_an_error_of_ours_too(
    client: openai.OpenAI, keyed: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any, **__: Any) -> bytes:
        raise RuntimeError("a secret of the service")

    monkeypatch.setattr(keyed.service, "picture", fails)
    with (
        pytest.raises(openai.APIError, match="the server's log has it under request"),
        client.images.generate(prompt="a red apple", stream=True) as stream,
    ):
        list(stream)


def test_an_edit_is_told_its_picture_and_a_mask_of_ours(client: openai.OpenAI, keyed: Running) -> None:
    image, hole = png(32, 32), Image.new("RGBA", (32, 32), (0, 0, 0, 255))
    hole.paste((0, 0, 0, 0), (8, 8, 16, 16))
    buffer = io.BytesIO()
    hole.save(buffer, "PNG")
    made = client.images.edit(image=("a.png", image), mask=("m.png", buffer.getvalue()), prompt="a hat", n=2)
    assert made.data
    assert len(made.data) == 2
    newest = keyed.await_(keyed.service.jobs(limit=1))[0]
    given, mask = keyed.service.given[newest.id]
    assert given == image
    assert mask
    painted = Image.open(io.BytesIO(mask))
    assert painted.mode == "L"
    assert (painted.getpixel((10, 10)), painted.getpixel((2, 2))) == (255, 0)


def test_an_edit_may_be_streamed_and_its_pictures_listed(client: openai.OpenAI) -> None:
    with client.images.edit(
        image=[("a.png", png())], prompt="a hat", stream=True, partial_images=1, extra_body={"strength": 0.5}
    ) as stream:
        assert [event.type for event in stream] == ["image_edit.partial_image", "image_edit.completed"]


LORAS = [{"name": "ink", "strength": 0.5}, {"name": "gold", "strength": 1.0}]


@pytest.mark.parametrize("loras", [LORAS, json.dumps(LORAS)])
def test_an_edit_may_have_loras(client: openai.OpenAI, keyed: Running, loras: object) -> None:
    client.images.edit(image=("a.png", png()), prompt="a hat", extra_body={"loras": loras})
    used = keyed.await_(keyed.service.jobs(limit=1))[0].request["loras"]
    assert [(use["name"], use["strength"]) for use in used] == [("ink", 0.5), ("gold", 1.0)]


@pytest.mark.parametrize(
    ("loras", "words"),
    [
        ([*LORAS, {"name": "moss"}], "loras: has 3 names but 2 of 'strength'"),
        ([{"name": "ink", "strength": "much"}], "loras.0.strength"),
        ([{"name": "ink", "weight": 1}], "weight: is not a known setting"),
        ("[" * 100_000, "loras: is nested more than 32 levels deep"),
        ("ink", "loras: is not valid JSON"),
        ("{}", "loras: "),
    ],
)
def test_bad_loras_of_an_edit(client: openai.OpenAI, loras: object, words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        client.images.edit(image=("a.png", png()), prompt="a hat", extra_body={"loras": loras})


def test_bad_edits_name_what_is_wrong(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="mask: has no transparency"):
        client.images.edit(image=("a.png", png()), mask=("m.png", png()), prompt="a hat")
    with pytest.raises(openai.BadRequestError, match="2 files were sent, the limit is 1"):
        client.images.edit(image=[("a.png", png()), ("b.png", png())], prompt="a hat")
    with pytest.raises(openai.BadRequestError, match="markup"):
        client.images.edit(image=("a.png", png()), markup=("m.png", png()), prompt="a hat")


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["emoji", "sd15"]
    assert client.models.retrieve("sd15").id == "sd15"
    with pytest.raises(openai.NotFoundError, match="did you mean 'sd15'"):
        client.models.retrieve("sd51")


def test_errors_are_the_clients_own(client: openai.OpenAI, keyed: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="size: 513 is not a multiple of 8") as bad:
        client.images.generate(prompt="a red apple", size="513x512")
    assert (bad.value.param, bad.value.code, bad.value.type) == (
        "size",
        "bad_request",
        "invalid_request_error",
    )
    assert bad.value.request_id
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-image-2'"):
        client.images.generate(prompt="a red apple", model="gpt-image-2")
    with pytest.raises(openai.UnprocessableEntityError, match="do not fit"):
        client.images.generate(prompt="a red apple", size="16384x16384")
    with pytest.raises(openai.InternalServerError, match=r"job-\d+: as was asked"):
        client.images.generate(prompt="fail worker_lost")
    with pytest.raises(openai.AuthenticationError, match="not known"):
        openai.OpenAI(api_key="x", base_url=f"{keyed.url}/v1", max_retries=0).images.generate(prompt="a")


def test_a_full_queue_is_a_rate_limit() -> None:
    with running(keys=StandInKeys(), service=StandIn(most_queued=0)) as full:
        asking = openai.OpenAI(api_key="bob-key", base_url=f"{full.url}/v1", max_retries=0)
        with pytest.raises(openai.RateLimitError, match="0 jobs wait, the limit is 0") as refused:
            asking.images.generate(prompt="a red apple")
        full.service.draining = True
        with pytest.raises(openai.InternalServerError, match="the deployment drains") as drains:
            asking.images.generate(prompt="a red apple")
    assert refused.value.response.headers["retry-after"] == "3"
    # Both are worth another try, which the client makes by itself.
    assert "x-should-retry" not in {**refused.value.response.headers, **drains.value.response.headers}


@pytest.mark.parametrize("prompt", ["fail worker_lost", "fail deadline", "fail internal", "hold it", "bug"])
def test_what_has_ended_is_not_asked_for_again(prompt: str) -> None:
    """The client asks twice more by itself after most errors, unless it is told not to."""
    service = Cancelling()
    with running(service=service) as found, openai.OpenAI(api_key="-", base_url=f"{found.url}/v1") as client:
        with pytest.raises((openai.InternalServerError, openai.ConflictError)):
            client.images.generate(prompt=prompt)
        assert service.asked == 1


class Cancelling(StandIn):
    """Counts what it is asked for; somebody cancels every job at once."""

    asked = 0

    async def submit(self, *asked: Any, **about: Any) -> Job:
        self.asked += 1
        job = await super().submit(*asked, **about)
        if str(job.request["prompt"]).startswith("hold"):
            await self.cancel(job.id)
        return job


@pytest.mark.parametrize("format_name", ["jpeg", "webp"])
def test_other_formats_keep_the_record(format_name: str) -> None:
    made = record()
    with Image.open(io.BytesIO(encode_image(Image.new("RGB", (16, 16)), "png", made))) as picture:
        changed = applied(picture, recoded(format_name, 80))
    with Image.open(io.BytesIO(changed)) as read:
        assert find_record(read) == made
