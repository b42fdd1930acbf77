"""Every knob at its limits: what is refused, in which words, and that everything wrong is said at once."""

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from calotype.core.errors import RequestError
from calotype.sampling import SAMPLERS, SCHEDULES
from calotype.spec import constants
from calotype.spec.generate_request import MAX_PROMPT_LENGTH, MAX_SEED, GenerateRequest

DIGEST = "0" * 64
PICTURE = {"path": "photo.png", "sha256": DIGEST}


def problems(**knobs: Any) -> dict[str, str]:
    """Field → message of everything wrong with a request."""
    with pytest.raises(RequestError) as caught:
        GenerateRequest.parse({"prompt": "an apple", **knobs})
    return {problem.field: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("knob", "value", "says"),
    [
        ("width", 513, "513 is not a multiple of 8 from 16 to 16384; the nearest is 512"),
        ("width", 517, "the nearest is 520"),
        ("width", -1, "the nearest is 16"),
        ("width", 0, "the nearest is 16"),
        ("width", 100_000, "100000 is not a multiple of 8 from 16 to 16384; the nearest is 16384"),
        ("width", math.nan, "nan: input should be a valid integer"),
        ("width", "512", "'512': input should be a valid integer"),
        ("width", 512.0, "512.0: input should be a valid integer"),
        ("width", True, "True: input should be a valid integer"),
        ("height", 8, "the nearest is 16"),
        ("steps", 0, "0 is out of range; it must be at least 1"),
        ("steps", 10**9, "1000000000 is out of range; it must be at most 1000"),
        ("seed", -1, "must be at least 0"),
        ("seed", 2**64, "18446744073709551616 is out of range; it must be at most 18446744073709551615"),
        ("seed", 1.5, "1.5: input should be a valid integer"),
        ("count", 0, "must be at least 1"),
        ("count", 10**6, "1000000 is out of range; it must be at most 10000"),
        ("cfg", math.inf, "inf is not a finite number"),
        ("cfg", -0.1, "must be at least 0"),
        ("cfg", "7", "'7': input should be a valid number"),
        ("eta", math.nan, "nan is not a finite number"),
        ("eta", 1.5, "must be at most 1"),
        ("clip_skip", -1, "must be at least 0"),
        ("strength", 0, "must be at least 0.01"),
        ("strength", 1.01, "must be at most 1"),
        ("tile_vae", "yes", "input should be a valid boolean"),
        ("prompt", None, "input should be a valid string"),
        ("prompt", "a\0b", "holds a NUL character at position 1; remove it"),
        ("prompt", "ab\ud800", "holds half a character at position 2; remove it"),
        ("negative_prompt", "\0", "holds a NUL character at position 0"),
        ("image", "photo.png", "input should be a valid dictionary"),
        ("loras", [{"name": "a"}] * 65, "at most 64"),
        ("loras", "style", "input should be a valid tuple"),
    ],
)
def test_a_bad_value_is_refused_with_the_rule(knob: str, value: object, says: str) -> None:
    assert says in problems(**{knob: value, **({"image": PICTURE} if knob == "strength" else {})})[knob]


@pytest.mark.parametrize(
    ("knobs", "field", "says"),
    [
        ({"sampler": "eulr_ancestral"}, "sampler", "did you mean 'euler_ancestral'"),
        ({"schedule": "karas"}, "schedule", "did you mean 'karras'"),
        ({"stpes": 5}, "stpes", "did you mean 'steps'"),
        ({"micro": {"crop_topleft": [0, 0]}}, "micro.crop_topleft", "did you mean 'crop_top_left'?"),
        ({"loras": [{"name": "a", "strenght": 1}]}, "loras.0.strenght", "did you mean 'strength'"),
        ({"loras": [{"name": "a"}, {"name": "b", "strength": 11}]}, "loras.1.strength", "must be at most 10"),
        ({"micro": {"original_size": [0, 5]}}, "micro.original_size.0", "must be at least 1"),
        ({"micro": {"original_size": [5]}}, "micro.original_size.1", "is required"),
        ({"image": {**PICTURE, "sha256": "abc"}}, "image.sha256", "should match pattern"),
    ],
)
def test_a_name_that_is_not_known_gets_the_nearest(knobs: dict[str, Any], field: str, says: str) -> None:
    assert says in problems(**knobs)[field]


def test_enormous_values_are_refused_like_others() -> None:
    found = problems(prompt="x" * 10_000_000, sampler="q" * 10_000_000, width=10**5000)
    assert found["prompt"] == f"is 10000000 characters long, the limit is {MAX_PROMPT_LENGTH}"
    assert "known: ddim, ddpm, " in found["sampler"]
    assert found["width"].startswith("an integer of 16610 bits is not a multiple of 8")


def test_a_missing_prompt_is_named() -> None:
    with pytest.raises(RequestError, match="prompt: is required"):
        GenerateRequest.parse({})


