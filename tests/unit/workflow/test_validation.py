"""What is wrong with a graph, all of it at once and in the contract's form."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest

from calotype.workflow.node_api import INT, LATENT, Input, NodeDef, Output
from calotype.workflow.registry import Registry
from calotype.workflow.validation import MAX_SUGGESTIONS, Validation, validate
from tests.unit.workflow.small_nodes import NODES, REGISTRY, Names, Prompt, node, usual


def checked(prompt: object, **how: Any) -> Validation:
    return validate(prompt, REGISTRY, Names(), **how)


def faults(prompt: object, name: str) -> list[tuple[str, str]]:
    return [(one["type"], one["details"]) for one in checked(prompt).node_errors[name]["errors"]]


def changed(name: str, /, **inputs: Any) -> Prompt:
    prompt = usual()
    prompt[name]["inputs"] |= inputs
    return prompt


def test_the_usual_graph_is_sound() -> None:
    seen = checked(usual())
    assert seen.sound
    assert seen.outputs == ("9",)
    assert seen.graph["3"].inputs["cfg"] == 8.0


def test_every_problem_is_told_at_once_in_the_form_clients_read() -> None:
    prompt = usual()
    prompt["4"]["inputs"]["name"] = "sdxl_bass.safetensors"
    prompt["3"]["inputs"] |= {
        "steps": 0,
        "cfg": 101,
        "seed": "many",
        "sampler": "eular",
        "positive": ["4", 0],
    }
    del prompt["3"]["inputs"]["model"]
    seen = checked(prompt)
    assert seen.outputs == ()
    body = seen.as_dict()
    assert set(body) == {"error", "node_errors"}
    assert set(body["error"]) == {"type", "message", "details", "extra_info"}
    assert body["error"]["type"] == "prompt_outputs_failed_validation"
    assert set(body["node_errors"]) == {"3", "4"}
    sampler = body["node_errors"]["3"]
    assert (sampler["class_type"], sampler["dependent_outputs"]) == ("Sampler", ["9"])
    assert [one["type"] for one in sampler["errors"]] == [
        "required_input_missing",
        "return_type_mismatch",
        "invalid_input_type",
        "value_smaller_than_min",
        "value_bigger_than_max",
        "value_not_in_list",
    ]
    for one in sampler["errors"]:
        assert set(one) == {"type", "message", "details", "extra_info"}
        assert one["extra_info"]["input_name"] in one["details"]
    assert sampler["errors"][3]["extra_info"]["received_value"] == 0
    assert sampler["errors"][3]["extra_info"]["input_config"][1]["min"] == 1


def test_a_missing_model_names_the_nearest() -> None:
    ((kind, details),) = faults(changed("4", name="sdxl_bass.safetensors"), "4")
    assert kind == "value_not_in_list"
    assert "did you mean 'sdxl_base.safetensors'" in details
    ((_, details),) = faults(changed("4", name="dream.safetensor"), "4")
    assert "did you mean 'sd15/dream.safetensors'" in details


def test_an_unknown_node_names_the_nearest_and_nothing_runs() -> None:
    prompt = {**usual(), "12": node("Samplr"), "13": node("Sav", latent=["3", 0])}
    seen = checked(prompt)
    assert seen.error is not None
    assert seen.error["type"] == "invalid_prompt"
    assert seen.outputs == ()
    assert "did you mean 'Sampler'" in seen.node_errors["12"]["errors"][0]["details"]
    assert "did you mean 'Save'" in seen.node_errors["13"]["errors"][0]["details"]
    assert seen.node_errors["12"]["class_type"] == "Samplr"


@pytest.mark.parametrize("prompt", [None, [], {}, "graph", 5])
def test_no_graph_at_all(prompt: object) -> None:
    seen = checked(prompt)
    assert seen.error is not None
    assert seen.error["type"] == "invalid_prompt"


def test_what_is_no_node_is_told_beside_the_rest() -> None:
    prompt = {**changed("3", steps=0), "5": 7, "7": {"inputs": {}}, "8": {"class_type": "Save", "inputs": []}}
    seen = checked(prompt)
    assert set(seen.node_errors) == {"3", "5", "7", "8"}
    assert "class_type" in seen.node_errors["7"]["errors"][0]["details"]


def test_a_graph_without_outputs() -> None:
    prompt = usual()
    del prompt["9"]
    seen = checked(prompt)
    assert seen.error is not None
    assert seen.error["type"] == "prompt_no_outputs"
    assert "Save" in seen.error["details"]


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (["99", 0], "not in the graph"),
        (["4", 2], "0 MODEL, 1 CLIP"),
        (["4"], "is not a link"),
        (["4", -1], "is not a link"),
        (["4", "0"], "is not a link"),
        (["4", True], "is not a link"),
        ([{}, 0], "is not a link"),
        ("emoji", "is not a link"),
    ],
)
def test_links_that_lead_nowhere(link: object, words: str) -> None:
    ((kind, details),) = faults(changed("3", model=link), "3")
    assert kind == "bad_linked_input"
    assert details.startswith("model: ")
    assert words in details


def test_node_ids_may_be_numbers_in_links() -> None:
    assert checked(changed("3", model=[4, 0])).sound


def test_a_cycle_is_shown_and_ends() -> None:
    prompt = {
        **usual(),
        "a": node("Sampler", model=["4", 0], positive=["6", 0], latent=["b", 0]),
        "b": node("Sampler", model=["4", 0], positive=["6", 0], latent=["a", 0]),
        "own": node("Sampler", model=["4", 0], positive=["6", 0], latent=["own", 0]),
        "save": node("Save", latent=["a", 0]),
        "save own": node("Save", latent=["own", 0]),
    }
    seen = checked(prompt)
    assert seen.outputs == ("9",)
    assert seen.error is None
    (one,) = seen.node_errors["b"]["errors"]
    assert one["type"] == "dependency_cycle"
    assert "b ← a ← b" in one["details"]
    assert seen.node_errors["b"]["dependent_outputs"] == ["save"]
    assert seen.node_errors["own"]["dependent_outputs"] == ["save own"]


def test_a_long_cycle_is_shown_in_short() -> None:
    prompt = {str(i): node("Sampler", latent=[str((i + 1) % 3000), 0]) for i in range(3000)}
    seen = checked({**prompt, "s": node("Save", latent=["0", 0])})
    details = seen.node_errors["2999"]["errors"][-1]["details"]
    assert "2999 ← 0 ← 1" in details
    assert len(details) < 200


def test_sound_outputs_may_run_when_others_may_not() -> None:
    prompt = {**usual(), "10": node("Save", latent=["11", 0]), "11": node("Picture", image="dog.png")}
    seen = checked(prompt)
    assert (seen.outputs, seen.error) == (("9",), None)
    assert seen.node_errors["11"]["dependent_outputs"] == ["10"]
    assert not seen.sound


def test_only_what_is_asked_for_is_checked() -> None:
    prompt = {**usual(), "10": node("Save", latent=["11", 0]), "11": node("Picture", image="dog.png")}
    seen = checked(prompt, only=["9"])
    assert seen.sound
    assert set(seen.graph) == {"3", "4", "6", "9"}
    assert checked(prompt, only=["6"]).outputs == ("6",)
    missing = checked(prompt, only=["77"])
    assert missing.error is not None
    assert "77" in missing.error["details"]


def test_what_nobody_needs_is_not_checked_but_unknown_inputs_are_left_out() -> None:
    prompt = {**changed("3", scheduler_2=["99", 0]), "20": node("Text", text=5)}
    seen = checked(prompt)
    assert seen.sound
    assert "scheduler_2" not in seen.graph["3"].inputs


@pytest.mark.parametrize(
    ("given", "taken"),
    [({"steps": "3"}, 3), ({"steps": 3.0}, 3), ({"seed": 2**64 - 1}, 2**64 - 1), ({"cfg": "7.5"}, 7.5)],
)
def test_numbers_may_be_written_as_text(given: dict[str, Any], taken: float) -> None:
    seen = checked(changed("3", **given))
    assert seen.sound
    assert seen.graph["3"].inputs[next(iter(given))] == taken


@pytest.mark.parametrize(
    "given", [{"steps": 2.5}, {"cfg": float("nan")}, {"cfg": "inf"}, {"steps": {}}, {"steps": "9" * 5000}]
)
def test_numbers_that_are_none(given: dict[str, Any]) -> None:
    ((kind, _),) = faults(changed("3", **given), "3")
    assert kind == "invalid_input_type"


def test_defaults_fill_in_what_old_files_lack() -> None:
    prompt = usual()
    del prompt["3"]["inputs"]["sampler"]
    seen = checked(prompt)
    assert seen.sound
    assert seen.graph["3"].inputs["sampler"] == "euler"
    assert "latent" not in seen.graph["3"].inputs


def test_names_written_on_windows_and_names_of_uploads() -> None:
    seen = checked(changed("4", name="sd15\\dream.safetensors"))
    assert seen.sound
    assert seen.graph["4"].inputs["name"] == "sd15/dream.safetensors"
    for name in ("cat.png", "cat.png [input]", "made_1.png [output]"):
        prompt = {"1": node("Picture", image=name), "2": node("Save", latent=["1", 0])}
        assert checked(prompt).sound


def test_a_node_checks_its_own_values_and_cannot_break_the_check() -> None:
    prompt = {"1": node("Picture", image="masks/cat.png"), "2": node("Save", latent=["1", 0])}
    assert faults(prompt, "1") == [("custom_validation_failed", "is a mask")]

    def broken(*_: object) -> str:
        sys.exit("own fault")

    bad = NodeDef("Bad", lambda _: (), (), (Output(LATENT),), check=broken)
    seen = validate({"1": node("Bad"), "2": node("Save", latent=["1", 0])}, Registry([*NODES, bad]), Names())
    assert "own fault" in seen.node_errors["1"]["errors"][0]["details"]


def test_very_many_wrong_names_are_not_all_compared_with_all_names() -> None:
    prompt = {str(number): node("Loader", name=f"wrong {number}") for number in range(500)}
    prompt |= {f"s{number}": node("Save", latent=[str(number), 0]) for number in range(500)}
    seen = checked(prompt)
    told = [faults["errors"][0]["details"] for faults in seen.node_errors.values()]
    assert sum("there are emoji" in one for one in told) == MAX_SUGGESTIONS
    assert len(seen.node_errors) == 1000


def test_lines_for_people_name_node_and_kind() -> None:
    assert checked(changed("3", steps=0)).lines() == ["node 3 (Sampler): steps: 0 is below the minimum 1"]


def test_the_work_grows_with_the_graph_and_no_faster() -> None:
    """Nodes are looked at once each and lists of names are made once, however large the graph."""
    looked: Counter[str] = Counter()

    def count(names: object, inputs: Any) -> None:
        looked["checks"] += 1

    counted = NodeDef(
        "Counted",
        lambda _, **__: (0,),
        (Input("latent", LATENT), Input("other", LATENT), Input("seed", INT, 0)),
        (Output(LATENT),),
        check=count,
    )
    registry = Registry([*NODES, counted])
    for size in (200, 2000):
        looked.clear()
        prompt: Prompt = {"n0": node("Picture", image="cat.png"), "n1": node("Picture", image="cat.png")}
        for i in range(2, size):
            # Two links each to both before it: the paths through the graph double with every node.
            prompt[f"n{i}"] = node("Counted", latent=[f"n{i - 1}", 0], other=[f"n{i - 2}", 0], seed=i)
            if i % 20 == 0:
                prompt[f"s{i}"] = node("Save", latent=[f"n{i}", 0])
        names = Names()
        seen = validate(prompt, registry, names)
        assert seen.sound
        assert len(seen.graph) == looked["checks"] + 2 + len(seen.outputs)
        assert names.asked == {"pictures": 1}
