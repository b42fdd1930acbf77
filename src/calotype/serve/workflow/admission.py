"""Admission of workflows: validates the graph, its images and the deployment's limits; without torch."""

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
"""Size limit of a graph with its extra data: each saved image contains both."""
_ANNOTATED = re.compile(r"(?P<name>.*?)(?: \[(?P<type>input|output|temp)\])?", re.DOTALL)


@dataclass(frozen=True)
class CheckedWorkflow:
    """A workflow that may be queued."""

    validation: Validation
    inputs: Mapping[str, PictureFile]
    """The images it reads, by their names in the graph."""
    model: str
    pictures: int
    """Expected number of saved images."""
    cost: int


class WorkflowAdmission:
    """Accepts or rejects workflows."""

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
        """Return the catalogue of a client with these uploads."""
        given = [written(file) for file in pictures if file.type == "input"]
        return WorkflowCatalogue(self._models_folder, self._models, given)

    def described(self, pictures: Iterable[PictureFile], name: str | None) -> dict[str, Any]:
        """Describe nodes in the format of `/object_info`; an unknown name gives an empty dict."""
        catalogue = self.catalogue(pictures)
        if name is None:
            return describe_all(self.registry, catalogue)
        return {name: describe(self.registry[name], catalogue)} if name in self.registry else {}

    def named(self, prompt: object) -> dict[str, PictureFile]:
        """Return the images that an unvalidated graph reads, by their names in the graph."""
        nodes, _ = parse(prompt) if isinstance(prompt, dict) else ({}, {})
        known = [node for node in nodes.values() if node.class_type in self.registry]
        # Graphs written on Windows use backslashes.
        return {name: read(name.replace("\\", "/")) for name in self._image_inputs(known) if _is_text(name)}

    def checked(self, submission: WorkflowSubmission, pictures: Sequence[PictureFile]) -> CheckedWorkflow:
        """Validate a workflow; raises with every problem. `pictures` are its existing inputs."""
        size = len(json.dumps([submission.prompt, submission.extra_data]))
        if size > MAX_BYTES_LENGTH:
            rule = f"the graph and its extra_data are {size} bytes as JSON, the limit is {MAX_BYTES_LENGTH}"
            raise RequestError([Problem("prompt", f"{rule}; remove data that the images do not need")])
        validation = validate(
            submission.prompt, self.registry, self.catalogue(pictures), submission.partial_execution_targets
        )
        if validation.error is not None:
            raise WorkflowRefusedError(validation.as_dict(), validation.lines())
        # Ignore nodes that no valid output needs: they do not run.
        valid_nodes = {
            name: validation.graph[name] for name in walk(validation.graph, validation.outputs).order
        }
        inputs = {name: read(name) for name in self._image_inputs(valid_nodes.values())}
        if problems := list(self._over_limits(valid_nodes)):
            raise _rejection(validation, problems)
        values = [node.inputs for node in valid_nodes.values()]
        sizes = expected_size(valid_nodes, self.registry, most=self._limits.max_count)
        batch = max((extent.count for extents in sizes.values() for extent in extents), default=1)
        names = [name for node_inputs in values if isinstance(name := node_inputs.get("ckpt_name"), str)]
        return CheckedWorkflow(
            validation=validation,
            inputs=inputs,
            model=names[0] if names else "",
            pictures=saved(valid_nodes, validation.outputs, self.registry, sizes),
            cost=batch * max(1, sum(_number(node_inputs, "steps") or 0 for node_inputs in values)),
        )

    def _over_limits(self, graph: Graph) -> Iterator[tuple[str, str, str, str]]:
        for name, node in graph.items():
            for place, rule in self._of_graphs.over(self.registry[node.class_type], node.inputs):
                yield name, place, "value_bigger_than_max", rule

    def _image_inputs(self, nodes: Iterable[Node]) -> Iterator[str]:
        for node in nodes:
            for declared in self.registry[node.class_type].inputs:
                if declared.upload and isinstance(value := node.inputs.get(declared.name), str):
                    yield value

    def check_given(self, data: bytes) -> None:
        """Reject an upload above the size limit of input images."""
        if len(data) > self._limits.max_given_bytes:
            rule = f"is {len(data)} bytes, the limit is {self._limits.max_given_bytes}; send a smaller image"
            raise RequestError([Problem("image", rule)])

    def check_there(self, checked: CheckedWorkflow, missing: Collection[str]) -> None:
        """Reject a workflow whose input images are missing."""
        problems = [
            (name, place, "value_not_in_list", f"there is no image {value[:80]!r}; upload it first")
            for name, node in checked.validation.graph.items()
            for place, value in node.inputs.items()
            if isinstance(value, str) and value in missing
        ]
        if problems:
            raise _rejection(checked.validation, problems)


def read(value: str) -> PictureFile:
    """Parse the name of an image in a graph, such as `sub/a.png` or `a.png [output]`."""
    matched = _ANNOTATED.fullmatch(value)
    assert matched is not None
    subfolder, _, filename = matched["name"].rpartition("/")
    return PictureFile.model_validate(
        {"filename": filename, "subfolder": subfolder, "type": matched["type"] or "input"}
    )


def _is_text(value: str) -> bool:
    """Whether a string is valid Unicode: JSON can contain a lone surrogate, which no database stores."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def written(file: PictureFile) -> str:
    """Return the name of an upload in a graph."""
    return f"{file.subfolder}/{file.filename}" if file.subfolder else file.filename


def _number(inputs: Mapping[str, Any], name: str) -> int | None:
    value = inputs.get(name)
    return value if isinstance(value, int) else None


def _rejection(validation: Validation, problems: Sequence[tuple[str, str, str, str]]) -> WorkflowRefusedError:
    """Return an error in ComfyUI's format of an invalid graph."""
    node_errors: dict[str, Any] = dict(validation.node_errors)
    lines = []
    for name, place, kind, rule in problems:
        node: Node = validation.graph[name]
        known = node_errors.setdefault(
            name, {"errors": [], "dependent_outputs": list(validation.outputs), "class_type": node.class_type}
        )
        known["errors"].append(
            {
                "type": kind,
                "message": "A value is over a limit"
                if kind != "value_not_in_list"
                else "An image is missing",
                "details": f"{place}: {rule}",
                "extra_info": {"input_name": place, "received_value": node.inputs[place]},
            }
        )
        lines.append(f"node {name} ({node.class_type}): {place}: {rule}")
    error = {
        "type": "prompt_outputs_failed_validation",
        "message": "The graph has no valid output",
        "details": "; ".join(lines),
        "extra_info": {},
    }
    return WorkflowRefusedError({"error": error, "node_errors": node_errors}, lines)
