# SPDX-License-Identifier: Apache-2.0
"""Which requests are split, into which parts, and what is counted of them (rules MN)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher.pool.mixed import MixedWorker, pending_of
from nodepool.model.reasons import ReasonCode, tenant_limit
from nodepool.model.request import PART_REQUESTOR
from nodepool.model.status import AccessRule
from nodepool.plan.triage import Consider, Decline, Leave, PoolInfo, RequestKind, judge, parts_for, split
from tests.support.local_launcher import fake_provider
from tests.support.observed import request
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Patch, Still, home

POOLS = {"1": "a c", "2": "b", "3": "b c d", "4": "e"}


@pytest.mark.parametrize(
    ("labels", "mixed", "parts"),
    [
        ("a b", "b", ((0,), (1,))),
        ("b a c b", "b", ((0, 3), (1, 2))),
        # The third pool has most of the labels.
        ("a b c d", "a", ((0,), (1, 2, 3))),
        ("a b e", "b e", ((0,), (1,), (2,))),
        # One pool has all; none has all that must be together; no pool has one of them; no label is mixed.
        ("b c", "b c", None),
        ("a b e", "b", None),
        ("a x", "x", None),
        ("a b", "", None),
        ("", "b", None),
    ],
)
def test_parts(labels: str, mixed: str, parts: tuple[tuple[int, ...], ...] | None) -> None:
    """MN-1, MN-2."""
    pools = tuple(PoolInfo(name, name, frozenset(has.split()), 100, False) for name, has in POOLS.items())
    assert split(tuple(labels.split()), frozenset(mixed.split()), pools) == parts


@pytest.mark.parametrize(
    ("rules", "labels", "parts"),
    [
        # The first pool has most of the labels; it is for others, or only its label a is; it is for this tenant.
        ({"1": (["t2"], None)}, "a b c", ((0,), (1,), (2,))),
        ({"1": (["t2"], "a")}, "a b c", ((0,), (1,), (2,))),
        ({"1": (["t1"], None)}, "a b c", ((0, 2), (1,))),
        # One pool has all, for others; for all.
        ({"4": (["t2"], None)}, "b c", ((0,), (1,))),
        ({"1": (["t2"], None)}, "b c", None),
        # Only a pool for others has the label: that part is to fail, or all are one.
        ({"2": (["t2"], None), "4": (["t2"], "b")}, "a b c", ((0, 2), (1,))),
        ({"5": (["t2"], None)}, "d", None),
    ],
)
def test_parts_of_a_tenant(
    rules: dict[str, tuple[list[str], str | None]], labels: str, parts: tuple[tuple[int, ...], ...] | None
) -> None:
    """MN-1, A-24: a pool that denies the tenant a label does not have it; no pool declines what is split."""
    pools = []
    for name, has in {"1": "a c", "2": "b", "3": "a", "4": "b c", "5": "d"}.items():
        tenants, of_label = rules.get(name, (["/.*/"], None))
        access = AccessRule(tuple(tenants), None if of_label is None else frozenset(of_label))
        pools.append(PoolInfo(name, name, frozenset(has.split()), 100, False, access=(access,)))
    kind, mixed = RequestKind.of(request(1, *labels.split())), frozenset("bc")
    assert parts_for(kind, labels.split(), mixed, pools) == parts
    expected = Leave if parts is not None else Consider if labels == "b c" else Decline
    last = pools[3] if labels == "b c" else pools[4]
    assert isinstance(judge(kind, last, pools, [], mixed), expected)


def test_backlog_of_what_one_pool_serves(still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: Patch) -> None:
    """MN-1: work follows what changes, not the requests that wait; when no pool has all their labels they are split."""
    sections = [
        fake_provider(name, labels, cloud=cloud_name) for name, labels in (("one", ("a",)), ("two", ("a", "b")))
    ]
    labels = {"a": {}, "b": {"mixed-nodesets": True}}
    launcher = still(sections, labels=labels)
    launcher.worker("two")
    ids, mixed = [znodes.submit(["a", "b"]) for _ in range(3)], launcher.nodepool.mixed.current
    looks: list[Any] = []

    def noted(*args: Any) -> Any:
        looks.append(args)
        return parts_for(*args)

    monkeypatch.setattr(home(MixedWorker), "parts_for", noted)
    launcher.knows_requests(3)
    for _ in range(2):
        launcher.settle()
        mixed.run_once()
    assert looks
    looks.clear()
    for _ in range(3):
        mixed.run_once()
    assert not looks
    with monkeypatch.context() as patch:
        known = launcher.nodepool.pools.registered()
        known = [replace(pool, labels=frozenset("a" if pool.provider_name == "one" else "b")) for pool in known]
        patch.setattr(launcher.nodepool.pools, "registered", lambda: known)
        mixed.run_once()
    assert {znodes.request_state(request_id) for request_id in ids} == {"pending"}


def test_part_that_the_tenant_may_not_have(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """MN-3, A-24: it fails at once, and its event says why."""
    sections = [fake_provider(name, (label,), cloud=cloud_name) for name, label in (("one", "a"), ("two", "b"))]
    sections[1]["pools"][0]["allowed-tenants"] = ["other"]
    launcher = still(sections, labels={"a": {}, "b": {"mixed-nodesets": True}})
    worker, mixed = launcher.worker("two"), launcher.nodepool.mixed.current
    request_id = znodes.submit(["a", "b"], tenant_name="t1")

    def failed() -> bool:
        launcher.worker("one").run_once()
        mixed.run_once()
        return znodes.request_state(request_id) == "failed"

    launcher.passes(worker, "it fails", failed)
    (found,) = [event for event in launcher.nodepool.events.last(100) if event.subject == f"request {request_id}"]
    assert found.code == ReasonCode.ACCESS_TENANT.value
    assert found.text.endswith("tenant t1 has no access: allowed-tenants of the pool")


@pytest.mark.parametrize(
    ("limit", "launchers", "state", "parts"), [(1, 1, "requested", 0), (1, 2, "requested", 0), (2, 2, "pending", 2)]
)
def test_larger_than_the_limit_of_its_tenant(
    still: Still, znodes: PoolZnodes, cloud_name: str, limit: int, launchers: int, state: str, parts: int
) -> None:
    """MN-7: it is not split, and waits with nothing in its hands, as such a request for one pool does."""
    sections = [
        fake_provider(name, (label,), cloud=cloud_name, pool_max_servers=5)
        for name, label in (("one", "a"), ("two", "b"))
    ]
    limits = [{"tenant-name": "t1", "max-servers": limit}]
    settings: dict[str, Any] = {
        "labels": {"a": {}, "b": {"mixed-nodesets": True}},
        "tenant-resource-limits": limits,
    }
    launcher = still(sections[: 3 - launchers], **settings)
    worker = launcher.worker("one")
    other = [still(sections[1:], **settings)] if launchers == 2 else []
    pools = launcher.worker("one").context.registered_pools

    def published() -> bool:
        for one in (launcher, *other):
            for worker in one.nodepool.pool_threads.current():
                worker.run_once()
        return [bool(pool.capacity) for pool in pools()] == [True, True]

    wait_for("both pools are published", published)
    request_id = znodes.submit(["a", "b"], tenant_name="t1")
    launcher.knows_requests(1)
    worker, mixed = launcher.worker("one"), launcher.nodepool.mixed.current
    worker.run_once()
    mixed.run_once()
    assert (znodes.request_state(request_id), len(znodes.children("/nodepool/requests"))) == (state, parts + 1)
    texts = [reason.text for reason in worker.desk.explanations.told().values()]
    assert texts == ([] if parts else ["tenant t1 uses 0 of 1 instances, 2 more needed"])


@pytest.mark.parametrize(("begun", "state"), [(False, "requested"), (True, "fulfilled")])
def test_limit_that_is_lowered_later(
    still: Still, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: Patch, begun: bool, state: str
) -> None:
    """MN-5, MN-7: it gives back what it has in vain, but not while its other nodes are launched."""
    clouds = {"one": f"{cloud.name}-one", "two": cloud.name}
    sections = [fake_provider(name, (label,), cloud=clouds[name]) for name, label in (("one", "a"), ("two", "b"))]
    launcher = still(sections, labels={"a": {}, "b": {"mixed-nodesets": True}})
    workers, mixed = [launcher.worker("one"), launcher.worker("two")], launcher.nodepool.mixed.current
    monkeypatch.setattr(home(MixedWorker), "PATIENCE_SECONDS", 0.0)
    cloud.set(hang=True)
    request_id = znodes.submit(["a", "b"], tenant_name="t1")
    launcher.knows_requests(1)
    mixed.run_once()

    held = ["building", "ready"] if begun else ["ready"]

    def found() -> list[str]:
        for worker in workers if begun else workers[:1]:
            worker.run_once()
        return sorted(node["state"] for node in znodes.nodes().values())

    launcher.passes(workers[0], "its nodes are there", lambda: found() == held)
    monkeypatch.setattr(mixed, "_excess", lambda _: tenant_limit("t1", "instances", limit=1, used=0, needed=2))
    for _ in range(3):
        launcher.settle()
        mixed.run_once()
    cloud.set(hang=False)

    def ended() -> bool:
        found()
        mixed.run_once()
        return znodes.request_state(request_id) == state

    launcher.passes(workers[0], "it ends", ended)
    assert len(znodes.children("/nodepool/requests")) == (3 if begun else 1)


def test_what_counts_for_a_tenant() -> None:
    """MN-6: the parts, and what is not split."""
    parts: dict[str, Any] = {
        "requestor": PART_REQUESTOR,
        "requestor_data": {"parent": "200-0000000001"},
        "state": "pending",
    }
    requests = [request(1, state="pending"), request(2, **parts), request(3, state="pending"), request(4)]
    assert [one.key[-1] for one in pending_of("t1", [*requests, request(4)])] == ["2", "3"]
