# SPDX-License-Identifier: Apache-2.0
"""D-9 with launchers: idle nodes whose instances are gone are replaced; on all clouds: `LostMachineContract`."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model.event import Event, What
from tests.support.aws_place import AwsPlace
from tests.support.cloud_place import CloudPlace
from tests.support.cloud_site import CloudSite
from tests.support.openstack_place import Place
from tests.support.wait import wait_for


def ready(place: CloudPlace) -> dict[str, Any]:
    """Waits for the one ready node of ``min-ready``."""

    def find() -> list[dict[str, Any]]:
        nodes = [{**node, "id": node_id} for node_id, node in place.znodes.nodes().items()]
        found = [node for node in nodes if node["state"] == "ready" and not node["allocated_to"]]
        return found if len(nodes) == 1 else []

    return wait_for("there is a ready node", find)[0]


@pytest.fixture(params=["place", "aws"])
def cloud(request: pytest.FixtureRequest, site: CloudSite) -> CloudPlace:
    place: CloudPlace = request.getfixturevalue(request.param)
    place.label_settings["small"] = {"min-ready": 1}
    if isinstance(place, AwsPlace):
        place.label["use-spot"] = True
    return place


def test_replaced(cloud: CloudPlace) -> None:
    """Somebody deletes a server of OpenStack; AWS takes a spot instance away. An event says why."""
    cloud.launch()
    lost = ready(cloud)
    with cloud.simulator.cloud() as inside:
        if isinstance(cloud, Place):
            inside.compute.remove(inside.compute.servers.get(lost["external_id"]))
        else:
            inside.instances.interrupt(inside.instances.instances[lost["external_id"]["instance"]])

    def replaced() -> bool:
        # The launcher's own sweep may run just now; then this one does nothing.
        cloud.provider.cleanupLeakedResources()
        return lost["id"] not in cloud.znodes.nodes()

    wait_for("the node is deleted", replaced)
    request = cloud.znodes.submit(["small"])
    (node,) = cloud.fulfilled(request)
    assert node["external_id"] != lost["external_id"]

    def told() -> list[Event]:
        assert cloud.launcher is not None
        return [event for event in cloud.launcher.nodepool.events.last(100) if event.what == What.INSTANCE_LOST.value]

    (event,) = wait_for("an event says so", told)
    assert event.subject == f"node {lost['id']}"
    assert event.code == ("NotFound" if isinstance(cloud, Place) else "Server.SpotInstanceTermination")
    assert event.text.endswith("; the node is deleted")
