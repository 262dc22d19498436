# SPDX-License-Identifier: Apache-2.0
"""The Zuul client cancels, revises, holds, and dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.launcher_config import StaticHost, StaticProvider, static_hosts
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient, ZuulLog


def test_cancel_while_waiting(workplace: Workplace, zuul: ZuulClient) -> None:
    """4.6: a cancelled request that waits for a node gets none; the next one does."""
    provider = StaticProvider(static_hosts(1))
    workplace.launch(provider)
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(nodeset)
    cancelled, next_one = zuul.submit(["small"]), zuul.submit(["small"])
    zuul.cancel(cancelled)
    zuul.give_back(nodeset)
    request = zuul.wait(next_one)
    assert request.state == "fulfilled"
    assert cancelled.id not in zuul.completed
    zuul.give_back(zuul.accept(request))
    workplace.wait_nodes(provider)


def test_cancel_while_being_served(workplace: Workplace, zuul: ZuulClient) -> None:
    """4.6: cancelled at any moment of being served: nothing stays allocated or locked, nothing is lost."""
    provider = StaticProvider(static_hosts(2))
    workplace.launch(provider)
    for _ in range(20):
        requests = [zuul.submit(["small", "small"]), zuul.submit(["small"])]
        zuul.cache.getNodeRequest(requests[0].id)  # one round trip: the launcher has seen it or sees it now
        for request in requests:
            zuul.cancel(request)
    workplace.wait_nodes(provider)
    assert zuul.submit_and_wait(["small", "small"]).state == "fulfilled"


def test_cancel_after_fulfilled(workplace: Workplace, zuul: ZuulClient) -> None:
    """C-9, 5.4: cancelled between fulfilled and accept: the nodes become free."""
    provider = StaticProvider(static_hosts(2))
    workplace.launch(provider)
    request = zuul.submit_and_wait(["small", "small"])
    zuul.cancel(request)
    workplace.wait_nodes(provider)


def test_session_lost_with_nodes_in_use(workplace: Workplace, zuul: ZuulClient, zuul_log: ZuulLog) -> None:
    """F-2, 5.4: the client dies with nodes in use: they are deleted and their hosts are ready again."""
    provider = StaticProvider(static_hosts(3))
    workplace.launch(provider)
    used = zuul.accept(zuul.submit_and_wait(["small", "small"]))
    zuul.use(used)
    accepted = zuul.accept(zuul.submit_and_wait(["small"]))
    ids = [node.id for node in used.getNodes()]

    expire_session(workplace.zookeeper.plain_hosts(), zuul.session)

    workplace.wait_nodes(provider)
    assert not set(ids) & set(workplace.znodes.nodes()), "used nodes keep their ids"
    assert accepted.getNodes()[0].id in workplace.znodes.nodes(), "a node that was never used stays"
    wait_for("Zuul is back", lambda: zuul.connection.connected)
    zuul_log.records.clear()


def test_session_lost_while_waiting(workplace: Workplace, zuul: ZuulClient, zuul_log: ZuulLog) -> None:
    """4.7: Zuul's requests are persistent: they are served when their Zuul comes back."""
    provider = StaticProvider(static_hosts(1))
    workplace.launch(provider)
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(nodeset)
    waiting = zuul.submit(["small"])
    expire_session(workplace.zookeeper.plain_hosts(), zuul.session)
    request = zuul.wait(waiting)
    assert request.state == "fulfilled"
    zuul_log.records.clear()


def test_revise(workplace: Workplace, zuul: ZuulClient) -> None:
    """4.6, A-1: Zuul changes the relative priority of waiting requests; the order of service follows."""
    provider = StaticProvider(static_hosts(1))
    workplace.launch(provider)
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(nodeset)
    requests = [zuul.submit(["small"], relative_priority=10) for _ in range(3)]
    late_but_important = zuul.submit(["small"], priority=100, relative_priority=50)
    wait_for("Zuul's cache knows them", lambda: all(zuul.cached_state(request) for request in requests))
    for request, relative_priority in zip(requests, (5, 7, 3), strict=True):
        wait_for("Zuul could revise", lambda r=request, p=relative_priority: zuul.revise(r, p))  # type: ignore[misc]

    expected = [late_but_important, requests[2], requests[0], requests[1]]
    served = []
    for submitted in expected:
        zuul.give_back(nodeset)
        request = zuul.wait(submitted)
        served.append(request.id)
        assert len(zuul.completed) == 1, "one host serves one request at a time"
        nodeset = zuul.accept(request)
        zuul.use(nodeset)
    assert served == [request.id for request in expected]


def test_revise_does_not_change_a_request_that_is_served(workplace: Workplace, zuul: ZuulClient) -> None:
    """4.6: a revision may be refused but never breaks a request; it ends fulfilled with its nodes."""
    provider = StaticProvider(static_hosts(2))
    workplace.launch(provider)
    for number in range(5):
        submitted = zuul.submit(["small", "small"])
        wait_for("in Zuul's cache", lambda s=submitted: zuul.cached_state(s))  # type: ignore[misc]
        if zuul.cached_state(submitted) == "requested":
            zuul.revise(submitted, number)
        request = zuul.wait(submitted)
        assert request.state == "fulfilled"
        zuul.give_back(zuul.accept(request))
    workplace.wait_nodes(provider)


def test_hold(workplace: Workplace, zuul: ZuulClient) -> None:
    """5.2, S-12: a held node stays and is not handed out; deleting the hold gives it back."""
    provider = StaticProvider(static_hosts(1))
    workplace.launch(provider)
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(nodeset)
    hold = zuul.hold(nodeset)
    (held,) = workplace.znodes.nodes()
    node = workplace.znodes.node(held)
    assert node is not None
    assert (node["state"], node["comment"]) == ("hold", "a test")
    assert workplace.znodes.node_lockers(held) == []

    submitted = zuul.submit(["small"])
    zuul.delete_hold(hold)
    request = zuul.wait(submitted)
    assert request.state == "fulfilled"
    assert request.nodes != [held]


def test_other_nodes_are_handed_out_during_a_hold(workplace: Workplace, zuul: ZuulClient) -> None:
    """S-12: requests are served around a held node; it keeps its hold data."""
    workplace.launch(StaticProvider([StaticHost("127.1.1.1"), StaticHost("127.1.1.2", ["other"])]))
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(nodeset)
    zuul.hold(nodeset, seconds=3600)
    waits = zuul.submit(["small"])
    assert zuul.submit_and_wait(["other"]).state == "fulfilled"
    assert workplace.znodes.request_state(waits.id) == "requested"
    (held,) = workplace.znodes.nodes("hold").values()
    assert (held["hold_expiration"], held["hold_job"]) == (3600, "tenant project job .*")
    zuul.cancel(waits)
