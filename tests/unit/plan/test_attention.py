# SPDX-License-Identifier: Apache-2.0
"""What needs attention (OV-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nodepool.model import states
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import (
    AbsentProvider,
    FailedLaunch,
    HostStatus,
    LabelStatus,
    LauncherStatus,
    LaunchesStatus,
    LaunchStatus,
    PoolStatus,
    ReloadStatus,
)
from nodepool.plan.attention import Registered, StatusProblem, named, problems
from nodepool.plan.observed import Observed
from nodepool.plan.pool_summary import summarize

NOW = 10_000.0
L1 = LauncherStatus(host="l1", version="12.0.0", config="9f3c")
POOL = PoolStatus(host="l1", provider="cloud", pool="main", state="running", since=10.0)


def found(
    *pools: PoolStatus,
    launchers: Sequence[LauncherStatus] = (L1,),
    registered: Sequence[Registered] = (),
    nodes: Sequence[Node] = (),
    maintenance: Sequence[Maintenance] = (),
) -> list[StatusProblem]:
    seen = Observed(now=NOW, nodes={one.key: one for one in nodes}, maintenance=maintenance)
    return problems(summarize(pools), launchers, registered, seen)


def node(number: int, state: str, age: float, **fields: Any) -> Node:
    made = Node("small", f"{number:010}")
    made.provider, made.state = "cloud", state
    made.state_time = NOW - age
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_all_is_well() -> None:
    quick = [node(1, states.DELETING, 599), node(2, states.HOLD, 9999, hold_expiration=60), node(3, states.READY, 9999)]
    assert found(replace(POOL, hosts=(HostStatus("h", True),)), nodes=quick) == []


def test_no_launcher() -> None:
    assert [problem.kind for problem in found(launchers=())] == ["launcher"]
    assert found(launchers=(), registered=[Registered("old", "11.0.0")]) == []


def test_a_provider_that_is_unavailable() -> None:
    gone = replace(POOL, state="unavailable", text="HTTP 503 five times", since=50.0, next=60.0)
    text = "provider cloud is unavailable: HTTP 503 five times"
    assert found(gone) == [StatusProblem("provider", text, 50.0, 60.0, "explain cloud")]
    (one_of_two,) = found(gone, replace(POOL, host="l2"))
    assert one_of_two.text == "provider cloud is unavailable for 1 of 2 launchers: HTTP 503 five times"
    (one_pool,) = found(gone, replace(POOL, pool="other"))
    assert one_pool.text.startswith("provider cloud/main is unavailable")


def test_a_provider_that_could_not_be_started() -> None:
    absent = AbsentProvider("cloud-2", "openstack", "clouds.yaml has no cloud 'x'", 40.0, 45.0)
    (problem,) = found(launchers=[replace(L1, absent=(absent,))])
    assert problem.text == "provider cloud-2 is not served by launcher l1: clouds.yaml has no cloud 'x'"
    assert (problem.since, problem.next) == (40.0, 45.0)


def test_maintenance() -> None:
    pause = Maintenance("provider", "cloud", Mode.PAUSE, "new switch", "alice", 30.0, NOW + 60)
    text = "provider cloud is paused by alice: new switch"
    assert found(maintenance=[pause]) == [StatusProblem("maintenance", text, 30.0, NOW + 60, "maintenance")]
    assert found(maintenance=[replace(pause, until=NOW - 1)]) == []


def test_labels_with_one_cause_are_one_problem() -> None:
    broken = LabelStatus("label.broken", "no flavor 'm1'", 20.0)
    labels = {"a": broken, "b": replace(broken, since=15.0), "c": LabelStatus("image.missing", "no image", 5.0)}
    assert [(problem.text, problem.since) for problem in found(replace(POOL, labels=labels))] == [
        ("labels a, b of cloud/main: no flavor 'm1'", 15.0),
        ("label c of cloud/main: no image", 5.0),
    ]


def test_launches_that_fail() -> None:
    launches = LaunchesStatus(0, 2, 5, FailedLaunch("error.status", "no valid host", 1.0))
    (problem,) = found(replace(POOL, launches=launches))
    expected = "5 of 7 launches in cloud/main failed in the last 15 minutes; the last one: no valid host"
    assert problem.text == expected
    assert found(replace(POOL, launches=LaunchesStatus(0, 6, 5))) == []
    assert found(replace(POOL, launches=LaunchesStatus(0, 0, 2))) == []


def test_hosts() -> None:
    hosts = [HostStatus(f"h{number}", False, "refused", 100.0 + number, 200.0) for number in range(3)]
    assert [problem.text for problem in found(replace(POOL, hosts=hosts[:1]))] == [
        "host h0 of cloud/main is down: refused"
    ]
    many = [replace(hosts[0], name=f"h{number}", since=300.0 - number) for number in range(8)]
    (problem,) = found(replace(POOL, hosts=[*many, HostStatus("up", True)]))
    assert problem.text == "8 of 9 hosts of cloud/main are down: h0, h1, h2, h3, h4 and 3 more"
    assert problem.since == 293.0
    (aside,) = found(replace(POOL, hosts=[HostStatus("h", True, quarantine="flaps")]))
    assert aside.text == "host h of cloud/main is quarantined: flaps"


def test_a_quarantine_is_told_once() -> None:
    """S-17: by its record; its nodes on hold are no holds that somebody forgot."""
    pool = replace(POOL, hosts=[HostStatus("zuul@h:22", True, quarantine="alice: fan")])
    held = node(1, states.HOLD, 9999, comment="quarantine: alice: fan")
    for name in ("zuul@h:22", "h"):
        record = Maintenance("host", name, Mode.QUARANTINE, "fan", "alice", 50.0)
        (problem,) = found(pool, maintenance=[record], nodes=[held])
        assert problem.text == f"host {name} is quarantined by alice: fan"
    (problem,) = found(pool, maintenance=[Maintenance("host", "h2", Mode.QUARANTINE, until=NOW)])
    assert problem.text == "host zuul@h:22 of cloud/main is quarantined: alice: fan"


def test_nodes_that_do_not_go() -> None:
    nodes = [node(1, states.DELETING, 700), node(2, states.DELETING, 900)]
    (problem,) = found(nodes=nodes)
    text = "2 nodes of cloud in state deleting for more than 10 minutes: 0000000002, 0000000001"
    assert problem == StatusProblem("node", text, NOW - 900, None, "explain 0000000002")
    assert found(nodes=nodes[:1])[0].text.startswith("1 node of cloud")


def test_holds_without_an_end() -> None:
    (problem,) = found(nodes=[node(1, states.HOLD, 700)])
    assert problem.text == "1 node is on hold without an end: 0000000001"


def test_a_refused_configuration() -> None:
    refused = replace(L1, reload=ReloadStatus(70.0, False, "np.yaml:3: labels: unknown key"))
    (problem,) = found(launchers=[refused, replace(refused, host="l2")])
    assert problem.text == "the changed configuration is not in effect on l1, l2: np.yaml:3: labels: unknown key"
    assert found(launchers=[replace(L1, reload=ReloadStatus(70.0, True, "x"))]) == []


def test_launchers_that_differ() -> None:
    others = [replace(L1, host=f"l{number}", version="12.1.0", config="aaaa") for number in (2, 3)]
    assert [(problem.kind, problem.text) for problem in found(launchers=[L1, *others])] == [
        ("version", "launchers run with different versions: 12.1.0 on l2, l3; 12.0.0 on l1"),
        ("configuration", "launchers run with different configurations: aaaa on l2, l3; 9f3c on l1"),
    ]
    (released,) = found(registered=[Registered("l1", "12.0.0"), Registered("old", "11.0.0")])
    assert released.text == "launchers run with different versions: 12.0.0 on l1; 11.0.0 on old"


def test_some_names_in_a_sentence() -> None:
    assert named(["a", "b"]) == "a, b"
    assert named([str(number) for number in range(6)]) == "0, 1, 2, 3, 4 and 1 more"


def test_launches_that_take_long() -> None:
    """OV-2: which step, since when, what is usual, and what ends it."""
    slow = LaunchStatus(
        "0000000001", "gpu", "build", "building", NOW - 75, NOW - 70, NOW + 3525, "launch-timeout", 4.0, slow=True
    )
    pool = replace(POOL, launches=LaunchesStatus(running=3), launching=[slow, replace(slow, slow=False)])
    (problem,) = found(pool)
    assert (problem.kind, problem.since, problem.command) == ("launch", NOW - 75, "explain cloud/main")
    assert problem.text == (
        "cloud/main: 1 of 3 launches takes long: it waits for the cloud, which has it and does not run it yet, "
        "for 1 min (the launch began 1 min ago, usually it takes 4 s; launch-timeout ends the attempt in 58 min)"
    )
    assert found(replace(pool, launching=[replace(slow, slow=False)])) == []


def test_nodes_that_are_not_fetched() -> None:
    """OV-2"""
    requests = [NodeRequest(f"200-{number}") for number in (1, 2)]
    for one in requests:
        one.requestor, one.nodes, one.state_time = "zuul-1", [f"000000000{one.key[-1]}"], 100.0
    nodes = {"0000000001": node(1, states.READY, 9999, allocated_to="200-1")}
    for one in requests:
        one.state = states.FULFILLED
    nodes["0000000002"] = node(2, states.READY, 9999, allocated_to="200-2")
    (problem,) = problems([], [L1], [], Observed(now=NOW, nodes=nodes, requests={one.key: one for one in requests}))
    assert problem == StatusProblem(
        *("node", "zuul-1 has not fetched 2 ready nodes of 2 requests, which others cannot have", 100.0),
        command="explain 200-1",
    )


def test_slow_calls() -> None:
    """E-10, OV-2: once for a provider, with the longest time of those that ask."""
    one = replace(POOL, slow_calls={"getQuotaLimits": 36.0, "other": 30.0})
    (problem,) = found(one, replace(one, pool="gpu", slow_calls={"listInstances": 120.0, "getQuotaLimits": 48.0}))
    assert problem.text == (
        "the cloud of provider cloud answers slowly: "
        "a list of instances takes 2 min, the look-up of limits takes 48 s, other takes 30 s"
    )
    assert (problem.kind, problem.command) == ("provider", "explain cloud")


def test_missing_instances() -> None:
    """OV-2, D-9: once for a provider, whatever number of its pools and launchers see the same."""
    one = replace(POOL, missing={"0000000001": 200.0, "0000000002": 100.0})
    (problem,) = found(one, replace(one, host="l2"), replace(one, pool="gpu"))
    assert (problem.kind, problem.next, problem.command) == ("provider", 100.0, "explain cloud")
    assert problem.text == (
        "the cloud of provider cloud shows no instance of 2 nodes any more (0000000001, 0000000002): "
        "they are not used; correct the project, region or credentials of the provider, or nodepool delete "
        "replaces the nodes at once"
    )


def test_other_installations() -> None:
    """OV-2, D-10: once for a provider, whatever number of its pools and launchers see the same."""
    one = replace(POOL, other_installations={"fedcba9876543210": 1})
    pools = [one, replace(one, host="l2", other_installations={"fedcba9876543210": 3}), replace(one, pool="gpu")]
    (problem,) = found(*pools)
    assert (problem.kind, problem.command) == ("provider", "explain cloud")
    assert problem.text == (
        "another installation, fedcba9876543210, has 3 things in the cloud of provider cloud: if it is in use, give "
        "provider cloud another name in one of the two installations; if its ZooKeeper was lost, "
        "nodepool installation adopt fedcba9876543210 takes it over"
    )
