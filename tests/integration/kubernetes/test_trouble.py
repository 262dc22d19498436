# SPDX-License-Identifier: Apache-2.0
"""Pods that cannot come up, and quotas of a cluster (KU, OS-5)."""

from __future__ import annotations

import pytest

from nodepool.testing.kubernetes import KubernetesSimulator
from tests.support.kubernetes_place import PROJECT, PodPlace, every_driver
from tests.support.wait import wait_for


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("image-pull-error", "ImagePull"),
        ("config-error", "CreateContainerConfigError"),
        ("invalid-image", "InvalidImageName"),
        ("failed", "Failed"),
    ],
)
@every_driver
def test_a_pod_that_cannot_come_up(
    place: PodPlace, simulator: KubernetesSimulator, driver: str, outcome: str, reason: str
) -> None:
    """It says why, and is not waited for; what was made goes; the request fails when no attempt is left."""
    simulator.change(pods=[{"outcome": outcome}])
    place.provider.section["launch-retries"] = 2
    # The default; a test that waited for it would fail.
    place.provider.section["launch-timeout"] = 300
    place.launch()
    request = place.submit()
    place.failed(request)
    place.logged(reason)
    place.wait_empty()


def test_a_pod_that_fits_nowhere_waits(place: PodPlace, simulator: KubernetesSimulator) -> None:
    """The scheduler's words are told, and the pod runs when there is room."""
    with simulator.cloud() as cluster:
        cluster.add_namespace("foreign")
    place.provider.label["node-selector"] = {"kind": "fast"}
    place.launch()
    request = place.submit()
    place.logged("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")
    with simulator.cloud() as cluster:
        cluster.add_node("node-2", labels={"kind": "fast"})
    place.fulfilled(request)
    place.give_back(request)
    place.wait_empty(lambda: [name for name in place.cluster.names() if name != "foreign"])


@pytest.mark.parametrize("driver", ["openshiftpods"], indirect=True)
def test_a_quota_of_the_project_waits(place: PodPlace, simulator: KubernetesSimulator, driver: str) -> None:
    """403 "exceeded quota" is no failure: requests wait, say for what, and all are served."""
    with simulator.cloud() as cluster:
        cluster.add_quota(PROJECT, pods="2")
    place.launch()
    waiting = [place.submit() for _ in range(5)]
    wait_for("two are served", lambda: len(_fulfilled(place, waiting)) == 2)
    (last,) = [request for request in waiting[-1:] if request not in _fulfilled(place, waiting)] or [waiting[0]]
    if last not in _fulfilled(place, waiting):
        place.explained(last, "quota")

    def serve() -> bool:
        for request in _fulfilled(place, waiting):
            place.give_back(request)
            waiting.remove(request)
        assert not [request for request in waiting if place.znodes.request_state(request) == "failed"]
        return not waiting

    wait_for("all are served", serve)
    place.wait_empty()


def _fulfilled(place: PodPlace, requests: list[str]) -> list[str]:
    return [request for request in requests if place.znodes.request_state(request) == "fulfilled"]


@pytest.mark.parametrize("driver", ["openshift"], indirect=True)
def test_a_limit_of_projects_does_not_fail_requests(
    place: PodPlace, simulator: KubernetesSimulator, driver: str
) -> None:
    """OS-5: a node over the limit of projects is not a failed attempt; what is made fits."""
    simulator.change(project_limit=2)
    place.provider.pool["max-servers"] = 2
    place.launch()
    waiting = [place.submit() for _ in range(4)]

    def serve() -> bool:
        for request in _fulfilled(place, waiting):
            place.give_back(request)
            waiting.remove(request)
        assert not [request for request in waiting if place.znodes.request_state(request) == "failed"]
        return not waiting

    wait_for("all are served", serve)
    place.wait_empty()
