# SPDX-License-Identifier: Apache-2.0
"""The OpenStack driver in a running launcher while its cloud is full, forgetful, busy or away (Q, D, L, F-5)."""

from __future__ import annotations

import pytest

from tests.support.openstack_place import Place
from tests.support.wait import wait_for


def test_quota(place: Place) -> None:
    """Q, L-7, O-3: requests over the quota of the cloud wait, and all are served."""
    place.simulator.change(quota={"instances": 3})
    place.launch()
    waiting = [place.znodes.submit(["small"]) for _ in range(8)]

    def serve() -> bool:
        for request in list(waiting):
            state = place.znodes.request_state(request)
            assert state != "failed"
            if state == "fulfilled":
                place.give_back(request)
                waiting.remove(request)
        return not waiting

    wait_for("all are served", serve)
    place.wait_empty()
    assert place.simulator.state()["peak_servers"] <= 3


@pytest.mark.parametrize("kind", ["500", "drop", "html"])
def test_lost_answers(place: Place, kind: str) -> None:
    """Every third creation works, but its answer is lost; no node gets two servers, none is left."""
    place.simulator.change(
        errors=[{"operation": "compute.create_server", "kind": kind, "after": True, "count": 4}],
        hidden_rate=0.5,
        hidden_seconds=[0.3, 0.6],
    )
    place.launch()
    requests = [place.znodes.submit(["small"]) for _ in range(8)]
    for request in requests:
        place.fulfilled(request)
    assert place.contents()["servers"] == 8
    for request in requests:
        place.give_back(request)
    place.wait_empty()
    assert place.calls("compute.create_server") == 8, "what was made was found"


def test_swallowed_deletions(place: Place) -> None:
    """A deletion that was accepted and forgotten, or that went wrong, is sent again."""
    rules = [{"kind": "swallowed", "count": 2}, {"kind": "error", "count": 1}]
    place.simulator.change(deletes=rules)
    place.launch()
    requests = [place.znodes.submit(["small"]) for _ in range(4)]
    for request in requests:
        place.fulfilled(request)
    for request in requests:
        place.give_back(request)
    place.wait_empty()
    assert place.calls("compute.delete_server") >= 7


def test_error_servers(place: Place) -> None:
    """O-4, L-4: an ERROR server is deleted, and the launch tried again; the last attempt fails the request."""
    place.simulator.change(boots=[{"kind": "error", "count": 2}])
    place.launch()
    first = place.znodes.submit(["small"])
    place.fulfilled(first)
    place.give_back(first)
    place.simulator.change(boots=[{"kind": "no-valid-host"}])
    second = place.znodes.submit(["small"])
    place.failed(second)
    place.wait_empty()
    assert place.calls("compute.create_server") == 3 + 3


def test_leaks(place: Place) -> None:
    """D-2, D-5, D-6, D-7: server, port and floating IP that nobody knows go; what is not ours stays."""
    place.section["port-cleanup-interval"] = 0.001
    place.section["clean-floating-ips"] = True
    place.launch()
    ours = {"nodepool_provider_name": "cloud-a", "nodepool_node_id": "9999999999", "nodepool_pool_name": "main"}
    with place.simulator.cloud() as cloud:
        leaked = cloud.add_server(metadata=ours)
        foreign = cloud.add_server(metadata={**ours, "nodepool_provider_name": "other"})
        cloud.add_port(device_owner="compute:nova")
        cloud.add_floating_ip()

    def gone() -> bool:
        # The launcher's own sweep may run just now; then this one does nothing.
        place.provider.cleanupLeakedResources()
        with place.simulator.cloud() as cloud:
            servers = {server.id for server in cloud.compute.servers if not server.gone}
            ports = [port for port in cloud.network.ports if port["status"] == "DOWN"]
        return servers == {foreign.id} and not ports and place.contents()["floating_ips"] == 0

    wait_for("what was leaked is gone", gone)
    assert leaked.id != foreign.id


def test_busy_cloud(place: Place) -> None:
    """429 with Retry-After: the calls are made later, and nothing fails."""
    rule = {"operation": "compute.*", "kind": "429", "retry_after": 1, "count": 3}
    place.simulator.change(errors=[rule])
    place.launch()
    request = place.znodes.submit(["small"])
    place.fulfilled(request)
    place.give_back(request)
    place.wait_empty()


def test_cloud_is_away_for_a_while(place: Place) -> None:
    """F-5: nothing is declined, and all goes on when the cloud is back."""
    place.launch()
    first = place.znodes.submit(["small"])
    place.fulfilled(first)
    place.simulator.change(errors=[{"operation": "*", "kind": "503"}])
    second = place.znodes.submit(["small"])
    place.give_back(first)
    wait_for("the circuit breaker opens", lambda: place.provider.calls.circuit_open)
    assert place.znodes.request_state(second) in ("requested", "pending")
    place.simulator.change(errors=[])
    place.fulfilled(second)
    place.give_back(second)
    place.wait_empty()
