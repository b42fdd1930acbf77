"""`calotype run` as a user meets it: files of every kind, changes, refusals, failures, Ctrl-C."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calotype.core.errors import ExitCode
from calotype.engine.presets import PRESETS
from calotype.spec import constants
from tests.unit.cli.conftest import Calotype

Prompt = dict[str, Any]
DOCUMENT = Path(__file__).parents[3] / "docs" / "workflows.md"
TROUBLE = """
import os, signal
from calotype.core.errors import DoesNotFitError
from calotype.workflow.node_api import COMBO, IMAGE, Input, NodeDef, Output, Step

def trouble(context, *, image, kind):
    yield Step(1, 3)
    if kind == "memory":
        raise DoesNotFitError("needs 9 GiB, there are 8")
    if kind == "bug":
        raise KeyError("a slip")
    os.kill(os.getpid(), signal.SIGINT)
    yield Step(2, 3)
    context.save(None, "never")

KINDS = ("memory", "bug", "stop")
INPUTS = (Input("image", IMAGE), Input("kind", COMBO, choices=KINDS))
NODES = [NodeDef("Trouble", trouble, INPUTS, (Output(IMAGE),))]
"""
Install = Callable[[str, str, dict[str, str]], None]


def node(class_type: str, **inputs: Any) -> Prompt:
    return {"class_type": class_type, "inputs": inputs}


def text_to_image() -> Prompt:
    return {
        "4": node("CheckpointLoaderSimple", ckpt_name="emoji"),
        "5": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "6": node("CLIPTextEncode", text="a red apple", clip=["4", 1]),
        "7": node("CLIPTextEncode", text="", clip=["4", 1]),
        "3": node(
            "KSampler",
            model=["4", 0],
            positive=["6", 0],
            negative=["7", 0],
            latent_image=["5", 0],
            seed=5,
            steps=2,
            cfg=4.0,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImage", images=["8", 0], filename_prefix="fruit/apple"),
    }


def copied(prefix: str = "copy") -> Prompt:
    """A graph without a model."""
    return {
        "1": node("LoadImage", image="in.png"),
        "2": node("SaveImage", images=["1", 0], filename_prefix=prefix),
    }


def write(prompt: Prompt, name: str = "graph.json") -> str:
    Path(name).write_text(json.dumps(prompt))
    return name


def pixels(path: str | Path) -> Any:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def inside(path: str | Path) -> dict[str, Any]:
    with Image.open(path) as image:
        return {str(key): json.loads(text) for key, text in image.info.items() if isinstance(text, str)}


def files(folder: str = "outputs") -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


@pytest.fixture
def gradient(calotype: Calotype) -> Any:
    """An input picture beside the workflow."""
    values = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
    Image.fromarray(values).save("in.png")
    return values


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def put(name: str, source: str, points: dict[str, str]) -> None:
        (folder / f"{name}.py").write_text(source)
        information = folder / f"{name}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{key} = {value}" for key, value in points.items()]
        (information / "entry_points.txt").write_text("\n".join(["[calotype.nodes]", *lines]))

    return put


def test_a_graph_makes_a_picture_that_makes_itself_again(calotype: Calotype) -> None:
    seen = calotype("run", write(text_to_image()), "--set", "3.seed=7", "--json")
    assert seen.code == ExitCode.OK, seen.err
    told = json.loads(seen.out)
    assert [one["node"] for one in told["nodes"]] == ["4", "6", "7", "5", "3", "8", "9"]
    (made,) = told["files"]
    assert made == "outputs/fruit/apple_00001_.png"
    assert inside(made)["prompt"]["3"]["inputs"]["seed"] == 7
    sampler = next(one for one in inside(made)["workflow"]["nodes"] if one["id"] == 3)
    assert sampler["widgets_values"] == [7, "fixed", 2, 4.0, "euler", "normal", 1.0]

    again = calotype("run", made)
    assert again.code == ExitCode.OK, again.err
    assert again.out == "outputs/fruit/apple_00002_.png  (64×64)\n"
    assert np.array_equal(pixels(made), pixels("outputs/fruit/apple_00002_.png"))
    assert inside(made) == inside("outputs/fruit/apple_00002_.png")

    workflow = inside(made)["workflow"]
    sampler = next(one for one in workflow["nodes"] if one["id"] == 3)
    sampler["widgets_values"][0] = 8
    calotype("run", write(workflow, "editor.json"))
    assert not np.array_equal(pixels(made), pixels("outputs/fruit/apple_00003_.png"))
    assert inside("outputs/fruit/apple_00003_.png")["workflow"] == workflow


def test_pictures_go_in_and_out(calotype: Calotype, gradient: Any) -> None:
    assert calotype("run", write(copied("%width%x%height%"))).code == ExitCode.OK
    assert files() == ["8x8_00001_.png"]
    assert np.array_equal(pixels("outputs/8x8_00001_.png"), gradient)
    Path("elsewhere").mkdir()
    Image.fromarray(255 - gradient).save("elsewhere/in.png")
    calotype("run", "graph.json", "--input", "elsewhere", "--out", "there")
    assert np.array_equal(pixels("there/8x8_00001_.png"), 255 - gradient)


def test_the_documents_example_is_a_package_that_works(
    calotype: Calotype, gradient: Any, install: Install
) -> None:
    text = DOCUMENT.read_text("utf-8")
    (project,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    points = tomllib.loads(project)["project"]["entry-points"]["calotype.nodes"]
    install("calotype_posterise", source, points)
    prompt = copied()
    prompt["3"] = node("Posterise", image=["1", 0], levels=2)
    prompt["2"]["inputs"]["images"] = ["3", 0]
    seen = calotype("run", write(prompt))
    assert seen.code == ExitCode.OK, seen.err
    assert np.array_equal(pixels("outputs/copy_00001_.png"), np.where(gradient > 127, 255, 0))
    refused = calotype("run", "graph.json", "--set", "3.levels=1")
    assert refused.err == "error: node 3 (Posterise): levels: 1 is below the minimum 2\n"


def test_only_some_of_it(calotype: Calotype, gradient: Any) -> None:
    prompt = {**copied(), "3": node("SaveImage", images=["1", 0], filename_prefix="other")}
    calotype("run", write(prompt), "--only", "3")
    assert files() == ["other_00001_.png"]


def test_what_is_wrong_is_said_at_once_before_anything_runs(calotype: Calotype) -> None:
    prompt = text_to_image()
    prompt["4"]["inputs"]["ckpt_name"] = "emoij"
    prompt["10"] = node("SaveImag", images=["8", 0])
    for flags in ((), ("--validate-only",)):
        seen = calotype("run", write(prompt), "--set", "3.steps=0", *flags)
        assert seen.code == ExitCode.BAD_REQUEST
        assert seen.out == ""
        lines = sorted(seen.err.removeprefix("error: ").splitlines())
        assert lines[0].startswith(
            "node 10 (SaveImag): there is no node 'SaveImag'; did you mean 'SaveImage'"
        )
        assert lines[1] == "node 3 (KSampler): steps: 0 is below the minimum 1"
        assert lines[2].startswith("node 4 (CheckpointLoaderSimple): ckpt_name: 'emoij' is not one of the")
        assert lines[2].endswith("did you mean 'emoji'?")
    assert files() == []
    told = json.loads(calotype("run", "graph.json", "--validate-only", "--json").out)
    assert told["error"]["type"] == "invalid_prompt"
    assert told["node_errors"]["4"]["dependent_outputs"] == ["9"]


def test_a_sound_graph_is_said_to_be_sound(calotype: Calotype) -> None:
    assert calotype("run", write(text_to_image()), "--validate-only").out == "valid: 7 nodes for 9\n"


def test_changes_are_typed_by_the_declaration_and_refused_together(calotype: Calotype) -> None:
    changes = ["3.cfg=7", "3.seed=9", "6.text=5 = five.png", '3.model=["4", 0]', "4.ckpt_name=random:emoji"]
    flags = [flag for change in changes for flag in ("--set", change)]
    printed = json.loads(calotype("run", write(text_to_image()), "--print-api", *flags).out)
    assert printed["3"]["inputs"] | {"cfg": 7.0, "seed": 9, "model": ["4", 0]} == printed["3"]["inputs"]
    assert isinstance(printed["3"]["inputs"]["cfg"], float)
    assert printed["6"]["inputs"]["text"] == "5 = five.png"
    assert calotype("run", "graph.json", "--validate-only", *flags).code == ExitCode.OK
    seen = calotype(
        "run",
        "graph.json",
        "--set",
        "3.seed=x",
        "--set",
        "3.sed=4",
        "--set",
        "33.seed=4",
        "--set",
        "3.model=emoji",
    )
    assert seen.code == ExitCode.BAD_REQUEST
    assert [line.removeprefix("error: ") for line in seen.err.splitlines()] == [
        "--set 3.seed=x: 'x' is not a whole number",
        "--set 3.sed=4: node 3 (KSampler) has no input 'sed'; did you mean 'seed' or 'steps' or 'scheduler'?",
        "--set 33.seed=4: there is no node '33'; did you mean '3'?",
        '--set 3.model=emoji: model takes a MODEL through a link, written ["4", 0]',
    ]


def test_editor_files_are_printed_in_api_format(calotype: Calotype, gradient: Any) -> None:
    calotype("run", write(copied()))
    workflow = inside("outputs/copy_00001_.png")["workflow"]
    printed = json.loads(calotype("run", write(workflow), "--print-api").out)
    assert {name: (one["class_type"], one["inputs"]) for name, one in printed.items()} == {
        name: (one["class_type"], one["inputs"]) for name, one in copied().items()
    }


def test_names_that_lead_nowhere(calotype: Calotype, gradient: Any) -> None:
    write(copied())
    seen = calotype("run", "grph.json")
    assert seen.code == ExitCode.NOT_FOUND
    assert "did you mean 'graph.json'" in seen.err
    assert calotype("run", "in.png").code == ExitCode.NOT_FOUND
    assert calotype("run", "graph.json", "--preset", "fats").code == ExitCode.BAD_REQUEST
    assert "did you mean 'in.png'" in calotype("run", "graph.json", "--set", "1.image=im.png").err
    assert calotype("run", "graph.json", "--out", "in.png").code == ExitCode.BAD_REQUEST
    assert "not a usable name" in calotype("run", "graph.json", "--set", "2.filename_prefix=../up").err


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("memory", ExitCode.DOES_NOT_FIT, "error: node 3 (Trouble): needs 9 GiB, there are 8\n"),
        ("bug", ExitCode.BUG, "error: node 3 (Trouble): KeyError: 'a slip'\n"),
        ("stop", ExitCode.CANCELLED, "error: cancelled; finished images are in outputs\n"),
    ],
)
def test_a_node_that_fails_and_ctrl_c_leave_only_what_was_finished(
    calotype: Calotype, gradient: Any, install: Install, kind: str, code: ExitCode, words: str
) -> None:
    install(f"calotype_trouble_{kind}", TROUBLE, {"all": f"calotype_trouble_{kind}:NODES"})
    prompt = {
        **copied("first"),
        "3": node("Trouble", image=["1", 0], kind=kind),
        "4": node("SaveImage", images=["3", 0], filename_prefix="never"),
    }
    seen = calotype("run", write(prompt))
    assert (seen.code, files()) == (code, ["first_00001_.png"])
    assert seen.err.endswith(words)
    assert ("Traceback" in seen.err) == (kind == "bug")


def test_a_package_that_is_left_out_is_named(calotype: Calotype, gradient: Any, install: Install) -> None:
    install("calotype_broken", "raise RuntimeError('no licence')", {"all": "calotype_broken:NODES"})
    seen = calotype("run", write(copied()))
    assert seen.code == ExitCode.OK
    assert "note: nodes of calotype_broken (all = calotype_broken:NODES) are not available" in seen.err
    assert "no licence" in seen.err


def test_the_presets_named_without_torch_are_those_there_are() -> None:
    assert set(PRESETS) == set(constants.PRESETS)
    lossy = {name for name, passes in PRESETS.items() if any(one.effect == "lossy" for one in passes)}
    assert lossy == set(constants.LOSSY_PRESETS)


def editor_file(*nodes: dict[str, Any]) -> str:
    workflow = {"nodes": list(nodes), "links": [], "version": 0.4}
    Path("editor.json").write_text(json.dumps(workflow))
    return "editor.json"


SIZE = {"id": 5, "type": "EmptyLatentImage", "widgets_values": [64, 128, 1]}


def test_values_of_unknown_nodes_are_not_dropped_in_silence(calotype: Calotype) -> None:
    """An editor's file lists them without names, which only the missing package knows."""
    name = editor_file(SIZE, {"id": 7, "type": "Mystery", "widgets_values": [5, "soft", None, True]})
    seen = calotype("run", name, "--print-api")
    assert (seen.code, seen.out) == (ExitCode.BAD_REQUEST, "")
    assert "node 7: 'Mystery' is unknown here, and so are the names of its 3 values" in seen.err
    assert "install the package that declares it" in seen.err


def test_values_of_unknown_nodes_that_the_file_names_are_printed(calotype: Calotype) -> None:
    socket = {"name": "seed", "type": "INT", "link": None, "widget": {"name": "seed"}}
    listed = {"id": 7, "type": "Mystery", "inputs": [socket], "widgets_values": [5, "randomize"]}
    named = {"id": 8, "type": "Mystery", "widgets_values": {"amount": 0.5}}
    seen = calotype("run", editor_file(SIZE, listed, named), "--print-api")
    assert seen.code == ExitCode.OK
    printed = json.loads(seen.out)
    assert [printed[node]["inputs"] for node in ("7", "8")] == [{"seed": 5}, {"amount": 0.5}]
