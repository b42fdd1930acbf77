"""Workflows in a worker, on nodes that do as they are told: who hears what, and what others notice of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
from PIL import Image

from calotype.core.errors import NotFoundError
from calotype.serve.ipc import messages
from calotype.serve.ipc.messages import Failed, Models, NodeNews, RunWorkflow, Stopped, WorkflowFinished
from calotype.serve.worker.main import turn
from calotype.serve.worker.protocols import DeviceLostError, OutOfMemoryError
from calotype.serve.worker.workflow_engines import NodeEngines
from calotype.serve.worker.workflow_runner import WorkflowRunner
from calotype.serve.workflow.catalogue import WorkflowCatalogue
from calotype.workflow.cache import Cache
from calotype.workflow.node_api import IMAGE, INT, STRING, Context, Input, NodeDef, Output, Result, Step
from calotype.workflow.registry import Registry
from tests.unit.serve.worker.bench import Bench, Shelf


class Stage:
    """A worker's workflows beside its batcher, with nodes of the test's own."""

    def __init__(self, bench: Bench | None = None, **nodes: Callable[..., Any]) -> None:
        self.bench = bench or Bench()
        self.engines = NodeEngines(self.bench.models, self.bench.shelf)
        self.cache = Cache()
        made = [
            NodeDef(name, run, inputs=(Input("value", INT, default=0),), outputs=(Output(IMAGE),))
            for name, run in nodes.items()
        ]
        save = NodeDef(
            "Save",
            lambda context, image, prefix: Result((), {"images": [context.save(image, prefix)]}),
            inputs=(Input("image", IMAGE), Input("prefix", STRING, default="p")),
            is_output=True,
        )
        self.workflows = WorkflowRunner(
            Registry([*made, save]),
            self.bench.say,
            self.engines,
            catalogue=lambda pictures: WorkflowCatalogue(None, (), pictures),
            stages=self.bench.stages,
            meaning=_meaning,
            cache=self.cache,
        )

    def add(self, job_id: str, node: str, value: int = 0, **knobs: Any) -> None:
        prompt = {
            "1": {"class_type": node, "inputs": {"value": value}},
            "2": {"class_type": "Save", "inputs": {"image": ["1", 0]}},
        }
        self.workflows.add(RunWorkflow(job_id=job_id, sequence=7, prompt=prompt, outputs=("2",), **knobs))

    def turns(self, number: int) -> None:
        """Of batcher and workflows, as the worker has them."""
        for _ in range(number):
            turn(self.bench.batcher, self.workflows)

    def rest(self) -> None:
        for _ in range(1000):
            if not self.workflows.step():
                return
        raise AssertionError("the workflows never come to rest")

    def news(self, job_id: str) -> list[tuple[str, str | None]]:
        return [(one.happened, one.node) for one in self.bench.heard(NodeNews) if one.job_id == job_id]


def _meaning(error: BaseException) -> BaseException:
    return DeviceLostError("gone") if "device" in str(error) else error


def picture(*_: Any, **__: Any) -> tuple[Image.Image]:
    return (Image.new("RGB", (4, 2)),)


def in_steps(context: Context, value: int) -> Generator[Step, None, tuple[Image.Image]]:
    for step in range(value):
        yield Step(step + 1, value, b"preview")
    return picture()


def test_what_is_heard_of_a_workflow() -> None:
    stage = Stage(Steps=in_steps)
    stage.add("a", "Steps", 2, extra_pnginfo={"workflow": {}})
    stage.rest()
    assert stage.news("a") == [
        ("started", None),
        ("cached", None),
        ("executing", "1"),
        ("progressed", "1"),
        ("progressed", "1"),
        ("executed", "1"),
        ("executing", "2"),
        ("executed", "2"),
    ]
    assert [m.job_id for m in stage.bench.heard(WorkflowFinished)] == ["a"]
    told = [(m, files) for m, files in stage.bench.messages if isinstance(m, NodeNews)]
    assert [(m.nodes_done, m.nodes_total) for m, _ in told] == [(0, 2), *[(0, 2)] * 4, (1, 2), (1, 2), (2, 2)]
    assert [files for m, files in told if m.has_preview] == [[b"preview"]] * 2
    (saved,) = [(m, files) for m, files in told if m.files]
    assert saved[0].files[0].file.filename == "p_00007_01.png"
    assert (saved[0].files[0].width, saved[0].files[0].height) == (4, 2)
    assert saved[1][0].startswith(b"\x89PNG")


def test_ordinary_jobs_have_a_turn_between_any_two_steps() -> None:
    stage = Stage(Steps=in_steps)
    stage.add("flow", "Steps", 50)
    stage.bench.add("plain", steps=5)
    for _ in range(30):
        stage.bench.batcher.step()
        stage.workflows.step()
    stage.bench.finishing.close()
    assert stage.bench.finished() == {"plain"}
    assert not stage.bench.heard(WorkflowFinished)
    assert len(stage.news("flow")) > 20


def test_one_after_the_other_and_what_is_known_is_not_done_again() -> None:
    ran: list[int] = []

    def counted(context: Context, value: int) -> tuple[Image.Image]:
        ran.append(value)
        return picture()

    stage = Stage(Counted=counted)
    for job_id, value in (("a", 1), ("b", 1), ("c", 2)):
        stage.add(job_id, "Counted", value)
    stage.rest()
    assert [m.job_id for m in stage.bench.heard(WorkflowFinished)] == ["a", "b", "c"]
    assert ran == [1, 2]
    (cached,) = [m.nodes for m in stage.bench.heard(NodeNews) if m.job_id == "b" and m.happened == "cached"]
    assert cached == ("1",)


def test_stopped_while_it_waits_and_while_it_runs() -> None:
    closed: list[bool] = []

    def endless(context: Context, value: int) -> Generator[Step, None, tuple[Image.Image]]:
        try:
            while True:
                yield Step(1, 2)
        finally:
            closed.append(True)

    stage = Stage(Endless=endless, Plain=picture)
    for job_id, node in (("running", "Endless"), ("waiting", "Plain"), ("last", "Plain")):
        stage.add(job_id, node)
    for _ in range(10):
        stage.workflows.step()
    stage.workflows.stop("waiting")
    stage.workflows.stop("running")
    stage.workflows.stop("nobody")
    assert [m.job_id for m in stage.bench.heard(Stopped)] == ["waiting", "running"]
    assert closed == [True]
    stage.rest()
    assert [m.job_id for m in stage.bench.heard(WorkflowFinished)] == ["last"]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ValueError("bad luck"), "internal", "node 1 (Bad): ValueError: bad luck"),
        (NotFoundError("no such file"), "not_found", "no such file"),
        (SystemExit(3), "internal", "3"),
    ],
)
def test_a_node_that_fails(error: BaseException, kind: str, words: str) -> None:
    def bad(context: Context, value: int) -> tuple[Image.Image]:
        raise error

    stage = Stage(Bad=bad, Plain=picture)
    stage.add("bad", "Bad")
    stage.add("good", "Plain")
    stage.rest()
    (failed,) = stage.bench.heard(Failed)
    assert failed.failure.kind == kind
    assert words in failed.failure.message
    assert failed.node is not None
    assert (failed.node.node, failed.node.node_class) == ("1", "Bad")
    assert [m.job_id for m in stage.bench.heard(WorkflowFinished)] == ["good"]


def test_what_has_gone_since_it_was_accepted_is_said() -> None:
    stage = Stage(Plain=picture)
    stage.add("a", "Nowhere")
    stage.rest()
    (failed,) = stage.bench.heard(Failed)
    assert failed.failure.kind == "bad_request"
    assert "there is no node 'Nowhere'" in failed.failure.message


def test_out_of_memory_lets_go_of_what_was_kept_and_tries_once_more() -> None:
    tries: list[int] = []

    def hungry(context: Context, value: int) -> tuple[Image.Image]:
        tries.append(len(stage.cache))
        if len(tries) == 1 or value == 2:
            raise OutOfMemoryError("full")
        return picture()

    stage = Stage(Plain=picture, Hungry=hungry)
    stage.add("before", "Plain")
    stage.add("once", "Hungry", 1)
    stage.rest()
    assert tries == [1, 0]
    assert [m.job_id for m in stage.bench.heard(WorkflowFinished)] == ["before", "once"]
    assert stage.news("once").count(("started", None)) == 1
    stage.add("always", "Hungry", 2)
    stage.rest()
    (failed,) = stage.bench.heard(Failed)
    assert failed.failure.kind == "does_not_fit"


def test_a_lost_device_ends_the_worker() -> None:
    def lost(context: Context, value: int) -> tuple[Image.Image]:
        raise RuntimeError("the device is gone")

    stage = Stage(Lost=lost)
    stage.add("a", "Lost")
    with pytest.raises(DeviceLostError):
        stage.rest()


def test_models_are_those_of_ordinary_jobs_and_stay_while_a_workflow_uses_them() -> None:
    def uses(context: Context, value: int) -> tuple[Image.Image]:
        for name in ("m-60", "n-60")[: value or 2]:
            stage.engines(name)
        return picture()

    stage = Stage(Bench(Shelf(memory_bytes=100)), Uses=uses)
    stage.bench.add("slow", model="m-60", steps=4)
    stage.bench.turns(1)
    # The second model needs the room of the first, which the ordinary job holds.
    stage.add("flow", "Uses")
    for _ in range(20):
        stage.workflows.step()
    assert not stage.bench.heard(WorkflowFinished)
    assert not stage.bench.heard(Failed)
    stage.turns(20)
    assert [m.job_id for m in stage.bench.heard(WorkflowFinished)] == ["flow"]
    assert stage.bench.shelf.loads == ["m-60", "n-60"]
    assert not any(held.users for held in stage.bench.models._entries)


def crowded(*models: str) -> Stage:
    """A worker with room for one model, and a node that uses these, a step apart."""

    def uses(context: Context, value: int) -> Generator[Step, None, tuple[Image.Image]]:
        for number, name in enumerate(models):
            stage.engines(name)
            yield Step(number + 1, len(models))
        return picture()

    stage = Stage(Bench(Shelf(memory_bytes=100)), Uses=uses)
    return stage


@pytest.mark.parametrize("models", [("n-60",), ("m-60", "n-60") * 2], ids=["one model", "two by turns"])
def test_a_workflow_that_waits_for_room_has_its_turn_while_new_jobs_keep_coming(
    models: tuple[str, ...],
) -> None:
    stage = crowded(*models)
    stage.add("flow", "Uses")
    for number in range(60):
        stage.bench.add(f"job {number}", model="m-60", steps=3)
        stage.turns(1)
    assert [m.job_id for m in stage.bench.heard(WorkflowFinished)] == ["flow"]
    told = [news for news in stage.news("flow") if news[0] != "progressed"]
    assert told == [
        ("started", None),
        ("cached", None),
        *((event, node) for node in "12" for event in ("executing", "executed")),
    ]
    stage.turns(20)
    stage.bench.to_the_end()
    assert stage.bench.finished() == {f"job {number}" for number in range(60)}


def test_who_waits_for_room_behind_a_workflow_gets_it_next_and_nothing_is_read_again() -> None:
    stage = crowded("n-60")
    stage.bench.add("slow", model="m-60", steps=9)
    stage.bench.turns(1)
    stage.bench.add("other model", model="k-60")
    stage.add("flow", "Uses")
    stage.add("next flow", "Uses", 1)
    stage.turns(45)
    assert stage.bench.shelf.loads == ["m-60", "n-60", "k-60", "n-60"]
    assert stage.bench.shelf.described == ["m-60", "k-60", "n-60", "n-60"], "waiting reads nothing again"
    assert [m.job_id for m in stage.bench.heard(WorkflowFinished)] == ["flow", "next flow"]
    stage.bench.to_the_end()
    assert stage.bench.finished() == {"slow", "other model"}


def test_a_workflow_that_is_stopped_while_it_waits_for_room_keeps_nobody_waiting() -> None:
    stage = crowded("n-60")
    stage.bench.add("slow", model="m-60", steps=9)
    stage.bench.turns(1)
    stage.add("flow", "Uses")
    stage.turns(5)
    stage.bench.add("later", model="m-60")
    stage.turns(1)
    assert ["slow", "later"] not in stage.bench.shelf.made["m-60"].evaluated
    stage.workflows.stop("flow")
    stage.turns(1)
    assert stage.bench.shelf.made["m-60"].evaluated[-1] == ["slow", "later"]
    assert stage.bench.shelf.loads == ["m-60"]


def test_files_of_a_node_that_is_run_again_keep_their_names() -> None:
    def saves(context: Context, value: int) -> tuple[Image.Image]:
        context.save(*picture(), "p")
        stage.engines("n-60")
        return picture()

    stage = Stage(Bench(Shelf(memory_bytes=100)), Saves=saves)
    stage.bench.add("slow", model="m-60", steps=9)
    stage.bench.turns(1)
    stage.add("flow", "Saves")
    stage.turns(30)
    files = [made.file.filename for news in stage.bench.heard(NodeNews) for made in news.files]
    assert files == ["p_00007_01.png", "p_00007_02.png"]


def test_presets_of_nodes_are_engines_of_the_worker_s_and_take_its_room() -> None:
    def compares(context: Context, value: int) -> tuple[Image.Image]:
        for preset in (None, "fast", None, "fast"):
            stage.engines("m-60", preset)
        return picture()

    stage = Stage(Bench(Shelf(memory_bytes=120)), Compares=compares)
    stage.bench.add("before", model="m-60", preset="fast")
    stage.bench.rest()
    stage.add("flow", "Compares")
    stage.rest()
    assert [m.job_id for m in stage.bench.heard(WorkflowFinished)] == ["flow"]
    assert stage.bench.shelf.loads == ["fast:m-60", "m-60"], "those that jobs use too, each loaded once"
    assert stage.bench.heard(Models)[-1].free_bytes == 0


def test_a_node_is_a_stage_of_its_own_and_a_load_within_it_another() -> None:
    def uses(context: Context, value: int) -> tuple[Image.Image]:
        stage.engines("m")
        return picture()

    stage = Stage(Uses=uses)
    stage.add("flow", "Uses")
    stage.rest()
    (first, *others) = [told.label for told in stage.bench.heard(messages.Stage)]
    assert first == "node 1"
    assert others == ["reading m", "node 1", "loading m", "node 1", None, "node 2", None]
