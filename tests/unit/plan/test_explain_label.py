# SPDX-License-Identifier: Apache-2.0
"""Who serves a label, and what its requests wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodepool.model import states
from nodepool.model.event import Event
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.status import LabelStatus
from nodepool.plan.explain import RECENT_SECONDS, explain_label
from tests.support.observed import FULL, NOW, component, known, node, request, seen, status, waiting


def test_served() -> None:
    taken = node(2)
    taken.allocated_to = "200-0000000001"
    observed = seen(
        request(7),
        request(8, state=states.PENDING),
        request(9, "arm"),
        request(6, state=states.FULFILLED),
        nodes=known(node(1), taken, node(3, state=states.BUILDING), node(4, "arm")),
        registered=[component("cloud-1", "gpu"), component("lab", "arm")],
        statuses=[status("cloud-1", waiting=[waiting("gpu"), waiting("arm")])],
    )
    found = explain_label("gpu", observed)
    assert (found.state, found.requests, found.oldest) == ("served", 2, NOW - 412)
    (pool,) = found.pools
    assert (pool.pool, pool.nodes, pool.free, pool.code) == ("cloud-1/main", {"building": 1, "ready": 2}, 1, None)
    assert [(group.pool, group.count, group.code) for group in found.waiting] == [("cloud-1/main", 3, "room.cores")]
    assert found.text.startswith(
        "is served by cloud-1/main; 1 free node; 2 requests want it; most wait in cloud-1/main"
    )
    assert found.remedies == []


def test_broken() -> None:
    """With the cause that the provider has stored."""
    broken = {"gpu": LabelStatus("label.broken", "the cloud has no flavor named 'm1.small'", NOW - 9)}
    observed = seen(registered=[component("cloud-1", "gpu")], statuses=[status("cloud-1", labels=broken)])
    found = explain_label("gpu", observed)
    assert (found.state, found.remedies) == ("not served", ["the cloud has no flavor named 'm1.small'"])
    assert (found.pools[0].code, found.pools[0].since) == ("label.broken", NOW - 9)
    assert found.text == "is not served now by cloud-1/main; 0 free nodes; 0 requests want it"


def test_provider_that_is_away() -> None:
    away = status("cloud-1", state="unavailable", code="provider.circuit-open", text="HTTP 503", since=NOW - 5)
    observed = seen(registered=[component("cloud-1", "gpu"), component("cloud-2", "gpu")], statuses=[away])
    found = explain_label("gpu", observed)
    assert [(pool.pool, pool.code) for pool in found.pools] == [
        ("cloud-1/main", "provider.circuit-open"),
        ("cloud-2/main", None),
    ]
    assert found.text.startswith("is served by cloud-2/main;")


def test_paused() -> None:
    """Also where a launcher tells no status."""
    record = Maintenance("label", "gpu", Mode.PAUSE, "bad image", "alice", NOW - 3)
    found = explain_label("gpu", seen(registered=[component("cloud-1", "gpu")], maintenance=[record]))
    assert found.pools[0].text == "label gpu is paused by alice: bad image"
    over = Maintenance("label", "gpu", Mode.PAUSE, until=NOW)
    assert explain_label("gpu", seen(registered=[component("cloud-1", "gpu")], maintenance=[over])).state == "served"


def test_backing_label_that_is_out_of_service() -> None:
    """T-13: requests for this label and no other say so."""
    held = waiting("gpu", code="backing.held", text="provider cloud-2 is paused")
    other = waiting("arm", "gpu", code="backing.held", text="provider cloud-3 is paused")
    components = [component("shared", "gpu"), component("more", "gpu")]
    told = [status("shared", waiting=[other, held]), status("more", waiting=[other])]
    found = explain_label("gpu", seen(registered=components, statuses=told))
    assert {pool.pool: (pool.code, pool.text) for pool in found.pools} == {
        "shared/main": ("backing.held", "provider cloud-2 is paused"),
        "more/main": (None, None),
    }


def test_nobody_has_it() -> None:
    found = explain_label("gpus", seen(request(7, "gpus"), registered=[component("cloud-1", "gpu")]))
    assert found.text == "no registered pool has it, did you mean 'gpu'?"


def test_one_queue_of_several_launchers() -> None:
    """Each has all requests: they are not added up. What a pool leaves to others does not wait in it."""
    statuses = [status("cloud-1", host, waiting=[waiting("gpu")]) for host in ("l1", "l2")]
    statuses.append(status("cloud-2", waiting=[waiting("gpu", code="turn.of-priority", text="another pool")]))
    observed = seen(registered=[component("cloud-1", "gpu")], statuses=statuses)
    assert [(group.pool, group.count) for group in explain_label("gpu", observed).waiting] == [("cloud-1/main", 3)]


def test_min_ready_that_waits_for_room() -> None:
    """M-7: it waits in the pool that has the label and is full; no job does."""
    filler = replace(waiting("gpu"), min_ready=True)
    found = explain_label(
        "gpu", seen(registered=[component("cloud-1", "gpu")], statuses=[status("cloud-1", waiting=[filler])])
    )
    assert found.text == (
        "is served by cloud-1/main; 0 free nodes; 0 requests want it; "
        f"min-ready: 3 more ready nodes wait in cloud-1/main: {FULL[1]}"
    )
    assert found.waiting == []


@pytest.mark.parametrize(("ago", "told"), [(5, True), (RECENT_SECONDS + 1, False)], ids=["just now", "long ago"])
def test_min_ready_that_fails(ago: float, told: bool) -> None:
    """M-4: the requests for it are gone before anybody looks: their end is told as long as it is news."""
    failures = [
        Event(NOW - ago - 1, "l1 lab/main", "label gpu", "failed", "launch.failed", "no more ready node of gpu: older"),
        Event(NOW - ago, "l1 lab/main", "label gpu", "failed", "launch.failed", "no more ready node of gpu: why"),
        Event(NOW - 1, "l1 lab/main", "label arm", "failed", "launch.failed", "no more ready node of arm: other"),
        Event(NOW - 1, "l1", "label gpu", "maintenance began", "", "by alice"),
    ]
    found = explain_label("gpu", seen(registered=[component("lab", "gpu")], events=failures))
    assert ("; min-ready: no more ready node of gpu: why" in found.text) == told
    assert ("min-ready" in found.text) == told
