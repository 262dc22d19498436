# SPDX-License-Identifier: Apache-2.0
"""Fair shares of tenants: the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodepool.listing.pools import tenant_table
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import LauncherStatus, PoolComponent, TenantShare
from nodepool.plan.explain import explain
from nodepool.plan.observed import Observed
from nodepool.plan.shares import Ledger, Policy, dominant, order_of, room_of, served_before
from nodepool.plan.triage import Bucket, PoolInfo, RequestKind

POOLS = [
    PoolInfo("1", "cloud", frozenset({"small", "large"}), 100, False, "main", limits={"instances": 20, "cores": 80}),
    PoolInfo("2", "cloud", frozenset({"small", "large"}), 100, False, "main", limits={"instances": 20, "cores": 80}),
    PoolInfo("3", "gpus", frozenset({"gpu"}), 100, False, "main", limits={"instances": 4}),
]
CORES = {"small": 2, "large": 16, "gpu": 4}


def nodes_of(text: str) -> list[Node]:
    """Of ``tenant label`` or ``tenant/project label``, with a number in front."""
    found: list[Node] = []
    for part in filter(None, text.split(", ")):
        number, whose, label = part.split()
        tenant, _, project = whose.partition("/")
        for _ in range(int(number)):
            node = Node(label, f"{len(found):010}")
            node.state, node.tenant_name, node.user_data = states.IN_USE, tenant, {"project_name": project}
            node.provider, node.pool = "gpus" if label == "gpu" else "cloud", "main"
            node.resources = {"instances": 1, "cores": CORES[label], "ram": 0, "odd": "x"}
            found.append(node)
    return found


def requests_of(text: str) -> dict[str, NodeRequest]:
    """Of ``tenant labels``, with a priority in front; the first is the oldest."""
    found = {}
    for number, part in enumerate(text.split(", ")):
        priority, whose, *labels = part.split()
        request = NodeRequest(f"{priority}-{number:010}")
        request.tenant_name, _, project = whose.partition("/")
        request.requestor_data = {"project_name": project}
        request.node_types, request.state, request.created_time = labels, states.REQUESTED, 1.0
        found[request.key] = request
    return found


def served(policy: Policy, nodes: str, waiting: str) -> str:
    """The numbers of requests, in the order of service if there is room for all."""
    requests = requests_of(waiting)
    order = order_of(policy, POOLS, nodes_of(nodes), requests)
    kinds = {key: RequestKind.of(one, by_project=policy.by_project) for key, one in requests.items()}
    found = []
    while requests:
        first = min(requests, key=lambda key: order.key(kinds[key], requests[key].order_key))
        order.granted(kinds[first])
        found.append(int(first[4:]))
        del requests[first]
    return " ".join(map(str, found))


PLAIN = Policy({"a": TenantShare()})
HEAVY = Policy({"a": TenantShare(3.0)})
KEPT = Policy({"a": TenantShare(1.0, {"instances": 3, "cores": 6})})
PROJECTS = Policy({"a": TenantShare()}, by_project=True)


@pytest.mark.parametrize(
    ("policy", "nodes", "waiting", "expected"),
    [
        # FS-1: without shares by age; with them by use, but not before the priority of the pipeline.
        (Policy({}), "9 a small", "200 a small, 200 b small", "0 1"),
        (PLAIN, "9 a small", "200 a small, 200 b small", "1 0"),
        (PLAIN, "9 a small", "100 a small, 200 b small", "0 1"),
        # FS-2: what is granted counts at once; the largest part counts, which is that of cores; weights divide.
        (PLAIN, "", "200 a small, 200 a small, 200 a small, 200 b small", "0 3 1 2"),
        (PLAIN, "1 a large, 3 b small", "200 a small, 200 b small", "1 0"),
        (HEAVY, "6 a small, 2 b small", "200 b small, 200 a small, 200 a small", "1 0 2"),
        # FS-2: a large request counts with its half, but only as far as the tenant uses as much: it is served at last.
        (PLAIN, "4 a small, 7 b small", "200 a small small small small small small small small, 200 b small", "1 0"),
        (PLAIN, "1 a small, 3 b small", "200 b small, 200 a small small small small small small small", "1 0"),
        # FS-3: two of four GPUs are one half, ten of twenty servers, too; launchers of a pool share its room.
        (PLAIN, "2 a gpu, 8 b small", "200 a gpu, 200 b small", "1 0"),
        (PLAIN, "1 a gpu, 8 b small", "200 b small, 200 a gpu", "1 0"),
        # FS-5: what is guaranteed comes first, all of its resources, and with the request.
        (KEPT, "2 a small", "200 b small, 200 a small, 200 a small", "1 0 2"),
        (KEPT, "2 a small", "200 b small, 200 a small small", "0 1"),
        (KEPT, "1 c large", "200 b small, 200 a large", "0 1"),
        # FS-8: inside of a tenant by project, and what is granted counts.
        (PROJECTS, "3 a/x small", "200 a/x small, 200 a/y small, 200 a/y small", "1 2 0"),
        (PLAIN, "3 a/x small", "200 a/x small, 200 a/y small", "0 1"),
    ],
)
def test_order(policy: Policy, nodes: str, waiting: str, expected: str) -> None:
    assert served(policy, nodes, waiting) == expected


def test_work_follows_the_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may have hundreds of kinds of requests that wait: for each the order does not look at all of them."""
    looks: list[Bucket] = []
    real: Any = vars(Bucket)["head_key"]

    def head_key(bucket: Bucket) -> Any:
        looks.append(bucket)
        return real.fget(bucket)

    monkeypatch.setattr(Bucket, "head_key", property(head_key))
    served(PROJECTS, "1 a/x small", ", ".join(f"200 a/{number} small" for number in range(20)))
    assert len(looks) <= 20 * 20


