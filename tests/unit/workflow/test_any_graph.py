"""What holds for any graph and any bytes, however strange."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as any_

from calotype.core.errors import CalotypeError
from calotype.workflow.cache import Cache
from calotype.workflow.executor import Executing, Executor, Failed, Finished
from calotype.workflow.export_editor import to_workflow
from calotype.workflow.import_editor import to_prompt
from calotype.workflow.load import open_workflow
from calotype.workflow.validation import validate
from tests.unit.workflow.small_nodes import NODES, REGISTRY, Host, Names, Prompt, node, of, run

EXAMPLES = settings(max_examples=60, deadline=None)
names = any_.sampled_from(["1", "2", "3", "4", "5", "6"])
json_values = any_.recursive(
    any_.none() | any_.booleans() | any_.integers() | any_.floats() | any_.text(max_size=5),
    lambda inner: any_.lists(inner, max_size=3) | any_.dictionaries(any_.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
links = any_.tuples(names | any_.integers(0, 9), any_.integers(-1, 3)).map(list)
input_names = any_.sampled_from(sorted({one.name for kind in NODES for one in kind.inputs}))
strange_nodes = any_.fixed_dictionaries(
    {
        "class_type": any_.sampled_from([*REGISTRY, "Samplr"]) | json_values,
        "inputs": any_.dictionaries(input_names, links | json_values, max_size=7) | json_values,
    }
)
strange_graphs = any_.dictionaries(names, strange_nodes | json_values, max_size=6)


@EXAMPLES
@given(strange_graphs | json_values)
def test_checking_never_fails_and_always_says_why_nothing_may_run(prompt: Any) -> None:
    seen = validate(prompt, REGISTRY, Names())
    assert bool(seen.outputs) != bool(seen.error)
    assert seen.sound == (not seen.node_errors and seen.error is None)
    assert seen.sound or seen.lines()
    json.dumps(seen.as_dict(), allow_nan=False)
    assert set(seen.outputs) <= set(seen.graph)


@EXAMPLES
@given(strange_graphs)
def test_whatever_has_sound_outputs_runs_to_its_end(prompt: Prompt) -> None:
    seen = validate(prompt, REGISTRY, Names())
    *_, last = Executor(seen.graph, REGISTRY, Cache(), Host(), outputs=seen.outputs)
    assert isinstance(last, Finished | Failed)


@any_.composite
def sound_graphs(draw: Any) -> Prompt:
    """Pictures, and nodes that each take some of the nodes before them."""
    prompt: Prompt = {"0": node("Picture", image="cat.png")}
    for number in range(1, draw(any_.integers(1, 12))):
        before = any_.integers(0, number - 1).map(lambda one: [str(one), 0])
        which = draw(any_.booleans())
        prompt[str(number)] = node("Switch", which=which, yes=draw(before), no=draw(before))
    for number in draw(any_.sets(any_.integers(0, len(prompt) - 1), min_size=1)):
        prompt[f"save {number}"] = node("Save", latent=[str(number), 0], prefix=str(number))
    return prompt


def wanted(prompt: Prompt) -> set[str]:
    """What the chosen branches lead to, found the plain way."""

    def below(name: str) -> set[str]:
        inputs = prompt[name]["inputs"]
        link = inputs.get("latent") or inputs.get("yes" if inputs.get("which") else "no")
        return {name} | (below(link[0]) if link else set())

    return set().union(*(below(name) for name in prompt if name.startswith("save")))


@EXAMPLES
@given(sound_graphs(), any_.integers(0, 3))
def test_every_node_that_is_needed_runs_once_and_after_what_it_needs(prompt: Prompt, room: int) -> None:
    events = run(prompt, cache=Cache(most_entries=room))
    ran = [event.node for event in of(Executing, events)]
    assert len(ran) == len(set(ran))
    assert isinstance(events[-1], Finished)
    assert set(ran) == wanted(prompt)
    place = {name: number for number, name in enumerate(ran)}
    for name in ran:
        inputs = prompt[name]["inputs"]
        link = inputs.get("latent") or inputs.get("yes" if inputs.get("which") else "no")
        assert link is None or place[link[0]] < place[name]


@EXAMPLES
@given(sound_graphs())
def test_any_graph_survives_the_way_to_the_editor_and_back(prompt: Prompt) -> None:
    back = to_prompt(to_workflow(prompt, REGISTRY), REGISTRY)
    assert {name: (one["class_type"], one["inputs"]) for name, one in back.items()} == {
        name: (one["class_type"], one["inputs"]) for name, one in prompt.items()
    }


editor_nodes = any_.fixed_dictionaries(
    {
        "id": any_.integers(0, 5),
        "type": any_.sampled_from([*REGISTRY, "Reroute", "PrimitiveNode", "Note", "a-uuid"]),
    },
    optional={
        "mode": any_.sampled_from([0, 2, 4]),
        "inputs": any_.lists(
            any_.fixed_dictionaries(
                {"name": input_names, "type": any_.just("LATENT"), "link": any_.integers(0, 6) | any_.none()}
            ),
            max_size=3,
        ),
        "widgets_values": any_.lists(json_values, max_size=4),
    },
)
slots = any_.integers(-1, 2)
editor_links = any_.tuples(any_.integers(0, 6), any_.integers(-10, 5), slots, any_.integers(-20, 5), slots)
levels = any_.fixed_dictionaries(
    {"nodes": any_.lists(editor_nodes, max_size=5), "links": any_.lists(editor_links.map(list), max_size=6)}
)


@EXAMPLES
@given(levels, levels)
def test_any_editors_file_is_converted_or_refused(workflow: Any, inner: Any) -> None:
    workflow = {**workflow, "definitions": {"subgraphs": [{"id": "a-uuid", **inner}]}}
    try:
        prompt = to_prompt(workflow, REGISTRY)
    except CalotypeError:
        return
    validate(prompt, REGISTRY, Names())


@EXAMPLES
@given(any_.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_workflow_or_refused(data: bytes) -> None:
    for start in (b"", b"\x89PNG\r\n\x1a\n", b"RIFF", b"\xff\xd8"):
        try:
            open_workflow(start + data, "file", REGISTRY)
        except CalotypeError:
            continue
