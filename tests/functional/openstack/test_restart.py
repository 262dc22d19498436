# SPDX-License-Identifier: Apache-2.0
"""A launcher that is killed while it launches: the next one goes on, and nothing is made twice or left behind."""

from __future__ import annotations

import signal

import pytest

from tests.functional.openstack.place import SERVED_SECONDS, Place
from tests.functional.openstack.provider import OpenStackProvider
from tests.support.wait import wait_for

#: How long the locks of a killed launcher live on.
KILLED_SESSION_SECONDS = 4.0
#: Requests under way.
COUNT = 4


@pytest.mark.parametrize("moment", ["a node is building", "a server is there", "a node is ready"])
def test_killed_in_mid_launch(place: Place, provider: OpenStackProvider, moment: str) -> None:
    """C-4: SIGKILL at different moments; every request is fulfilled, each node has one server."""
    moments = {
        "a node is building": lambda: place.znodes.nodes("building"),
        "a server is there": place.cloud.servers,
        "a node is ready": lambda: place.znodes.nodes("ready"),
    }
    first = place.launch(provider, session_seconds=KILLED_SESSION_SECONDS)
    requests = [place.zuul.submit(["small"]) for _ in range(COUNT)]
    wait_for(moment, moments[moment], SERVED_SECONDS)
    first.kill()
    assert first.returncode == -signal.SIGKILL
    # The registration of the killed one may still be there: it says nothing about the new one.
    place.launch(provider, wait=False)
    for request in requests:
        place.fulfilled(request)
    for request in requests:
        (node_id,) = (place.znodes.request(request.id) or {})["nodes"]
        assert place.cloud.server_of(node_id).status == "ACTIVE"
    for request in requests:
        place.use(place.fulfilled(request))
    place.wait_empty()


def test_stopped_in_mid_launch(place: Place, provider: OpenStackProvider) -> None:
    """SIGTERM while it launches: it ends soon, and what it began is finished or undone by the next one."""
    first = place.launch(provider)
    requests = [place.zuul.submit(["small"]) for _ in range(COUNT)]
    wait_for("a server is there", place.cloud.servers, SERVED_SECONDS)
    assert first.stop(signal.SIGTERM, 60) == 0
    place.launch(provider, wait=False)
    for request in requests:
        place.use(place.fulfilled(request))
    place.wait_empty()