@pytest.mark.parametrize(
    ("names", "room", "fixed"),
    [
        ("cloud", {"instances": 20, "cores": 80}, True),
        ("lab", {"instances": 7}, False),
        ("cloud lab gone", {"instances": 27, "cores": 110}, False),
        # Two pools of a provider share the limit of its cloud; the third one has nothing to do with it.
        ("c/1 c/2", {"instances": 100}, True),
        ("c/1", {"instances": 90}, True),
        ("c/1 c/2 c/own cloud", {"instances": 130, "cores": 80}, False),
    ],
)
def test_room(names: str, room: Mapping[str, float], fixed: bool) -> None:
    """FS-3, FS-4: limits; where there are none, what nodes take."""
    limits: dict[str, dict[str, float]] = {
        "cloud": {"instances": 20, "cores": 80},
        "c/own": {"instances": 10},
        "c/1": {"instances": 90, "*instances": 100},
        "c/2": {"instances": 100, "*instances": 100},
    }
    taken: dict[str, dict[str, float]] = {"lab": {"instances": 7, "cores": 30, "ram": 9}}
    assert room_of(names.split(), limits, lambda name: taken.get(name, {})) == (room, fixed)
    assert dominant({"instances": 1}, {"instances": 0}) == (1.0, "instances")


def test_ledger() -> None:
    """FS-2, FS-7: a request that is served counts with what it lacks; in the end nothing is left."""
    ledger, request = Ledger(), requests_of("200 a small small")["200-0000000000"]
    request.state, request.extra = states.PENDING, {"served_in": {"pool": "cloud/main", "needs": {"instances": 2}}}
    ledger.put_request(request.key, request)
    (node,) = nodes_of("1 a small")
    node.allocated_to = request.key
    ledger.put(node.key, node, request)
    use = ledger.of("a")
    assert (use.amounts, use.lacking) == ({"instances": 1, "cores": 2}, {"cloud/main": {"instances": 1}})
    assert (ledger.waiting_in("cloud/main"), ledger.held_by(request.key)) == ([request.key], use.amounts)
    bad_amounts = ({"pool": "cloud/main", "needs": {"cores": value}} for value in ("x", 10**400))
    for bad in (7, {"needs": {"instances": 1}}, *bad_amounts):
        request.extra = {"served_in": bad}
        ledger.put_request(request.key, request)
        assert ledger.waiting_in("cloud/main") == []
    ledger.put_request(request.key, None)
    ledger.put(node.key, None, None)
    assert (ledger.of("a").amounts, ledger.of("a").lacking, ledger.present("cloud/main")["instances"]) == ({}, {}, 0)


def component(info: PoolInfo) -> PoolComponent:
    found = PoolComponent.from_dict({"id": info.id, "limits": {**info.limits, "odd": "x"}})
    found.name, found.provider_name, found.supported_labels = info.name, info.provider_name, sorted(info.labels)
    return found


def test_explained() -> None:
    """E-15, E-17, FS-4: the use of the tenant, who goes first, and how many requests."""
    waiting = requests_of("200 a small, 200 a small, 200 b small, 200 b small, 200 b small, 100 c small")
    nodes = {node.key: node for node in nodes_of("4 a small, 2 b small")}
    values: dict[str, Any] = {"tenant_shares": {"a": TenantShare(2.0), "b": TenantShare(0.0)}}
    components = [component(info) for info in POOLS]
    nodes["bad"] = nodes_of("1 z small")[0]
    nodes["bad"].id, nodes["bad"].resources = "bad", {"instances": 1, "cores": 10**400}
    seen = Observed(2.0, waiting, nodes, components, launchers=[LauncherStatus(**values)])
    answer = explain("200-0000000001", "request", seen).to_dict()
    assert answer["ahead"] == 3
    assert answer["text"].endswith(
        "tenant a uses 4 of 20 instances (20%, weight 2); first come 1 request of a, 1 request of b, 1 request of c"
    )
    assert explain("a", "tenant", seen).to_dict()["facts"]["share"] == ["4 of 20 instances (20%, weight 2)"]
    assert [row[:4] for row in tenant_table(seen).rows if row[0] == "z"] == [["z", "instances", None, 1]]
    assert seen.order is not None
    assert served_before(seen.order, waiting["100-0000000005"], waiting.values()) == {}


def test_limits_in_the_registry() -> None:
    """FS-4: what is no number is left out, and without shares there is no key."""
    found = component(POOLS[0])
    assert PoolComponent.from_dict(found.to_dict()).limits == POOLS[0].limits
    assert "limits" not in PoolComponent("host").to_dict()
