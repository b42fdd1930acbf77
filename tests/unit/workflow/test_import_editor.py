"""Editor files to API format and back: widgets, and what exists only in the editor."""

from __future__ import annotations

from typing import Any

import pytest

from calotype.core.errors import RequestError
from calotype.workflow.export_editor import to_workflow
from calotype.workflow.import_editor import to_prompt
from calotype.workflow.validation import validate
from tests.unit.workflow.small_nodes import REGISTRY, Names, node, usual

JSON = dict[str, Any]


def box(number: int, kind: str, inputs: list[JSON] | None = None, **rest: Any) -> JSON:
    return {"id": number, "type": kind, "mode": 0, "inputs": inputs or [], "outputs": [], **rest}


def socket(name: str, kind: str, link: int | None, **rest: Any) -> JSON:
    return {"name": name, "type": kind, "link": link, **rest}


def widget(name: str, kind: str = "INT", link: int | None = None) -> JSON:
    return socket(name, kind, link, widget={"name": name})


def out(kind: str) -> JSON:
    return {"name": kind, "type": kind, "links": []}


def file(nodes: list[JSON], links: list[Any], **rest: Any) -> JSON:
    return {"nodes": nodes, "links": links, "groups": [{"title": "all"}], "version": 0.4, **rest}


LOADER = box(4, "Loader", widgets_values=["emoji"], outputs=[out("MODEL"), out("CLIP")])
TEXT = box(6, "Text", [socket("clip", "CLIP", 2)], widgets_values=["a cat"], outputs=[out("CONDITIONING")])
SAMPLER = box(
    3,
    "Sampler",
    [socket("model", "MODEL", 1), socket("positive", "CONDITIONING", 3), socket("latent", "LATENT", None)],
    widgets_values=[5, "randomize", 2, 8, "euler"],
    outputs=[out("LATENT")],
)
SAVE = box(9, "Save", [socket("latent", "LATENT", 4)], widgets_values=["cat"])
LINKS: list[Any] = [
    [1, 4, 0, 3, 0, "MODEL"],
    [2, 4, 1, 6, 0, "CLIP"],
    [3, 6, 0, 3, 1, "CONDITIONING"],
    [4, 3, 0, 9, 0, "LATENT"],
]


def converted(nodes: list[JSON], links: list[Any] = LINKS, **rest: Any) -> dict[str, tuple[str, JSON]]:
    prompt = to_prompt(file(nodes, links, **rest), REGISTRY)
    return {name: (one["class_type"], one["inputs"]) for name, one in prompt.items()}


def plain(prompt: JSON) -> dict[str, tuple[str, JSON]]:
    return {name: (one["class_type"], one["inputs"]) for name, one in prompt.items()}


def test_widgets_are_named_in_the_order_of_the_declaration() -> None:
    assert converted([LOADER, TEXT, SAMPLER, SAVE]) == plain(usual())


def test_links_may_be_objects() -> None:
    names = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
    links = [dict(zip(names, link, strict=True)) for link in LINKS]
    assert converted([LOADER, TEXT, SAMPLER, SAVE], [*links, None]) == plain(usual())


@pytest.mark.parametrize(
    "values",
    [
        [5, "fixed", 2, 8, "euler"],
        [5, "increment", 2, 8, "euler"],
        [5, True, 2, 8, "euler"],
        [5, 2, 8, "euler"],
        {"seed": 5, "control_after_generate": "fixed", "steps": 2, "cfg": 8, "sampler": "euler"},
    ],
    ids=str,
)
def test_what_an_editor_does_after_a_run_is_no_input(values: Any) -> None:
    sampler = {**SAMPLER, "widgets_values": values}
    assert converted([LOADER, TEXT, sampler, SAVE]) == plain(usual())


def test_a_widget_turned_into_a_socket_takes_its_link_and_keeps_its_place() -> None:
    sampler = {**SAMPLER, "inputs": [*SAMPLER["inputs"], widget("steps", link=7)]}
    number = box(1, "Number", widgets_values=[12], outputs=[out("INT")])
    seen = converted([LOADER, TEXT, sampler, SAVE, number], [*LINKS, [7, 1, 0, 3, 3, "INT"]])
    assert seen["3"][1]["steps"] == ["1", 0]
    assert (seen["3"][1]["seed"], seen["3"][1]["cfg"]) == (5, 8)


