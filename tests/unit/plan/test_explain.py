# SPDX-License-Identifier: Apache-2.0
"""Why a request is as it is, and which subject a name stands for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nodepool.model import states
from nodepool.model.event import Event
from nodepool.model.reasons import ReasonCode
from nodepool.model.status import LabelStatus, LaunchStatus, RequestStatus
from nodepool.plan import explain
from nodepool.plan.explained import ExplainedRequest
from nodepool.plan.observed import UNFETCHED_SECONDS, Observed
from nodepool.plan.queue import RequestKind
from tests.support.observed import FULL, NOW, component, known, node, pool_id, request, seen, status, waiting


def explained(observed: Observed, number: int = 0) -> ExplainedRequest:
    return explain.explain_request(list(observed.requests.values())[number], observed)


def test_waits_for_room() -> None:
    """E-4: the nearest pool gives the answer; each pool has its verdict."""
    observed = seen(
        request(7),
        request(5),
        request(6, "arm"),
        request(8),
        registered=[component("cloud-1", "gpu"), component("cloud-2", "gpu"), component("lab", "arm")],
        statuses=[
            status("cloud-1", waiting=[waiting("gpu")]),
            status("cloud-2", state="unavailable", code="provider.circuit-open", text="HTTP 503", since=NOW - 940),
            status("lab"),
        ],
    )
    found = explained(observed)
    assert found.text == ("waits for room in cloud-1/main: 80 of 80 cores in use, 8 more needed; 1 request comes first")
    assert (found.code, found.numbers, found.ahead) == ("room.cores", FULL[2], 1)
    assert (found.job, found.pipeline, found.tenant, found.event_id) == ("unit", "check", "t1", "6c1e")
    assert found.age_seconds == 412
    assert [(one.pool, one.verdict, one.code, one.since) for one in found.pools] == [
        ("cloud-1/main", "waits", "room.cores", NOW - 60),
        ("cloud-2/main", "absent", "provider.circuit-open", NOW - 412),
    ]
    assert "cloud-2/main would serve it, but: HTTP 503" in found.remedies
    assert [moment.what for moment in found.history] == ["submitted", "absent", "waits"]


def test_nothing_before_its_submission() -> None:
    """E-9: its kind, its provider, its label and its node may be older than a request; its history is not."""
    new = request()
    new.created_time = NOW - 2
    older = {
        "a": status("a", waiting=[waiting("gpu", since=NOW - 60)]),
        "b": status("b", state="unavailable", code="provider.circuit-open", text="HTTP 503", since=NOW - 353),
        "c": status("c", labels={"gpu": LabelStatus("label.broken", "no flavor", NOW - 9)}),
        "d": status("d", waiting=[waiting("gpu", code="turn.of-label", since=NOW - 30)]),
    }
    ready = node()
    ready.allocated_to = new.key
    found = explained(
        seen(
            new,
            registered=[component(name, "gpu") for name in older],
            statuses=list(older.values()),
            nodes=known(ready),
        )
    )
    assert sorted(one.verdict for one in found.pools) == ["absent", "declined", "leaves", "waits"]
    assert {one.since for one in found.pools} == {NOW - 2}
    assert found.history[0].what == "submitted"
    assert {moment.at for moment in found.history} == {NOW - 2}
    assert len(found.history) == 6


def test_json() -> None:
    found = explained(seen(request(), registered=[component("cloud-1", "gpu")], statuses=[status("cloud-1")]))
    data = json.loads(json.dumps(found.to_dict()))
    assert data["kind"] == "request"
    assert data["pools"][0]["launchers"] == ["l1"]
    assert {"id", "state", "labels", "code", "text", "numbers", "ahead", "history", "remedies"} <= data.keys()


def test_next_pass() -> None:
    """A status is up to two seconds old: a new request is in none."""
    found = explained(seen(request(), registered=[component("cloud-1", "gpu")], statuses=[status("cloud-1")]))
    assert found.code == ReasonCode.WAIT_ORDER.value


@pytest.mark.parametrize(("stage", "verdict"), [("paused", "waits"), ("launching", "serves"), ("deferred", "waits")])
def test_request_that_a_pool_works_on(stage: str, verdict: str) -> None:
    told = RequestStatus("200-0000000007", stage, "served.launching", "its nodes are being launched", {}, NOW - 5)
    state = states.REQUESTED if stage == "deferred" else states.PENDING
    pools = [component("cloud-1", "gpu"), component("cloud-2", "gpu")]
    found = explained(
        seen(request(state=state), registered=pools, statuses=[status("cloud-1", requests=[told]), status("cloud-2")])
    )
    assert (found.pools[0].pool, found.pools[0].verdict) == ("cloud-1/main", verdict)
    assert found.code in ("served.launching", "wait.order")


def test_fulfilled() -> None:
    made = request(state=states.FULFILLED)
    made.nodes = ["0000000001", "0000000002"]
    assert explained(seen(made)).text == "is fulfilled with nodes 0000000001, 0000000002"


def test_failed() -> None:
    """E-6: the cause is the answer, not that the label is unknown elsewhere."""
    made = request(state=states.FAILED)
    made.declined_by = [pool_id("lab"), pool_id("cloud-1"), "l9-PoolWorker.old-main-abc"]
    broken = RequestStatus(made.key, "done", "label.broken", "the cloud has no flavor named 'm1.small'", {}, NOW - 3)
    event = Event(NOW - 3, "l1", f"request {made.key}", "failed", "label.broken", "every pool declined it")
    found = explained(
        seen(
            made,
            registered=[component("lab", "arm"), component("cloud-1", "gpu")],
            statuses=[status("lab"), status("cloud-1", declined=[broken])],
            events=[event],
        )
    )
    assert found.text == (
        "failed, because every pool declined it. cloud-1/main: the cloud has no flavor named 'm1.small'"
    )
    assert {one.pool: one.code for one in found.pools} == {
        "cloud-1/main": "label.broken",
        "lab/main": "label.unknown",
        "old-main": "declined.before",
    }
    assert ("failed", "label.broken") in [(moment.what, moment.code) for moment in found.history]


def test_label_that_cannot_be_served() -> None:
    """Known before the pool has declined it."""
    broken = {"gpu": LabelStatus("label.broken", "no flavor", NOW - 9)}
    observed = seen(request(), registered=[component("cloud-1", "gpu")], statuses=[status("cloud-1", labels=broken)])
    assert (explained(observed).code, explained(observed).pools[0].verdict) == ("label.broken", "declined")


def test_released_launchers() -> None:
    """E-5: they tell nothing but what the registry has."""
    observed = seen(request(), registered=[component("cloud-1", "gpu", paused=True)])
    found = explained(observed)
    assert (found.code, found.pools[0].verdict) == ("status.missing", "waits")
    assert found.text == (
        "waits in cloud-1/main: another request waits for room there; launcher l1 (11.0.0) tells no status; "
        "its log may have the reason"
    )
    assert found.remedies == ["search the log of l1 for 200-0000000007"]


def test_served_by_a_released_launcher() -> None:
    made = request(state=states.PENDING)
    launched = node(1, state=states.BUILDING)
    launched.allocated_to = made.key
    observed = seen(made, registered=[component("cloud-1", "gpu")], nodes=known(launched))
    found = explained(observed)
    assert found.text == "is served by cloud-1/main: 1 of 1 nodes are there or are being launched"
    assert (found.nodes, found.code) == (["0000000001"], "served.launching")
    assert explained(seen(made)).code == "status.missing"


def test_pools_of_several_launchers_are_one() -> None:
    """The one that does most has the word."""
    pools = [component("cloud-1", "gpu"), component("cloud-1", "gpu", host="l2")]
    leaves = waiting("gpu", code="turn.of-another-pool", text="another pool is the first choice")
    statuses = [status("cloud-1", waiting=[waiting("gpu")]), status("cloud-1", "l2", waiting=[leaves])]
    (one,) = explained(seen(request(), registered=pools, statuses=statuses)).pools
    assert (one.launchers, one.verdict) == (["l1"], "waits")
    statuses = [status("cloud-1", host, waiting=[waiting("gpu")]) for host in ("l1", "l2")]
    (one,) = explained(seen(request(), registered=pools, statuses=statuses)).pools
    assert one.launchers == ["l1", "l2"]


def test_nobody_has_the_label() -> None:
    observed = seen(request(7, "debian-smal"), registered=[component("cloud-1", "debian-small")])
    found = explained(observed)
    assert found.code == "pool.missing"
    assert found.text == "no registered pool has the label debian-smal, did you mean 'debian-small'?"
    assert explained(seen(request())).text == "waits: no launcher is registered"
    apart = seen(request(7, "a", "b"), registered=[component("one", "a"), component("two", "b")])
    assert explained(apart).text == "no registered pool has all of its labels (a, b) together"


def test_failed_and_nobody_is_there_any_more() -> None:
    """It does not wait: nobody will serve it."""
    assert explained(seen(request(state=states.FAILED))).text == "failed; no launcher is registered"


def test_full_status_record() -> None:
    """A kind that was left out of it is not one that nobody knows."""
    observed = seen(request(), registered=[component("cloud-1", "gpu")], statuses=[status("cloud-1", omitted=9)])
    assert explained(observed).code == "status.missing"


def test_requests_ahead() -> None:
    """E-4: those that the pool could serve, and the one that it has locked and that waits for room."""
    paused = RequestStatus("100-0000000009", "paused", "room.cores", "full", {}, NOW)
    declined = request(3)
    declined.declined_by = [pool_id("cloud-1")]
    observed = seen(
        request(7),
        *(request(1), request(2, "arm"), declined, request(9, state=states.PENDING, priority="100")),
        registered=[component("cloud-1", "gpu")],
        statuses=[status("cloud-1", requests=[paused], waiting=[waiting("gpu")])],
    )
    assert explained(observed).ahead == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("200-0000000007", "request"),
        ("0000000001", "node"),
        ("cloud-1", "provider"),
        ("cloud-1/main", "provider"),
        ("gpu", "label"),
        ("wanted", "label"),
        ("nothing", None),
    ],
)
def test_what_a_name_stands_for(name: str, kind: str | None) -> None:
    """E-3"""
    observed = seen(request(7, "wanted"), nodes=known(node(1)), registered=[component("cloud-1", "gpu")])
    assert explain.kind_of(name, observed) == kind
    if kind is not None:
        answer = explain.explain(name, kind, observed)
        # A pool is explained as its provider is, and called a pool.
        assert (answer.id, answer.kind) == (name, "pool" if "/" in name else kind)


def test_similar_names() -> None:
    observed = seen(request(), registered=[component("cloud-1", "gpu")])
    assert explain.similar("cloud1", observed) == ", did you mean 'cloud-1'?"
    assert explain.similar("zzz", observed) == ""


def test_kinds_with_the_same_labels() -> None:
    """A request that another pool declined waits for something else than one that nobody has declined."""
    fresh, declined = request(7), request(8)
    declined.declined_by = ["another"]
    kinds = [RequestKind.of(one).mark for one in (fresh, declined)]
    told = [replace(waiting("gpu"), mark=kinds[0]), replace(waiting("gpu", code="wait.order", text="x"), mark=kinds[1])]
    observed = seen(
        fresh, declined, registered=[component("cloud-1", "gpu")], statuses=[status("cloud-1", waiting=told)]
    )
    assert [explained(observed, number).code for number in (0, 1)] == ["room.cores", "wait.order"]
    declined.declined_by.append("and another")
    assert explained(observed, 1).code in ("room.cores", "wait.order"), "what is told of its like"


def test_a_request_whose_launches_take_long_in_a_cloud_that_is_away() -> None:
    """E-10: it is served, and this is what it waits for."""
    launch = LaunchStatus(
        "0000000001", "gpu", "build", "building", NOW - 75, NOW - 70, NOW + 3525, "launch-timeout", 4.0, slow=True
    )
    made, building = request(state=states.PENDING), node(1, state=states.BUILDING)
    building.allocated_to = made.key
    told = RequestStatus(made.key, "launching", "served.launching", "its nodes are being launched", {}, NOW - 75)
    away = status("cloud-1", state="unavailable", text="HTTP 503", requests=[told], launching=[launch])
    found = explained(seen(made, registered=[component("cloud-1", "gpu")], statuses=[away], nodes=known(building)))
    assert found.text == (
        "is served by cloud-1/main: its nodes are being launched; cloud-1/main launches nothing new: HTTP 503; "
        "node 0000000001 waits for the cloud, which has it and does not run it yet (it is building) for 1 min "
        "(the launch began 1 min ago, usually it takes 4 s; launch-timeout ends the attempt in 58 min)"
    )


def test_nodes_that_are_not_fetched() -> None:
    """E-11: their requestor may have gone; others wait for their room meanwhile."""
    made, ready = request(state=states.FULFILLED), node(1)
    made.nodes, made.requestor, made.state_time = [ready.key], "zuul-1", NOW - UNFETCHED_SECONDS - 1
    ready.allocated_to = made.key
    waiting_one = request(8)
    full = status("cloud-1", waiting=[waiting("gpu")])
    observed = seen(made, waiting_one, registered=[component("cloud-1", "gpu")], statuses=[full], nodes=known(ready))
    found = explained(observed)
    assert found.text == "is fulfilled with node 0000000001; they are ready, and it has not fetched them"
    assert found.remedies == [
        "zuul-1 has not fetched the nodes for 5 min: look whether it works, and whether its executors take jobs; "
        "nodepool delete 0000000001 takes the nodes away from the job; "
        "they are free by themselves when its session with ZooKeeper ends"
    ]
    about = explain.explain("0000000001", "node", observed)
    assert found.remedies[0] in about.to_dict()["remedies"]
    assert (
        f"nodes of request {made.key} are ready and not fetched; nodepool explain {made.key} tells more"
        in explained(observed, 1).remedies
    )
    made.state_time = NOW - UNFETCHED_SECONDS + 1
    assert explained(replace(observed)).remedies == []
