# SPDX-License-Identifier: Apache-2.0
"""What the status of a pod, or of a namespace, means. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from nodepool.driver.framework.cloud_texts import one_line

#: These end by nobody's help but that of who wrote the label.
_FATAL: Final = frozenset({"InvalidImageName", "ErrImageNeverPull", "CrashLoopBackOff"})
#: These may mend themselves in a moment, e.g. when a controller copies a secret into the namespace.
_FATAL_LATER: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "PostStartHookError"}
)
#: An image that cannot be pulled: what the registry says decides.
_PULL: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"})
_TROUBLE: Final = _FATAL | _FATAL_LATER | _PULL
#: What a registry says when trying again does not help.
_NO_IMAGE: Final = (
    "not found",
    "manifest unknown",
    "does not exist",
    "unauthorized",
    "access denied",
    "access forbidden",
    "authentication required",
    "authorization failed",
    "no basic auth credentials",
    "invalid reference format",
    "no match for platform",
    "no matching manifest",
)


class Verdict(NamedTuple):
    """What a pod has come to.

    :param ready: it runs.
    :param problem: why it does not, in the cluster's words; "" = nothing is known to be wrong.
    :param fatal: it never will.
    :param later: it never will if this goes on for a few seconds.
    :param ended: it ran, or was evicted; no container of it starts again.
    """

    ready: bool = False
    problem: str = ""
    fatal: bool = False
    later: bool = False
    ended: bool = False


def of_pod(pod: dict[str, Any]) -> Verdict:
    """What the status of a pod means."""
    status = _dict(pod.get("status"))
    phase = str(status.get("phase") or "Pending")
    if phase in ("Failed", "Succeeded"):
        return Verdict(problem=_ended(phase, status), fatal=True, ended=True)
    statuses = list(_statuses(status))
    for name, state in statuses:
        found = _waiting(name, state)
        if found is not None:
            return found
    ended = next((_exit(name, state) for name, state in _statuses(status, init=False) if state.get("terminated")), "")
    if ended:
        # With a restartPolicy of its own it may come again, as another one.
        return Verdict(problem=ended, fatal=_dict(pod.get("spec")).get("restartPolicy") == "Never")
    if phase == "Running":
        return Verdict(ready=True)
    return Verdict(problem=_unscheduled(status))


def _waiting(name: str, state: dict[str, Any]) -> Verdict | None:
    """What it means that a container waits; None = nothing."""
    waiting = _dict(state.get("waiting"))
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason not in _TROUBLE:
        # Most events of a watch tell of containers that are well.
        return None
    text = one_line(f"container {name}: {reason}: {message}" if message else f"container {name}: {reason}")
    if reason in _FATAL:
        return Verdict(problem=text, fatal=True)
    if reason in _FATAL_LATER:
        return Verdict(problem=text, later=True)
    return Verdict(problem=text, fatal=any(found in message.lower() for found in _NO_IMAGE))


def _ended(phase: str, status: dict[str, Any]) -> str:
    words = [str(status[key]) for key in ("reason", "message") if status.get(key)]
    words += [_exit(name, state) for name, state in _statuses(status) if state.get("terminated")]
    return one_line(f"the pod is {phase}: {'; '.join(words)}" if words else f"the pod is {phase}")


def _exit(name: str, state: dict[str, Any]) -> str:
    ended = _dict(state.get("terminated"))
    words = [str(ended[key]) for key in ("reason", "message") if ended.get(key)]
    said = f" ({': '.join(words)})" if words else ""
    return one_line(f"container {name} ended with exit code {ended.get('exitCode')}{said}")


def _unscheduled(status: dict[str, Any]) -> str:
    """Why no node of the cluster took the pod, in the scheduler's words; "" = it did, or has not been tried."""
    for condition in status.get("conditions") or []:
        found = _dict(condition)
        if found.get("type") == "PodScheduled" and found.get("status") == "False":
            return one_line(f"{found.get('reason')}: {found.get('message')}")
    return ""


def _statuses(status: dict[str, Any], init: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
    """Containers and their states."""
    for key in ("initContainerStatuses", "containerStatuses") if init else ("containerStatuses",):
        for found in status.get(key) or []:
            yield str(_dict(found).get("name")), _dict(_dict(found).get("state"))


def why_terminating(namespace: dict[str, Any]) -> str:
    """What keeps a namespace that is being deleted, as far as its status says; "" = nothing does."""
    status = _dict(namespace.get("status"))
    words = []
    for condition in status.get("conditions") or []:
        found = _dict(condition)
        if found.get("status") == "True" and str(found.get("type")).startswith("Namespace"):
            words.append(f"{found.get('reason')}: {found.get('message')}")
    finalizers = [str(name) for name in _dict(namespace.get("metadata")).get("finalizers") or []]
    if finalizers:
        words.append(f"finalizers {', '.join(finalizers)}")
    return one_line("; ".join(words))


def _dict(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