def test_files_that_list_every_widget_are_read_in_their_own_order() -> None:
    order = ["steps", "seed", "sampler", "cfg", "later"]
    sampler = {
        **SAMPLER,
        "inputs": [*SAMPLER["inputs"], *(widget(name) for name in order)],
        "widgets_values": [2, 5, "fixed", "euler", 8, "unknown"],
    }
    seen = converted([LOADER, TEXT, sampler, SAVE])["3"][1]
    assert seen.pop("later") == "unknown"
    assert seen == usual()["3"]["inputs"]


def test_values_that_are_missing_are_left_to_defaults() -> None:
    sampler = {**SAMPLER, "widgets_values": [5, "fixed", None]}
    assert set(converted([LOADER, TEXT, sampler, SAVE])["3"][1]) == {"model", "positive", "seed"}
    loader = {**LOADER, "widgets_values": None}
    assert converted([loader, TEXT, SAMPLER, SAVE])["4"] == ("Loader", {})


def test_reroutes_are_walked_through_even_in_a_ring() -> None:
    first = box(20, "Reroute", [socket("", "*", 4)])
    second = box(21, "Reroute", [socket("", "*", 10)])
    links = [*LINKS[:3], [4, 3, 0, 20, 0, "LATENT"], [10, 20, 0, 21, 0, "*"], [11, 21, 0, 9, 0, "*"]]
    save = {**SAVE, "inputs": [socket("latent", "LATENT", 11)]}
    assert converted([LOADER, TEXT, SAMPLER, save, first, second], links) == plain(usual())
    links[3] = [4, 21, 0, 20, 0, "*"]
    assert "latent" not in converted([LOADER, TEXT, SAMPLER, save, first, second], links)["9"][1]


def test_a_primitive_is_its_value() -> None:
    sampler = {**SAMPLER, "inputs": [*SAMPLER["inputs"], widget("seed", link=7)]}
    primitive = box(30, "PrimitiveNode", widgets_values=[77, "randomize"])
    seen = converted([LOADER, TEXT, sampler, SAVE, primitive], [*LINKS, [7, 30, 0, 3, 3, "INT"]])
    assert seen["3"][1]["seed"] == 77
    assert "30" not in seen


def test_notes_and_groups_are_left_out() -> None:
    notes = [box(40, "Note", widgets_values=["hello"]), box(41, "MarkdownNote", widgets_values=["# hello"])]
    assert converted([LOADER, TEXT, SAMPLER, SAVE, *notes]) == plain(usual())


def test_a_muted_node_is_not_there_and_what_needs_it_says_so() -> None:
    prompt = to_prompt(file([LOADER, TEXT, {**SAMPLER, "mode": 2}, SAVE], LINKS), REGISTRY)
    assert set(prompt) == {"4", "6", "9"}
    assert validate(prompt, REGISTRY, Names()).lines() == ["node 9 (Save): latent: is missing"]


def test_a_bypassed_node_hands_on_the_input_of_its_outputs_type() -> None:
    second = {
        **SAMPLER,
        "id": 5,
        "mode": 4,
        "inputs": [socket("model", "MODEL", 20), socket("latent", "LATENT", 4)],
    }
    links = [*LINKS[:3], [4, 3, 0, 5, 1, "LATENT"], [20, 4, 0, 5, 0, "MODEL"], [21, 5, 0, 9, 0, "LATENT"]]
    save = {**SAVE, "inputs": [socket("latent", "LATENT", 21)]}
    assert converted([LOADER, TEXT, SAMPLER, second, save], links) == plain(usual())