def test_everything_wrong_is_reported_at_once() -> None:
    found = problems(width=513, steps=0, sampler="eulr", stpes=1, mask=PICTURE, strength=0.5)
    assert set(found) == {"width", "steps", "sampler", "stpes", "mask", "strength"}


@pytest.mark.parametrize("knobs", [{"mask": PICTURE}, {"strength": 0.5}, {"mask": PICTURE, "strength": 0.5}])
def test_mask_and_strength_need_an_image(knobs: dict[str, Any]) -> None:
    found = problems(**knobs)
    assert set(found) == set(knobs)
    assert all("give `image` too" in message for message in found.values())
    assert GenerateRequest.parse({"prompt": "x", "image": PICTURE, **knobs}).image is not None


def test_built_directly_a_contradiction_is_refused_too() -> None:
    with pytest.raises(ValidationError, match="a mask needs the image"):
        GenerateRequest.model_validate({"prompt": "x", "mask": PICTURE})


def test_what_is_reported_stays_small_and_fits_json() -> None:
    """A server repeats the problems to whoever sent the request."""
    with pytest.raises(RequestError) as caught:
        GenerateRequest.parse({"prompt": "x" * 10**7, "k" * 10**6: 1, "cfg": math.nan, "seed": 10**4000})
    assert len(str(caught.value)) < 2000
    told = json.dumps([vars(problem) for problem in caught.value.problems], allow_nan=False)
    assert len(told) < 3000


def test_limits_themselves_are_allowed() -> None:
    widest = GenerateRequest.parse(
        {"prompt": "x" * MAX_PROMPT_LENGTH, "width": 16, "height": 16384, "steps": 1000, "seed": MAX_SEED}
    )
    assert (widest.width, widest.height) == (16, 16384)


def test_a_request_cannot_be_changed() -> None:
    request = GenerateRequest.parse({"prompt": "x"})
    with pytest.raises(ValidationError, match="frozen"):
        request.steps = 5  # type: ignore[misc]  # the point of the test
    assert request.with_changes(steps=5).steps == 5
    assert request.steps == 20


def test_changes_are_checked() -> None:
    with pytest.raises(RequestError, match="steps: 0 is out of range"):
        GenerateRequest.parse({"prompt": "x"}).with_changes(steps=0)


def test_through_json_and_back_it_is_the_same_request() -> None:
    request = GenerateRequest.parse(
        {
            "prompt": "ein (Apfel:1.2) 🍎 “quoted”\n\\(",
            "negative_prompt": "",
            "width": 64,
            "cfg": 3,
            "seed": MAX_SEED,
            "loras": [{"name": "style", "strength": 0.5}, {"name": "b", "text_strength": -1}],
            "image": PICTURE,
            "mask": PICTURE,
            "strength": 0.3,
            "micro": {"original_size": [1023, 769], "crop_top_left": [3, 0]},
        }
    )
    again = GenerateRequest.parse(json.loads(json.dumps(request.as_dict())))
    assert again == request
    assert again.micro.original_size == (1023, 769)


def test_a_request_writes_its_defaults_down() -> None:
    settled = GenerateRequest.parse({"prompt": "x"}).settled()
    assert settled.as_dict().keys() == GenerateRequest.model_fields.keys()
    assert (settled.steps, settled.cfg, settled.sampler, settled.schedule) == (20, 7.5, "dpmpp_2m", "karras")


def test_what_the_model_decides_is_left_to_it_however_far_a_request_travels() -> None:
    """A client's request goes through a queue and to a worker as JSON before the model is known."""
    request = GenerateRequest.parse({"prompt": "x", "cfg": 7.5}).with_changes(seed=3)
    travelled = GenerateRequest.parse(json.loads(json.dumps(request.as_dict())))
    settled = travelled.settled({"steps": 4, "cfg": 1.0, "sampler": "lcm", "schedule": "trailing"})
    # The value that was given is kept although it is the usual one.
    assert (settled.steps, settled.cfg, settled.sampler, settled.schedule) == (4, 7.5, "lcm", "trailing")
    # What is settled once stays so.
    assert settled.settled({"steps": 50}) == settled


def test_seeds_count_up_and_around() -> None:
    assert GenerateRequest.parse({"prompt": "x", "seed": 7, "count": 3}).seeds() == [7, 8, 9]
    assert GenerateRequest.parse({"prompt": "x", "seed": MAX_SEED, "count": 2}).seeds() == [
        MAX_SEED,
        0,
    ]


def test_every_field_says_what_it_is_for_or_is_plain() -> None:
    undescribed = {name for name, field in GenerateRequest.model_fields.items() if not field.description}
    assert undescribed == {"loras", "micro"}


def test_names_are_those_that_have_code_behind_them() -> None:
    assert sorted(constants.SAMPLERS) == sorted(SAMPLERS)
    assert sorted(constants.SCHEDULES) == sorted(SCHEDULES)
