# SPDX-License-Identifier: Apache-2.0
"""Projects that were deleted, and projects in which we have no rights yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudSetup
from nodepool.driver.kubernetes.client import NotYet
from nodepool.driver.openshift.adapter import (
    MANY_PROJECTS,
    RIGHTS_SECONDS,
    ProjectCloud,
)
from nodepool.exceptions import NotFound
from tests.support.manual_clock import ManualClock
from tests.unit.driver.kubernetes.stand_in import StandIn

PATH = "/apis/project.openshift.io/v1/projects/os-7"
FORBIDDEN = CloudSetup("forbidden", 403)


def project(name: str = "os-7") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": "u", "labels": {"nodepool_provider_name": "os", "nodepool_node_id": "7"}}}


@pytest.fixture
def client() -> StandIn:
    return StandIn()


@pytest.fixture
def cloud(client: StandIn) -> Iterator[ProjectCloud]:
    made = ProjectCloud("os", client)
    made.clock = ManualClock()
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("seen", "answers", "looks"),
    [
        # OpenShift says 403 of a project that was deleted: of one that we saw before that is the proof.
        ("os-7", {"GET": FORBIDDEN}, [("get", 0, NotFound), ("delete", 0, NotFound)]),
        # One that is there was not deleted because we may not delete it.
        ("os-7", {"GET": project(), "DELETE": FORBIDDEN}, [("delete", 0, CloudSetup)]),
        # Of one that was not seen yet it proves nothing, until the time for rights is over.
        (
            "",
            {"GET": FORBIDDEN},
            [("delete", 0, NotYet), ("get", RIGHTS_SECONDS / 2, NotYet), ("get", RIGHTS_SECONDS / 2, NotFound)],
        ),
        # Rights that come late: who deletes it tries again, and finds it.
        ("", {"GET": [FORBIDDEN, project()]}, [("delete", 0, NotYet), ("delete", 0, None)]),
        # KU-10: the next attempt has the same name: what was seen of the one before says nothing.
        ("again", {"GET": FORBIDDEN}, [("get", 0, NotYet)]),
        # Projects that others delete are forgotten, when there are many.
        ("many", {"GET": FORBIDDEN}, [("get", 0, NotYet)]),
    ],
)
def test_projects_without_rights(cloud: ProjectCloud, client: StandIn, seen: str, answers: Any, looks: Any) -> None:
    """KU-10, OS-1, OS-5: was a project deleted, or have our rights not come yet?"""
    if seen:
        others = [project(f"os-{number}") for number in range(MANY_PROJECTS)]
        client.lists = [([*others, project()] if seen == "many" else [project()], "1"), ([project("os-new")], "2")]
        cloud.list_instances(None)
    if seen == "again":
        cloud.awaited("os-7", None)
    if seen == "many":
        cloud.list_instances(None)
    client.answers.update({(method, PATH): answer for method, answer in answers.items()})
    for what, seconds, kind in looks:
        cloud.clock.pass_seconds(seconds)  # type: ignore[attr-defined]
        look = cloud.get_instance if what == "get" else cloud.delete_instance
        if kind is None:
            look("os-7")
            assert client.calls[-1][:2] == ("DELETE", PATH)
        else:
            with pytest.raises(kind):
                look("os-7")