def test_a_bypassed_node_prefers_the_input_at_the_outputs_place() -> None:
    both = [socket("first", "LATENT", 1), socket("second", "LATENT", 2)]
    bypassed = box(5, "Two", both, mode=4, outputs=[out("LATENT"), out("LATENT")])
    pictures = [box(number, "Picture", widgets_values=["cat.png", "image"]) for number in (1, 2)]
    links = [[1, 1, 0, 5, 0, "LATENT"], [2, 2, 0, 5, 1, "LATENT"], [3, 5, 1, 9, 0, "LATENT"]]
    save = {**SAVE, "inputs": [socket("latent", "LATENT", 3)]}
    seen = converted([*pictures, bypassed, save], links)
    assert seen["9"][1]["latent"] == ["2", 0]
    assert seen["1"] == ("Picture", {"image": "cat.png"})


def test_an_unknown_node_is_left_for_validation_to_name() -> None:
    strange = box(50, "Samplr", [socket("model", "MODEL", 8), widget("steps")], widgets_values=[3])
    prompt = to_prompt(file([LOADER, strange], [[8, 4, 0, 50, 0, "MODEL"]]), REGISTRY)
    assert prompt["50"]["inputs"] == {"model": ["4", 0], "steps": 3}
    (line,) = validate(prompt, REGISTRY, Names()).lines()
    assert "did you mean 'Sampler'" in line


def subgraphed(instance: JSON, **inner: Any) -> JSON:
    """The sampler and its text inside a subgraph: model, clip and seed go in, a latent comes out."""
    definition = {
        "id": "a-uuid",
        "name": "Text to latent",
        "inputNode": {"id": -10},
        "outputNode": {"id": -20},
        "nodes": [
            {**TEXT, "id": 1, "inputs": [socket("clip", "CLIP", 1)]},
            {
                **SAMPLER,
                "id": 2,
                "inputs": [
                    socket("model", "MODEL", 2),
                    socket("positive", "CONDITIONING", 3),
                    widget("seed", link=5),
                ],
                "widgets_values": [1, "fixed", 2, 8, "euler"],
            },
        ],
        "links": [
            {"id": 1, "origin_id": -10, "origin_slot": 1, "target_id": 1, "target_slot": 0},
            {"id": 2, "origin_id": -10, "origin_slot": 0, "target_id": 2, "target_slot": 0},
            {"id": 3, "origin_id": 1, "origin_slot": 0, "target_id": 2, "target_slot": 1},
            {"id": 4, "origin_id": 2, "origin_slot": 0, "target_id": -20, "target_slot": 0},
            {"id": 5, "origin_id": -10, "origin_slot": 2, "target_id": 2, "target_slot": 2},
        ],
        **inner,
    }
    save = {**SAVE, "inputs": [socket("latent", "LATENT", 4)]}
    links = [[1, 4, 0, 12, 0, "MODEL"], [2, 4, 1, 12, 1, "CLIP"], [4, 12, 0, 9, 0, "LATENT"]]
    return file([LOADER, instance, save], links, definitions={"subgraphs": [definition]})


def test_a_subgraph_is_unpacked() -> None:
    sockets = [socket("model", "MODEL", 1), socket("clip", "CLIP", 2), widget("seed")]
    instance = box(12, "a-uuid", sockets, outputs=[out("LATENT")], widgets_values=[5])
    prompt = plain(to_prompt(subgraphed(instance), REGISTRY))
    assert prompt["9"][1]["latent"] == ["12:2", 0]
    assert prompt["12:1"] == ("Text", {"text": "a cat", "clip": ["4", 1]})
    expected = {**usual()["3"]["inputs"], "positive": ["12:1", 0]}
    assert prompt["12:2"] == ("Sampler", expected)
    # Where widgets of nodes inside are shown as well, they have a place among the values.
    shown = {"proxyWidgets": [["1", "text"], ["2", "steps"], ["-1", "seed"]]}
    with_others = {**instance, "properties": shown, "widgets_values": [None, None, 5]}
    assert plain(to_prompt(subgraphed(with_others), REGISTRY)) == prompt
    # Without a value of its own, the one inside counts; muted, nothing of it is there.
    assert plain(to_prompt(subgraphed({**instance, "widgets_values": []}), REGISTRY))["12:2"][1]["seed"] == 1
    assert set(to_prompt(subgraphed({**instance, "mode": 2}), REGISTRY)) == {"4", "9"}


