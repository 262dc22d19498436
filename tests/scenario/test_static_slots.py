# SPDX-License-Identifier: Apache-2.0
"""Slots of static hosts that somebody else registered twice (rule S-10)."""

from __future__ import annotations

import json

import pytest

from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled, use_and_return
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

HOST = {"name": "127.2.1.1", "labels": ["small"], "host-key-checking": False}
STATIC = {"name": "one", "driver": "static", "pools": [{"name": "main", "nodes": [HOST]}]}


def add_twin(znodes: PoolZnodes, node_id: str, state: str) -> str:
    """Another node of the same slot; returns its id."""
    node = znodes.node(node_id) or {}
    return znodes.create_node(json.dumps({**node, "state": state, "allocated_to": None}).encode())


@pytest.mark.parametrize("state", ["used", "deleting"])
@pytest.mark.parametrize("launchers", [1, 2])
def test_node_beside_one_in_use_goes_without_successor(
    launch: Launch, znodes: PoolZnodes, state: str, launchers: int
) -> None:
    """S-8, S-10: nothing is handed out beside the node in use; returned, it comes back."""
    for _ in range(launchers):
        launch([STATIC])
    wait_for("the host is there", lambda: len(znodes.free_nodes()) == 1)
    request = znodes.submit(["small"])
    [node_id] = fulfilled(znodes, request)["nodes"]
    twin = add_twin(znodes, node_id, state)
    wait_for("the other one is gone", lambda: twin not in znodes.nodes())
    assert list(znodes.nodes()) == [node_id]
    waiting = znodes.submit(["small"])
    use_and_return(znodes, request)
    assert fulfilled(znodes, waiting)["nodes"] != [node_id]
    assert len(znodes.nodes()) == 1


def test_of_two_free_nodes_one_is_handed_out(launch: Launch, znodes: PoolZnodes) -> None:
    """S-10: the next request waits for the slot."""
    launch([STATIC])
    wait_for("the host is there", lambda: len(znodes.free_nodes()) == 1)
    [node_id] = znodes.nodes()
    twin = add_twin(znodes, node_id, "ready")
    requests = [znodes.submit(["small"]) for _ in range(2)]
    assert fulfilled(znodes, requests[0])["nodes"] == [node_id]
    wait_for("the other one is gone", lambda: twin not in znodes.nodes())
    use_and_return(znodes, requests[0])
    assert fulfilled(znodes, requests[1])["nodes"] not in ([node_id], [twin])
