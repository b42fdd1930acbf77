"""What clients of A1111's web UI ask, and what they read."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from PIL import Image

from calotype.serve.http.routes.a1111.sampler_names import SAMPLER_NAMES, sampler_and_schedule
from calotype.spec.constants import A1111_SCHEDULES, SAMPLERS
from calotype.spec.job import Job
from tests.unit.serve.http.fake_service import PREVIEW, png
from tests.unit.serve.http.running import Running

AS_CLIENTS_SEND_IT = {
    "prompt": "a red apple <lora:shiny:0.8>, (big:1.2)",
    "negative_prompt": "blurry",
    "seed": 11,
    "steps": 5,
    "cfg_scale": 6.5,
    "width": 64,
    "height": 48,
    "sampler_name": "DPM++ 2M Karras",
    "n_iter": 2,
    "batch_size": 2,
    "restore_faces": False,
    "tiling": False,
    "enable_hr": False,
    "hr_scale": 2,
    "subseed": -1,
    "subseed_strength": 0,
    "styles": [],
    "alwayson_scripts": {},
    "script_args": [],
    "script_name": "",
    "s_churn": 0,
    "s_noise": 1,
    "save_images": False,
    "do_not_save_samples": False,
    "override_settings": {
        "CLIP_stop_at_last_layers": 2,
        "sd_model_checkpoint": "sd15",
        "sd_vae": "Automatic",
    },
    "override_settings_restore_afterwards": True,
}


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def newest(server: Running) -> Job:
    return server.await_(server.service.jobs(limit=1))[0]


def test_what_clients_send_becomes_a_request(server: Running) -> None:
    answer = server.client.post("/sdapi/v1/txt2img", json=AS_CLIENTS_SEND_IT)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert [Image.open(io.BytesIO(base64.b64decode(one))).size for one in made["images"]] == [(64, 48)] * 4
    info = json.loads(made["info"])
    assert info["all_seeds"] == [11, 12, 13, 14]
    assert (info["seed"], info["width"], info["height"], info["steps"]) == (11, 64, 48, 5)
    assert len(info["infotexts"]) == 4
    assert "Steps: 5, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 6.5" in info["infotexts"][0]
    assert made["parameters"]["cfg_scale"] == 6.5
    job = newest(server)
    expected: dict[str, Any] = {
        "prompt": "a red apple , (big:1.2)",
        "negative_prompt": "blurry",
        "seed": 11,
        "count": 4,
        "cfg": 6.5,
        "sampler": "dpmpp_2m",
        "schedule": "a1111_karras",
        "clip_skip": 1,
        "vae": None,
        "loras": [{"name": "shiny", "strength": 0.8, "text_strength": None}],
    }
    assert {name: job.request[name] for name in expected} == expected
    assert job.model == "sd15"


def test_what_is_not_known_here_has_no_effect(server: Running) -> None:
    """As SillyTavern sends it, which tells Forge more than A1111 knows."""
    sent = {
        "prompt": "a",
        "clip_skip": 3,
        "styles": [""],
        "alwayson_scripts": {"controlnet": {"args": []}},
        "use_async": False,
        "override_settings": {
            "sd_vae": "Automatic",
            "forge_additional_modules": [],
            "filter_nsfw": False,
            "eta_noise_seed_delta": 31337,
            "sigma_min": 0,
        },
    }
    answer = server.client.post("/sdapi/v1/txt2img", json=sent)
    assert answer.status_code == 200, answer.text
    assert newest(server).request["clip_skip"] == 2
    set_ = server.client.post("/sdapi/v1/options", json={"sd_vae": "Automatic", "samples_format": "png"})
    assert set_.status_code == 200, set_.text


def test_null_is_nothing_said(server: Running) -> None:
    unsaid = ("negative_prompt", "steps", "cfg_scale", "n_iter", "override_settings", "send_images", "seed")
    answer = server.client.post("/sdapi/v1/txt2img", json={"prompt": "a hat", **dict.fromkeys(unsaid)})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["images"]) == 1
    assert newest(server).request["steps"] == 20


def test_what_a_client_leaves_out_does_not_depend_on_the_model(server: Running) -> None:
    """As in A1111: the same request means the same on every model, and its parameters say what was done."""
    answer = server.client.post("/sdapi/v1/txt2img", json={"prompt": "a hat"})
    request = newest(server).request
    made = [request[name] for name in ("steps", "cfg", "sampler", "schedule")]
    assert made == [20, 7.0, "euler", "a1111_uniform"]
    shown = answer.json()["parameters"]
    assert (shown["steps"], shown["cfg_scale"]) == (20, 7.0)


def test_minus_one_is_a_random_seed(server: Running) -> None:
    seeds = []
    for _ in range(2):
        server.client.post("/sdapi/v1/txt2img", json={"prompt": "a", "seed": -1})
        seeds.append(newest(server).request["seed"])
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"sampler_name": "Euler a"}, ("euler_ancestral", "a1111_uniform")),
        ({"sampler_index": "DPM++ SDE Karras"}, ("dpmpp_sde", "a1111_karras")),
        ({"sampler_name": "DPM++ 2M"}, ("dpmpp_2m", "a1111_karras")),
        ({"sampler_name": "DPM++ 2M SDE"}, ("dpmpp_2m_sde", "a1111_exponential")),
        ({"sampler_name": "DPM++ 3M SDE"}, ("dpmpp_3m_sde", "a1111_exponential")),
        ({"sampler_name": "DPM++ 2M", "scheduler": "SGM Uniform"}, ("dpmpp_2m", "a1111_sgm_uniform")),
        ({"sampler_name": "DPM++ 2M Align Your Steps"}, ("dpmpp_2m", "a1111_align_your_steps")),
        ({"sampler_name": "Euler a SGMUniform"}, ("euler_ancestral", "a1111_sgm_uniform")),
        ({"sampler_name": "Euler", "scheduler": "kl_optimal"}, ("euler", "a1111_kl_optimal")),
        ({"sampler_name": "Euler", "scheduler": "Automatic"}, ("euler", "a1111_uniform")),
        # A scheduler of its own counts before one that follows the sampler's name.
        (
            {"sampler_name": "DPM++ 2M SDE Karras", "scheduler": "Automatic"},
            ("dpmpp_2m_sde", "a1111_exponential"),
        ),
        ({"sampler_name": "DPM++ 2M SDE Karras", "scheduler": ""}, ("dpmpp_2m_sde", "a1111_karras")),
        ({"sampler_name": "dpmpp_2m_sde", "scheduler": "exponential"}, ("dpmpp_2m_sde", "a1111_exponential")),
        ({}, ("euler", "a1111_uniform")),
    ],
)
def test_samplers_by_their_names(server: Running, sent: dict[str, str], expected: tuple[str, str]) -> None:
    assert server.client.post("/sdapi/v1/txt2img", json={"prompt": "a", **sent}).status_code == 200
    request = newest(server).request
    assert (request["sampler"], request["schedule"]) == expected


@pytest.mark.parametrize(("sampler", "eta"), [("Euler", None), ("DPM++ 2M", None), ("Euler a", 1)])
def test_eta_is_for_samplers_that_have_one(server: Running, sampler: str, eta: float | None) -> None:
    """Clients such as webuiapi send it with every request."""
    sent = {"prompt": "a", "sampler_name": sampler, "eta": 1.0}
    assert server.client.post("/sdapi/v1/txt2img", json=sent).status_code == 200
    assert newest(server).request["eta"] == eta


def test_every_sampler_and_schedule_of_ours_has_a_name_there(server: Running) -> None:
    assert set(SAMPLER_NAMES.values()) == set(SAMPLERS)
    labels = [entry["label"] for entry in server.client.get("/sdapi/v1/schedulers").json()]
    assert {sampler_and_schedule("Euler", label)[1] for label in labels} == set(A1111_SCHEDULES)
    for entry in server.client.get("/sdapi/v1/samplers").json():
        sent = {"prompt": "a", "steps": 1, "sampler_name": entry["name"]}
        assert server.client.post("/sdapi/v1/txt2img", json=sent).status_code == 200
    for entry in server.client.get("/sdapi/v1/schedulers").json():
        sent = {"prompt": "a", "steps": 1, "scheduler": entry["label"]}
        assert server.client.post("/sdapi/v1/txt2img", json=sent).status_code == 200


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"sampler_name": "Eular a"}, "sampler_name", "did you mean 'Euler a'"),
        ({"scheduler": "Caras"}, "scheduler", "'Caras' is not known"),
        ({"scheduler": "Turbo"}, "scheduler", "'Turbo' is not known"),
        ({"s_min_uncond": 1.5}, "s_min_uncond", "is not supported"),
        ({"infotext": "a\nSteps: 9"}, "infotext", "is not supported"),
        (
            {"override_settings": {"beta_dist_alpha": 0.7}},
            "override_settings.beta_dist_alpha",
            "0.7 is not supported; use 0.6",
        ),
        ({"enable_hr": True}, "enable_hr", "is not supported"),
        ({"styles": ["x"]}, "styles", "is not supported"),
        ({"alwayson_scripts": {"ADetailer": {"args": [True]}}}, "alwayson_scripts", "is not supported"),
        ({"clip_skip": 14}, "clip_skip", "at most 13"),
        ({"steps": "5"}, "steps", "'5'"),
        ({"width": 513}, "width", "the nearest is 512"),
        ({"cfg_scale": 1000}, "cfg_scale", "at most 100"),
        ({"n_iter": 200, "batch_size": 200}, "batch_size", "at most 10000"),
        ({"prompt": "<lora:x:much>"}, "prompt", "is not a LoRA's strength"),
        ({"prompt": "<lora:../x:1>"}, "loras.0.name", "are not allowed"),
        (
            {"override_settings": {"sd_model_checkpoint": "../x"}},
            "override_settings.sd_model_checkpoint",
            "are not allowed",
        ),
    ],
)
def test_what_is_not_done_is_said(server: Running, sent: dict[str, Any], field: str, words: str) -> None:
    answer = server.client.post("/sdapi/v1/txt2img", json={"prompt": "a", **sent})
    assert answer.status_code == 400
    problem = answer.json()["error"]["problems"][0]
    assert problem["field"] == field
    assert words in problem["rule"]


def test_a_picture_from_a_picture(server: Running) -> None:
    image, mask = png(32, 32), png(32, 32, (255, 255, 255))
    sent = {
        "prompt": "a hat",
        # In lines, as mail and some libraries write it.
        "init_images": [base64.encodebytes(image).decode()],
        "mask": "data:image/png;base64," + base64_of(mask),
        "inpainting_mask_invert": 1,
        "denoising_strength": 0.4,
    }
    answer = server.client.post("/sdapi/v1/img2img", json=sent)
    assert answer.status_code == 200, answer.text
    job = newest(server)
    assert job.request["strength"] == 0.4
    given, turned = server.service.given[job.id]
    assert given == image
    assert turned
    assert Image.open(io.BytesIO(turned)).getextrema() == (0, 0)


@pytest.mark.parametrize(
    ("sent", "sharp"),
    [
        ({"mask_blur": 0}, True),
        ({"mask_blur": 4}, False),
        ({}, False),
        # The mask's edge goes down: what is blurred is across it.
        ({"mask_blur_x": 0}, True),
        ({"mask_blur_y": 0}, False),
        ({"mask_blur": None, "mask_blur_x": 0, "mask_blur_y": 0}, True),
        ({"mask_blur": 0, "mask_blur_x": 4, "mask_blur_y": 4}, True),
    ],
)
def test_a_masks_edge_is_soft(server: Running, sent: dict[str, Any], sharp: bool) -> None:
    half = Image.new("L", (32, 32))
    half.paste(255, (0, 0, 16, 32))
    buffer = io.BytesIO()
    half.save(buffer, "PNG")
    always = {"prompt": "", "init_images": [base64_of(png(32, 32))], "mask": base64_of(buffer.getvalue())}
    assert server.client.post("/sdapi/v1/img2img", json={**always, **sent}).status_code == 200
    given = server.service.given[newest(server).id][1]
    assert given
    levels = {value for _, value in Image.open(io.BytesIO(given)).getcolors() or ()}
    assert (levels == {0, 255}) == sharp


def test_progress_is_that_of_the_running_job(server: Running) -> None:
    assert server.client.get("/sdapi/v1/progress").json()["progress"] == 0
    server.client.post("/v1/jobs", json={"request": {"prompt": "hold progress", "steps": 4}})
    held = server.await_(server.service.holding("hold progress"))
    told = server.client.get("/sdapi/v1/progress").json()
    assert told["progress"] == 0.5
    assert (told["state"]["sampling_step"], told["state"]["sampling_steps"]) == (2, 4)
    assert base64.b64decode(told["current_image"]) == PREVIEW
    assert server.client.get("/sdapi/v1/progress?skip_current_image=true").json()["current_image"] is None
    assert server.client.post("/sdapi/v1/interrupt").status_code == 200
    assert server.ended(held.id) == "cancelled"


def test_models_and_options(server: Running) -> None:
    models = server.client.get("/sdapi/v1/sd-models").json()
    assert [model["title"] for model in models][:2] == ["emoji", "sd15"]
    options = server.client.get("/sdapi/v1/options").json()
    assert options["sd_model_checkpoint"] == "emoji"
    assert server.client.post("/sdapi/v1/options", json=options).status_code == 200
    refused = server.client.post("/sdapi/v1/options", json={"sd_model_checkpoint": "sd15"})
    assert refused.status_code == 400
    assert "override_settings" in refused.json()["error"]["message"]


def test_characters_that_json_writes_in_two_halves_are_whole(server: Running) -> None:
    body = json.dumps({"prompt": "a", "comments": {"apple": "\U0001f34e"}})
    assert "\\ud83c\\udf4e" in body
    answer = server.client.post(
        "/sdapi/v1/txt2img", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.json()["parameters"]["comments"] == {"apple": "🍎"}


def test_the_same_key_is_the_same_job_where_no_seed_is_given(server: Running) -> None:
    made = [
        server.client.post(
            "/sdapi/v1/txt2img", json={"prompt": "a"}, headers={"Idempotency-Key": "again"}
        ).json()
        for _ in range(2)
    ]
    assert json.loads(made[0]["info"])["job"] == json.loads(made[1]["info"])["job"]