def test_a_subgraph_that_holds_itself_is_refused() -> None:
    instance = box(12, "a-uuid", [socket("model", "MODEL", 1)])
    with pytest.raises(RequestError, match="contain themselves"):
        to_prompt(subgraphed(instance, nodes=[{**instance, "id": 1}]), REGISTRY)
    with pytest.raises(RequestError, match="more than 1000"):
        to_prompt(subgraphed(instance, nodes=[{**instance, "id": n} for n in range(1001)]), REGISTRY)


def test_a_group_of_an_old_editor_is_refused_with_what_to_do() -> None:
    with pytest.raises(RequestError, match=r"node 7: 'workflow>mine' is a group node.*convert it"):
        converted([box(7, "workflow>mine")])


@pytest.mark.parametrize(
    "workflow",
    [
        {"nodes": 5},
        {"nodes": [5]},
        {"nodes": [{"id": 1}]},
        {"nodes": [{"id": {}, "type": "Save"}]},
        {"nodes": [box(1, "Save", inputs=[{"link": "x"}])]},
        {"nodes": [], "links": [[1, 2]]},
        {"nodes": [], "definitions": {"subgraphs": 1}},
    ],
    ids=str,
)
def test_what_is_no_editors_file_is_refused_by_place(workflow: JSON) -> None:
    with pytest.raises(RequestError, match=r"nodes|links|definitions"):
        to_prompt(workflow, REGISTRY)


def test_there_and_back_is_the_same_graph() -> None:
    prompt: JSON = {
        **usual(),
        "1": node("Number", value=12),
        "20": node("Picture", image="cat.png"),
        "21": node("Switch", which=False, yes=["20", 0], no=["3", 0]),
        "22": node("Save", latent=["21", 0], prefix="other"),
        "12:3": node("Sampler", model=["4", 0], positive=["6", 0], latent=["20", 0], seed=2**63),
        "23": node("Save", latent=["12:3", 0], prefix="third"),
        "strange": node("Unknown", model=["4", 0], steps=3),
    }
    prompt["12:3"]["inputs"]["steps"] = ["1", 0]
    prompt["9"]["_meta"] = {"title": "Keep it"}
    back = to_prompt(to_workflow(prompt, REGISTRY), REGISTRY)
    for name, one in prompt.items():
        assert back[name]["class_type"] == one["class_type"]
        # Defaults are written out by an editor, which shows every widget.
        assert back[name]["inputs"] == {**back[name]["inputs"], **one["inputs"]}
    assert back["9"]["_meta"]["title"] == "Keep it"
    drawn = {str(one["id"]): one["widgets_values"] for one in to_workflow(prompt, REGISTRY)["nodes"]}
    assert drawn["3"] == [5, "fixed", 2, 8, "euler"]
    assert drawn["20"] == ["cat.png", "image"]
    assert back["3"]["_meta"]["title"] == "Small sampler"
    again = to_workflow(back, REGISTRY)
    assert to_prompt(again, REGISTRY) == back


def test_the_layout_goes_from_left_to_right_and_nothing_overlaps() -> None:
    prompt = usual()
    prompt |= {f"t{i}": node("Text", text=str(i), clip=["4", 1]) for i in range(5)}
    workflow = to_workflow(prompt, REGISTRY)
    boxes = {str(one["id"]): (*one["pos"], *one["size"]) for one in workflow["nodes"]}
    for _, origin, _, target, _, _ in workflow["links"]:
        assert boxes[str(origin)][0] + boxes[str(origin)][2] < boxes[str(target)][0]
    placed = list(boxes.values())
    for number, (x, y, width, height) in enumerate(placed):
        for other_x, other_y, other_width, other_height in placed[number + 1 :]:
            apart_x = x + width <= other_x or other_x + other_width <= x
            assert apart_x or y + height <= other_y or other_y + other_height <= y
    model = next(one for one in workflow["nodes"] if one["id"] == 4)
    links = {link[0]: link for link in workflow["links"]}
    assert [links[number][3] for number in model["outputs"][0]["links"]] == [3]
    assert len(model["outputs"][1]["links"]) == 6
