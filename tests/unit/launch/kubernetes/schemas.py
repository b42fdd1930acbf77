"""Manifests against the schemas of those who read them: Kubernetes and Kubeflow, as they publish them.

Kubeflow's models drop keys they do not know: what comes back has to be what went in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import kubernetes_validate
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
from pydantic import ValidationError

Object = Mapping[str, Any]


def faults(manifest: Object) -> list[str]:
    """What its schema has against a manifest."""
    match manifest["apiVersion"], manifest["kind"]:
        case "trainer.kubeflow.org/v1alpha1", "TrainJob":
            return _train_job(manifest)
        case "kubeflow.org/v1", "PyTorchJob":
            return _pytorch_job(manifest)
        case _:
            return _built_in(manifest)


def _built_in(manifest: Object) -> list[str]:
    try:
        kubernetes_validate.validate(dict(manifest), "1.34", strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'/'.join(map(str, error.path))}: {error.message}"]
    return []


def _train_job(manifest: Object) -> list[str]:
    try:
        back = TrainerV1alpha1TrainJob.from_dict(json.loads(json.dumps(manifest)))
    except ValidationError as error:
        return [str(each) for each in error.errors()]
    assert back is not None
    return _differences(manifest, back.to_dict())


def _pytorch_job(manifest: Object) -> list[str]:
    from kubeflow.training.api_client import ApiClient

    class Answer:
        data = json.dumps(manifest)

    api = ApiClient()
    try:
        back = api.deserialize(Answer, "KubeflowOrgV1PyTorchJob")
    except (TypeError, ValueError) as error:
        return [str(error)]
    # Its pods are Kubernetes's own, of which there is a full schema.
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": replica["template"]["spec"]}
        for replica in manifest["spec"]["pytorchReplicaSpecs"].values()
    ]
    return _differences(manifest, api.sanitize_for_serialization(back)) + [
        fault for pod in pods for fault in _built_in(pod)
    ]


def _differences(sent: Any, back: Any, path: str = "") -> list[str]:
    if isinstance(sent, Mapping) and isinstance(back, Mapping):
        known = [
            fault
            for key in sent.keys() & back.keys()
            for fault in _differences(sent[key], back[key], f"{path}/{key}")
        ]
        return known + [f"{path}/{key} is not known" for key in sorted(sent.keys() ^ back.keys())]
    if isinstance(sent, list) and isinstance(back, list) and len(sent) == len(back):
        pairs = enumerate(zip(sent, back, strict=True))
        return [fault for number, (a, b) in pairs for fault in _differences(a, b, f"{path}/{number}")]
    return [] if sent == back else [f"{path}: {sent!r} became {back!r}"]
