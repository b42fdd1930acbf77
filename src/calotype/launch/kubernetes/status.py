"""Derives the status of a job from the conditions of its object and its pods."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.launch.backend import JobState, JobStatus
from calotype.launch.kubernetes.job_kind import JobKind, Object, holding
from calotype.launch.kubernetes.pod_watch import Pod, exit_code, phase, restarts, why_waiting


def state_of(each: Object, pods: Sequence[Pod], kind: JobKind) -> JobStatus:
    conditions = holding(each.get("status", {}).get("conditions", []))
    nodes = {pod["spec"]["nodeName"] for pod in pods if pod.get("spec", {}).get("nodeName")}
    state, reason = _state(conditions, pods, kind)
    codes = [code for pod in pods if (code := exit_code(pod, kind.container)) is not None]
    return JobStatus(
        state=state,
        reason=reason,
        exit_code=max(codes, default=None) if state.is_over else None,
        restarts=max((restarts(pod) for pod in pods), default=0),
        nodes=tuple(sorted(nodes)),
    )


def _state(conditions: dict[str, Object], pods: Sequence[Pod], kind: JobKind) -> tuple[JobState, str]:
    for name, state in kind.ends.items():
        if name in conditions:
            condition = conditions[name]
            if state is JobState.COMPLETED:
                return state, ""
            # v2 has a reason for it, v1 only a message.
            in_time = (
                "deadline" not in f"{condition.get('reason', '')} {condition.get('message', '')}".lower()
            )
            return state if in_time else JobState.TIMED_OUT, str(condition.get("message", ""))
    if "Suspended" in conditions:
        return JobState.PENDING, str(conditions["Suspended"].get("message") or "it is suspended")
    if any(phase(pod) == "Running" for pod in pods):
        return JobState.RUNNING, ""
    return JobState.PENDING, next((why for pod in pods if (why := why_waiting(pod))), "")
