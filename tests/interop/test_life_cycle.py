# SPDX-License-Identifier: Apache-2.0
"""The Zuul client takes requests through their whole life against a running launcher with static hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.launcher_config import StaticHost, StaticProvider, static_hosts
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient


def test_single_node(workplace: Workplace, zuul: ZuulClient) -> None:
    """5.3: submit, fulfilled, lock, delete the request, in-use, used; the host is ready again."""
    provider = StaticProvider(static_hosts(1))
    workplace.launch(provider)
    znodes = workplace.znodes

    request = zuul.submit_and_wait(["small"], tenant="tenant-one")
    assert request.state == "fulfilled"
    (node_id,) = request.nodes
    node = znodes.node(node_id)
    assert node is not None
    assert node["state"] == "ready"
    assert node["allocated_to"] == request.id
    assert node["tenant_name"] == "tenant-one"
    assert znodes.node_lockers(node_id) == []

    nodeset = zuul.accept(request)
    assert znodes.request(request.id) is None
    assert len(znodes.node_lockers(node_id)) == 1
    zuul.use(nodeset)
    in_use = znodes.node(node_id)
    assert in_use is not None
    assert in_use["state"] == "in-use"
    zuul.give_back(nodeset)
    workplace.wait_nodes(provider)


def test_what_zuul_reads_of_a_node(workplace: Workplace, zuul: ZuulClient, sshd: SshServer) -> None:
    """S-2, 5.1: Zuul finds address, login and host keys of a host whose keys were scanned."""
    host = StaticHost(
        "127.3.0.1", ["small"], port=sshd.port, username="worker", check=True, host_keys=sshd.host_keys[:1]
    )
    workplace.launch(StaticProvider([host], pool_settings={"node-attributes": {"executor-zone": "here"}}))

    request = zuul.submit_and_wait(["small"])
    info = zuul.nodepool.getNodesetInfo(request, request.nodeset)
    assert (info.zone, info.provider, info.nodes) == ("here", "static-one", request.nodes)
    (node,) = zuul.accept(request).getNodes()
    assert (node.interface_ip, node.connection_port, node.username) == ("127.3.0.1", sshd.port, "worker")
    assert (node.connection_type, node.python_path, node.shell_type, node.slot) == ("ssh", "auto", None, 0)
    assert set(node.host_keys) == set(sshd.host_keys)
    assert node.attributes == {"executor-zone": "here"}


def test_several_nodes(workplace: Workplace, zuul: ZuulClient) -> None:
    """N-8, S-12: a request for several nodes gets them in the order of its labels, duplicates included."""
    hosts = [
        StaticHost("127.1.1.1", ["small"]),
        StaticHost("127.1.1.2", ["small"]),
        StaticHost("127.1.1.3", ["big", "huge"]),
    ]
    provider = StaticProvider(hosts)
    workplace.launch(provider)

    request = zuul.submit_and_wait(["small", "huge", "small"])
    assert request.state == "fulfilled"
    nodes = zuul.accept(request).getNodes()
    assert [node.id for node in nodes] == request.nodes
    assert len(set(request.nodes)) == 3
    assert nodes[1].interface_ip == "127.1.1.3"
    assert {nodes[0].interface_ip, nodes[2].interface_ip} == {"127.1.1.1", "127.1.1.2"}


def test_nodes_that_were_never_used(workplace: Workplace, zuul: ZuulClient) -> None:
    """5.3 step 5, C-9: nodes that were accepted and given back unused become free."""
    provider = StaticProvider(static_hosts(2))
    workplace.launch(provider)
    nodeset = zuul.accept(zuul.submit_and_wait(["small", "small"]))
    zuul.give_back(nodeset)
    workplace.wait_nodes(provider)


def test_requests_wait_for_nodes(workplace: Workplace, zuul: ZuulClient) -> None:
    """A-7, S-8: more requests than hosts: each gets its turn as nodes come back, none fails."""
    provider = StaticProvider(static_hosts(2))
    workplace.launch(provider)
    waiting = [zuul.submit(["small"]) for _ in range(6)]
    while waiting:
        ready = wait_for(
            "a completed request", lambda: [request for request in waiting if request.id in zuul.completed]
        )
        for submitted in ready:
            waiting.remove(submitted)
            request = zuul.wait(submitted)
            assert request.state == "fulfilled"
            nodeset = zuul.accept(request)
            zuul.use(nodeset)
            zuul.give_back(nodeset)
    workplace.wait_nodes(provider)


@pytest.mark.parametrize("labels", [["unknown"], ["small", "unknown"]])
def test_failed(workplace: Workplace, zuul: ZuulClient, labels: list[str]) -> None:
    """A-6, A-15: a request that nobody can serve fails, and Zuul is told."""
    provider = StaticProvider(static_hosts(1))
    workplace.launch(provider)
    request = zuul.submit_and_wait(labels)
    assert request.state == "failed"
    (pool,) = workplace.znodes.pools()
    stored = workplace.znodes.request(request.id)
    assert stored is not None
    assert stored["declined_by"] == [pool["id"]]
    assert zuul.nodepool.deleteNodeRequest(request.id)
    assert workplace.znodes.request(request.id) is None
    workplace.wait_nodes(provider)


def test_zuul_sees_the_labels(workplace: Workplace, zuul: ZuulClient) -> None:
    """7: Zuul's web page lists the labels of the registered pools."""
    workplace.launch(StaticProvider([StaticHost("127.1.1.1", ["one", "two"]), StaticHost("127.1.1.2", ["three"])]))
    (launcher,) = zuul.cache.getRegisteredLaunchers()
    assert launcher.supported_labels == {"one", "two", "three"}
