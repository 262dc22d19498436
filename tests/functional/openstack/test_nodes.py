# SPDX-License-Identifier: Apache-2.0
"""The Zuul client gets nodes from a real control plane, uses them and gives them back (L, K, D, O-8)."""

from __future__ import annotations

import pytest

from tests.functional.openstack.place import Place
from tests.functional.openstack.provider import OpenStackProvider


@pytest.mark.parametrize("count", [1, 5])
def test_one_request(place: Place, provider: OpenStackProvider, count: int) -> None:
    """L, K, N-8: one request for one node or for several; each is a server of its own, and its keys are known."""
    place.launch(provider)
    request = place.fulfilled(place.zuul.submit(["small"] * count))
    assert len(set(request.nodes)) == count
    servers = [place.cloud.server_of(node_id) for node_id in request.nodes]
    assert len({server.id for server in servers}) == count
    assert {server.status for server in servers} == {"ACTIVE"}
    nodes = place.zuul.accept(request)
    for node in nodes.getNodes():
        place.check_host_keys(node)
    place.zuul.use(nodes)
    place.zuul.give_back(nodes)
    place.wait_empty()
