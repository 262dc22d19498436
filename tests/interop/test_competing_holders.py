# SPDX-License-Identifier: Apache-2.0
"""Somebody else holds, or waits for, the locks that the launcher needs: nothing is taken, nothing is broken."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.support.launcher_config import FakeProvider, StaticHost, StaticProvider
from tests.support.pool_znodes import NODES, REQUEST_LOCKS
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient

HOSTS = [StaticHost("127.1.1.1"), StaticHost("127.1.1.2"), StaticHost("127.1.2.1", ["other"])]


def test_node_locks(workplace: Workplace, zuul: ZuulClient) -> None:
    """N-2: nodes whose locks are held by others are not given out; each can be once its lock is free."""
    provider = StaticProvider(HOSTS)
    workplace.launch(provider)
    znodes = workplace.znodes
    small = [name for name, node in znodes.nodes().items() if node["type"] == ["small"]]
    locks = {name: znodes.kazoo.Lock(f"{NODES}/{name}/lock", "somebody") for name in small}
    for lock in locks.values():
        assert lock.acquire(blocking=False)

    def untouched(*names: str) -> bool:
        nodes = [znodes.node(name) or {} for name in names]
        free = all(node.get("state") == "ready" and not node.get("allocated_to") for node in nodes)
        return free and all(locks[name].contenders() == ["somebody"] for name in names)

    both, one = zuul.submit(["small", "small"]), zuul.submit(["small"])
    _others_are_served(zuul)
    assert znodes.request_state(both.id) == znodes.request_state(one.id) == "requested"
    assert untouched(*small)

    locks[small[0]].release()
    request = zuul.wait(one)
    assert request.nodes == small[:1]
    _others_are_served(zuul)
    assert znodes.request_state(both.id) == "requested"
    assert untouched(small[1])

    zuul.give_back(zuul.accept(request))
    locks[small[1]].release()
    request = zuul.wait(both)
    assert sorted(request.nodes) == small


def test_request_lock_of_a_waiting_request(workplace: Workplace, zuul: ZuulClient) -> None:
    """A-11: a request whose lock is held while nodes become ready is left alone, and served after the release."""
    provider = StaticProvider([HOSTS[0], HOSTS[2]])
    workplace.launch(provider)
    znodes = workplace.znodes
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(nodeset)
    submitted = zuul.submit(["small"])
    wait_for("in the cache", lambda: zuul.cached_state(submitted))
    held = zuul.cache.getNodeRequest(submitted.id, cached=True)
    zuul.nodepool.zk_nodepool.lockNodeRequest(held, blocking=False)
    contenders = znodes.request_lockers(submitted.id)
    before = znodes.kazoo.get(f"/nodepool/requests/{submitted.id}")[1]

    zuul.give_back(nodeset)
    workplace.wait_nodes(provider)
    _others_are_served(zuul)
    assert znodes.kazoo.get(f"/nodepool/requests/{submitted.id}")[1].version == before.version
    assert znodes.request_lockers(submitted.id) == contenders
    assert len([node for node in znodes.free_nodes().values() if node["type"] == ["small"]]) == 1

    zuul.nodepool.zk_nodepool.unlockNodeRequest(held)
    assert zuul.wait(submitted).state == "fulfilled"


def test_request_lock_from_the_first_moment(workplace: Workplace, zuul: ZuulClient) -> None:
    """A-11: the same for a request that ready nodes could serve at once."""
    provider = StaticProvider([HOSTS[0], HOSTS[2]])
    workplace.launch(provider)
    znodes = workplace.znodes
    request_id = "200-0000000000"  # the first in a new chroot
    lock = znodes.kazoo.Lock(f"{REQUEST_LOCKS}/{request_id}", "somebody")
    assert lock.acquire(blocking=False)
    submitted = zuul.submit(["small"])
    assert submitted.id == request_id
    _others_are_served(zuul)
    assert znodes.request_state(request_id) == "requested"
    assert lock.contenders() == ["somebody"]
    workplace.wait_nodes(provider)
    lock.release()
    assert zuul.wait(submitted).state == "fulfilled"


def test_lock_directories_of_somebody_who_has_gone(workplace: Workplace, zuul: ZuulClient) -> None:
    """3: an empty lock directory of a request or a node hinders nobody."""
    workplace.launch(StaticProvider(HOSTS[:1]))
    znodes = workplace.znodes
    (node_id,) = znodes.nodes()
    for path in (f"{NODES}/{node_id}/lock", f"{REQUEST_LOCKS}/200-0000000000"):
        lock = znodes.kazoo.Lock(path, "somebody")
        assert lock.acquire(blocking=False)
        lock.release()
    request = zuul.submit_and_wait(["small"])
    assert (request.id, request.state, request.nodes) == ("200-0000000000", "fulfilled", [node_id])
    nodeset = zuul.accept(request)
    zuul.use(nodeset)
    zuul.give_back(nodeset)
    wait_for("the lock directory goes with its request", lambda: not znodes.children(REQUEST_LOCKS))


def test_waiting_for_locks_of_the_launcher(workplace: Workplace, zuul: ZuulClient) -> None:
    """3, 4.4: Kazoo clients that wait for the launcher's locks get them when the request is fulfilled."""
    workplace.launch(FakeProvider(["vm"], settings={"boot-seconds": 1}))
    znodes = workplace.znodes
    submitted = zuul.submit(["vm"])
    (node_id,) = wait_for("a node is being built", lambda: list(znodes.nodes("building")))
    seen: dict[str, str | None] = {}
    waiters = [
        threading.Thread(target=_wait_for_lock, args=(workplace, f"{NODES}/{node_id}/lock", submitted.id, seen)),
        threading.Thread(
            target=_wait_for_lock, args=(workplace, f"{REQUEST_LOCKS}/{submitted.id}", submitted.id, seen)
        ),
    ]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join(60)
    assert len(seen) == 2, f"not all waiters got their lock: {seen}"
    assert seen[f"{REQUEST_LOCKS}/{submitted.id}"] == "fulfilled"
    request = zuul.wait(submitted)
    assert [node.id for node in zuul.accept(request).getNodes()] == [node_id]


def _wait_for_lock(workplace: Workplace, path: str, request_id: str, seen: dict[str, str | None]) -> None:
    with workplace.znodes.kazoo.Lock(path, "waiter"):
        seen[path] = workplace.znodes.request_state(request_id)


def _others_are_served(zuul: ZuulClient) -> None:
    """Requests that nothing hinders are served meanwhile: the launcher has had its chance to do wrong."""
    for _ in range(3):
        request = zuul.submit_and_wait(["other"])
        assert request.state == "fulfilled"
        nodeset = zuul.accept(request)
        zuul.use(nodeset)
        zuul.give_back(nodeset)
