# SPDX-License-Identifier: Apache-2.0
"""What the status of a pod means."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.kubernetes.records import Verdict, of_pod, why_terminating


def pod(phase: str, state: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    statuses = [{"name": "c", "state": state}] if state else []
    return {"spec": {"restartPolicy": "Never"}, "status": {"phase": phase, "containerStatuses": statuses, **more}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def test_running() -> None:
    """KU-9: a pod that runs is a node."""
    assert of_pod(pod("Running", {"running": {}})) == Verdict(ready=True)
    assert of_pod({}) == Verdict()


@pytest.mark.parametrize(
    ("state", "fatal", "later"),
    [
        (waiting("ErrImagePull", 'rpc error: image "x": not found'), True, False),
        (waiting("ErrImagePull", "pull access denied, authentication required"), True, False),
        (waiting("ErrImagePull", "dial tcp: i/o timeout"), False, False),
        (waiting("ImagePullBackOff", 'Back-off pulling image "x"'), False, False),
        (waiting("InvalidImageName"), True, False),
        (waiting("ErrImageNeverPull"), True, False),
        (waiting("CrashLoopBackOff"), True, False),
        (waiting("CreateContainerConfigError", 'secret "s" not found'), False, True),
    ],
)
def test_container_that_waits(state: dict[str, Any], fatal: bool, later: bool) -> None:
    """KU-10: what can mend itself waits, what cannot fails; both say why."""
    verdict = of_pod(pod("Pending", state))
    assert (verdict.fatal, verdict.later) == (fatal, later)
    assert state["waiting"]["reason"] in verdict.problem
    assert state["waiting"]["message"] in verdict.problem
    assert not verdict.ready


def test_container_that_is_made() -> None:
    """KU-10: a container that is being created is no problem."""
    assert of_pod(pod("Pending", waiting("ContainerCreating"))) == Verdict()


def test_container_that_ended() -> None:
    """KU-4: a container that ends is a node that failed, at once."""
    ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
    assert of_pod(pod("Failed", ended)).fatal
    assert "exit code 3" in of_pod(pod("Failed", ended)).problem
    assert of_pod(pod("Running", ended)).fatal
    assert "Evicted: no disk" in of_pod(pod("Failed", reason="Evicted", message="no disk")).problem.replace(";", ":")


def test_unschedulable() -> None:
    """KU-10: the scheduler's own words; a cluster may get another node, so it waits."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu.",
    }
    verdict = of_pod(pod("Pending", conditions=[condition]))
    assert verdict == Verdict(problem="Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.")


def test_namespace_that_stays() -> None:
    """KU-11: the finalizer that holds it is told."""
    condition = {
        "type": "NamespaceFinalizersRemaining",
        "status": "True",
        "reason": "SomeFinalizersRemain",
        "message": "Some content has finalizers remaining: example.com/hold in 1 resource instances",
    }
    found = why_terminating({"metadata": {}, "status": {"conditions": [condition]}})
    assert "example.com/hold" in found
    assert why_terminating({"metadata": {"finalizers": ["a/b"]}}) == "finalizers a/b"
    assert why_terminating({}) == ""
