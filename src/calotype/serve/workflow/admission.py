"""What is looked at before a workflow is accepted: its graph, its pictures, the deployment's limits.

Knows nothing of the queue, and loads no torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.serve.scheduler.settings import RequestLimits
from calotype.serve.workflow.catalogue import WorkflowCatalogue
from calotype.serve.workflow.service import WorkflowRefusedError
from calotype.spec.job import PictureFile
from calotype.spec.workflow import WorkflowSubmission
from calotype.workflow.graph import Graph, Node, parse, walk
from calotype.workflow.object_info import describe, describe_all
from calotype.workflow.registry import Registry
from calotype.workflow.size_estimate import expected_size, saved
from calotype.workflow.validation import Validation, validate

MAX_BYTES_LENGTH = 3 * 2**20
"""Of a graph with all that goes into its pictures: each of them holds it."""
_ANNOTATED = re.compile(r"(?P<name>.*?)(?: \[(?P<type>input|output|temp)\])?", re.DOTALL)


@dataclass(frozen=True)
class CheckedWorkflow:
    """A workflow that may be queued."""

    validation: Validation
    inputs: Mapping[str, PictureFile]
    """The pictures it reads, by what it calls them."""
    model: str
    pictures: int
    """That it will make, as far as can be told."""
    cost: int


class WorkflowAdmission:
    """Decides which graphs may be queued."""

    def __init__(
        self,
        registry: Registry,
        *,
        models: Sequence[str],
        models_folder: Path | None = None,
        limits: RequestLimits | None = None,
    ) -> None:
        self.registry, self._models, self._models_folder = registry, models, models_folder
        self._limits = limits or RequestLimits()
        self._of_graphs = self._limits.of_graphs()

    def catalogue(self, pictures: Iterable[PictureFile] = ()) -> WorkflowCatalogue:
        """Names to choose from, for a client who has given these pictures."""
        given = [written(file) for file in pictures if file.type == "input"]
        return WorkflowCatalogue(self._models_folder, self._models, given)

    def described(self, pictures: Iterable[PictureFile], name: str | None) -> dict[str, Any]:
        """Nodes as `/object_info` has them; one that is not there is left out."""
        catalogue = self.catalogue(pictures)
        if name is None:
            return describe_all(self.registry, catalogue)
        return {name: describe(self.registry[name], catalogue)} if name in self.registry else {}

    def named(self, prompt: object) -> dict[str, PictureFile]:
        """The pictures that a graph nobody has looked at yet reads, by what it calls them."""
        nodes, _ = parse(prompt) if isinstance(prompt, dict) else ({}, {})
        known = [node for node in nodes.values() if node.class_type in self.registry]
        # Files written on Windows name folders with backslashes.
        return {name: read(name.replace("\\", "/")) for name in self._read_by(known) if _is_text(name)}

    def checked(self, submission: WorkflowSubmission, pictures: Sequence[PictureFile]) -> CheckedWorkflow:
        """Refuse what cannot run, with all that is wrong. `pictures`: those of its own that are there."""
        size = len(json.dumps([submission.prompt, submission.extra_data]))
        if size > MAX_BYTES_LENGTH:
            rule = f"the graph and its extra_data are {size} bytes as JSON, the limit is {MAX_BYTES_LENGTH}"
            raise RequestError([Problem("prompt", f"{rule}; leave out what does not belong to the pictures")])
        found = validate(
            submission.prompt, self.registry, self.catalogue(pictures), submission.partial_execution_targets
        )
        if found.error is not None:
            raise WorkflowRefusedError(found.as_dict(), found.lines())
        # What else is there has faults of its own, and is not going to run.
        sound = {name: found.graph[name] for name in walk(found.graph, found.outputs).order}
        inputs = {name: read(name) for name in self._read_by(sound.values())}
        if faults := list(self._over_limits(sound)):
            raise _refused(found, faults)
        values = [node.inputs for node in sound.values()]
        made = expected_size(sound, self.registry, most=self._limits.max_count)
        batch = max((extent.count for extents in made.values() for extent in extents), default=1)
        names = [name for one in values if isinstance(name := one.get("ckpt_name"), str)]
        return CheckedWorkflow(
            validation=found,
            inputs=inputs,
            model=names[0] if names else "",
            pictures=saved(sound, found.outputs, self.registry, made),
            cost=batch * max(1, sum(_number(one, "steps") or 0 for one in values)),
        )

    def _over_limits(self, graph: Graph) -> Iterator[tuple[str, str, str, str]]:
        for name, node in graph.items():
            for place, rule in self._of_graphs.over(self.registry[node.class_type], node.inputs):
                yield name, place, "value_bigger_than_max", rule

    def _read_by(self, nodes: Iterable[Node]) -> Iterator[str]:
        for node in nodes:
            for declared in self.registry[node.class_type].inputs:
                if declared.upload and isinstance(value := node.inputs.get(declared.name), str):
                    yield value

    def check_given(self, data: bytes) -> None:
        """Refuse a picture that is larger than those given with ordinary jobs may be."""
        if len(data) > self._limits.max_given_bytes:
            rule = f"is {len(data)} bytes, the limit here is {self._limits.max_given_bytes}"
            raise RequestError([Problem("image", rule)])

    def check_there(self, checked: CheckedWorkflow, missing: Collection[str]) -> None:
        """Refuse a workflow some of whose pictures are not there."""
        faults = [
            (name, place, "value_not_in_list", f"there is no picture {value[:80]!r}; send it first")
            for name, node in checked.validation.graph.items()
            for place, value in node.inputs.items()
            if isinstance(value, str) and value in missing
        ]
        if faults:
            raise _refused(checked.validation, faults)


def read(value: str) -> PictureFile:
    """The picture that a graph means by a name, such as `sub/a.png` or `a.png [output]`."""
    matched = _ANNOTATED.fullmatch(value)
    assert matched is not None
    subfolder, _, filename = matched["name"].rpartition("/")
    return PictureFile.model_validate(
        {"filename": filename, "subfolder": subfolder, "type": matched["type"] or "input"}
    )


def _is_text(value: str) -> bool:
    """JSON can say half a character, which no name has and no database takes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def written(file: PictureFile) -> str:
    """What a graph calls a given picture."""
    return f"{file.subfolder}/{file.filename}" if file.subfolder else file.filename


def _number(inputs: Mapping[str, Any], name: str) -> int | None:
    value = inputs.get(name)
    return value if isinstance(value, int) else None


def _refused(found: Validation, faults: Sequence[tuple[str, str, str, str]]) -> WorkflowRefusedError:
    """In the form of a graph that was found wrong."""
    node_errors: dict[str, Any] = dict(found.node_errors)
    lines = []
    for name, place, kind, rule in faults:
        node: Node = found.graph[name]
        known = node_errors.setdefault(
            name, {"errors": [], "dependent_outputs": list(found.outputs), "class_type": node.class_type}
        )
        known["errors"].append(
            {
                "type": kind,
                "message": "A value is over a limit"
                if kind != "value_not_in_list"
                else "A picture is missing",
                "details": f"{place}: {rule}",
                "extra_info": {"input_name": place, "received_value": node.inputs[place]},
            }
        )
        lines.append(f"node {name} ({node.class_type}): {place}: {rule}")
    error = {
        "type": "prompt_outputs_failed_validation",
        "message": "No output of the graph can be made",
        "details": "; ".join(lines),
        "extra_info": {},
    }
    return WorkflowRefusedError({"error": error, "node_errors": node_errors}, lines)
