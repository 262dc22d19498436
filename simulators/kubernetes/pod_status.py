# SPDX-License-Identifier: Apache-2.0
"""What the scheduler and the kubelet write into a pod's status."""

from __future__ import annotations

from typing import Any, Final

from simulators.kubernetes import settings as outcomes
from simulators.kubernetes.settings import PodRule

Json = dict[str, Any]

#: Outcome -> reasons with which the container waits (at once, and after a while), and what the kubelet says.
WAITING: Final = {
    outcomes.IMAGE_PULL_ERROR: (
        ("ErrImagePull", "ImagePullBackOff"),
        'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found',
    ),
    outcomes.CONFIG_ERROR: (
        ("CreateContainerConfigError", "CreateContainerConfigError"),
        'secret "credentials" not found',
    ),
    outcomes.INVALID_IMAGE: (
        ("InvalidImageName", "InvalidImageName"),
        'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": invalid reference format',
    ),
}


def _set_condition(pod: Json, kind: str, status: str, stamp: str, **more: str) -> None:
    conditions = [entry for entry in pod["status"].get("conditions") or () if entry["type"] != kind]
    conditions.append({"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": stamp, **more})
    pod["status"]["conditions"] = conditions


def unschedulable(pod: Json, message: str, stamp: str) -> None:
    """No node has room."""
    conditions: list[Json] = pod["status"].get("conditions") or []
    before = next((entry for entry in conditions if entry["type"] == "PodScheduled"), {})
    stamp = before.get("lastTransitionTime", stamp)
    _set_condition(pod, "PodScheduled", "False", stamp, reason="Unschedulable", message=message)


def scheduled(pod: Json, stamp: str) -> None:
    """It has a node."""
    _set_condition(pod, "PodScheduled", "True", stamp)


def _containers(pod: Json, state: Json, ready: bool, restarts: int = 0) -> None:
    pod["status"]["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": f"simulated://{container['image']}" if "waiting" not in state else "",
            "state": state,
            "lastState": {},
            "ready": ready,
            "restartCount": restarts,
            "started": "running" in state,
        }
        for container in pod["spec"]["containers"]
    ]
    reason = {} if ready else {"reason": "ContainersNotReady"}
    for kind in ("Ready", "ContainersReady"):
        _set_condition(pod, kind, "True" if ready else "False", pod["status"]["startTime"], **reason)


def creating(pod: Json, stamp: str) -> None:
    """The kubelet has it."""
    pod["status"] |= {"hostIP": "127.0.0.1", "startTime": stamp, "qosClass": "BestEffort"}
    _set_condition(pod, "Initialized", "True", stamp)
    _containers(pod, {"waiting": {"reason": "ContainerCreating"}}, ready=False)


def running(pod: Json, address: str, stamp: str) -> None:
    """Its containers run."""
    pod["status"] |= {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    _containers(pod, {"running": {"startedAt": stamp}}, ready=True)


def waiting(pod: Json, rule: PodRule, first: bool, stamp: str) -> None:
    """Its containers cannot start."""
    (at_once, later), text = WAITING[rule.outcome]
    image = pod["spec"]["containers"][0]["image"]
    message = (rule.message or text).format(image=image)
    if not first:
        message = f'Back-off pulling image "{image}"'
    _containers(pod, {"waiting": {"reason": at_once if first else later, "message": message}}, ready=False)


def _terminated(failed: bool, stamp: str) -> Json:
    reason = "Error" if failed else "Completed"
    return {"exitCode": 1 if failed else 0, "reason": reason, "startedAt": stamp, "finishedAt": stamp}


def ended(pod: Json, failed: bool, stamp: str) -> None:
    """Its containers ended, and are not started again."""
    pod["status"]["phase"] = "Failed" if failed else "Succeeded"
    _containers(pod, {"terminated": _terminated(failed, stamp)}, ready=False)


def crashed(pod: Json, failed: bool, stamp: str) -> None:
    """Its containers ended, and are started again and again."""
    pod["status"]["phase"] = "Running"
    message = f"back-off 5m0s restarting failed container={pod['spec']['containers'][0]['name']}"
    _containers(pod, {"waiting": {"reason": "CrashLoopBackOff", "message": message}}, ready=False, restarts=3)
    for entry in pod["status"]["containerStatuses"]:
        entry["lastState"] = {"terminated": _terminated(failed, stamp)}
