# SPDX-License-Identifier: Apache-2.0
"""Projects that are gone, and projects in which we have no rights yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudSetup
from nodepool.driver.kubernetes.errors import NotYet
from nodepool.driver.openshift.adapter import FORGOTTEN_SECONDS, MANY_PROJECTS, RIGHTS_SECONDS, ProjectCloud
from nodepool.exceptions import NotFound
from tests.support.manual_clock import ManualClock
from tests.unit.driver.kubernetes.stand_in import StandIn

PROJECT = ("GET", "/apis/project.openshift.io/v1/projects/os-7")
FORBIDDEN = CloudSetup("forbidden", 403)


def project(name: str = "os-7") -> dict[str, Any]:
    labels = {"nodepool_provider_name": "os", "nodepool_node_id": "7"}
    return {"metadata": {"name": name, "uid": "u", "labels": labels}}


@pytest.fixture
def client() -> StandIn:
    return StandIn()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cloud(client: StandIn, clock: ManualClock) -> Iterator[ProjectCloud]:
    made = ProjectCloud("os", client)
    made.clock = clock
    yield made
    made.stop()


def test_rights_that_went_with_the_project(cloud: ProjectCloud, client: StandIn) -> None:
    """OS-5: OpenShift says 403 of a project that is gone: of one that we saw before that is the proof."""
    client.lists = [([project()], "1")]
    cloud.list_instances(None)
    client.answers[PROJECT] = FORBIDDEN
    for look in (cloud.get_instance, cloud.delete_instance):
        with pytest.raises(NotFound):
            look("os-7")


def test_only_the_deletion_is_forbidden(cloud: ProjectCloud, client: StandIn) -> None:
    """OS-5: a project that is there is not gone because we may not delete it."""
    client.lists = [([project()], "1")]
    cloud.list_instances(None)
    client.answers["DELETE", PROJECT[1]] = FORBIDDEN
    client.answers[PROJECT] = project()
    with pytest.raises(CloudSetup, match="forbidden"):
        cloud.delete_instance("os-7")


def test_rights_that_have_not_come_yet(cloud: ProjectCloud, client: StandIn, clock: ManualClock) -> None:
    """OS-1: of a project that nobody saw yet the same answer proves nothing, until the time for rights is over."""
    client.answers[PROJECT] = FORBIDDEN
    with pytest.raises(NotYet):
        cloud.delete_instance("os-7")
    clock.pass_seconds(RIGHTS_SECONDS / 2)
    with pytest.raises(NotYet):
        cloud.get_instance("os-7")
    clock.pass_seconds(RIGHTS_SECONDS / 2)
    with pytest.raises(NotFound):
        cloud.get_instance("os-7")


def test_rights_that_come_late(cloud: ProjectCloud, client: StandIn, clock: ManualClock) -> None:
    """OS-1: whoever deletes it tries again, and finds it."""
    client.answers[PROJECT] = [FORBIDDEN, project()]
    with pytest.raises(NotYet):
        cloud.delete_instance("os-7")
    cloud.delete_instance("os-7")
    assert client.calls[-1][:2] == ("DELETE", PROJECT[1])


def test_next_project_of_the_name(cloud: ProjectCloud, client: StandIn) -> None:
    """KU-10: the next attempt has the same name: what was seen of the one before says nothing."""
    client.lists = [([project()], "1")]
    cloud.list_instances(None)
    cloud.awaited("os-7", None)
    client.answers[PROJECT] = FORBIDDEN
    with pytest.raises(NotYet):
        cloud.get_instance("os-7")


def test_memory_is_bounded(cloud: ProjectCloud, client: StandIn, clock: ManualClock) -> None:
    """OS-5: projects that others delete are forgotten."""
    client.lists = [([project(f"os-{number}") for number in range(MANY_PROJECTS)], "1"), ([project("os-new")], "2")]
    cloud.list_instances(None)
    clock.pass_seconds(FORGOTTEN_SECONDS)
    cloud.list_instances(None)
    client.answers["GET", "/apis/project.openshift.io/v1/projects/os-5"] = FORBIDDEN
    with pytest.raises(NotYet):
        cloud.get_instance("os-5")
