# SPDX-License-Identifier: Apache-2.0
"""Events of pools (OV-4, OV-5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodepool.model.event import Event
from nodepool.model.status import FailedLaunch, HostStatus, LabelStatus, LaunchesStatus, LaunchStatus, PoolStatus
from nodepool.plan.attention import merged, pool_events

POOL = PoolStatus(host="l1", provider="cloud", pool="main", state="running", since=10.0)
GONE = replace(POOL, state="unavailable", code="provider.circuit-open", text="HTTP 503", since=50.0)
NOW = 100.0


def told(before: PoolStatus | None, after: PoolStatus) -> list[tuple[float, str, str, str, str]]:
    return [(e.at, e.subject, e.what, e.code, e.text) for e in pool_events(before, after, NOW)]


def test_the_first_record_of_a_pool_that_is_well() -> None:
    """A launcher with hundreds of hosts has no news of them when it starts."""
    assert told(None, replace(POOL, hosts=(HostStatus("a", True, "", 5.0), HostStatus("b", None)))) == []


def test_provider() -> None:
    gone = (50.0, "provider cloud", "unavailable", "provider.circuit-open", "HTTP 503")
    assert told(None, GONE) == [gone]
    assert told(POOL, GONE) == [gone]
    assert told(GONE, GONE) == []
    assert told(GONE, replace(GONE, text="HTTP 504")) == []
    assert told(GONE, replace(POOL, since=70.0)) == [(70.0, "provider cloud", "available", "", "")]
    assert told(POOL, replace(POOL, state="paused")) == []


def test_labels() -> None:
    broken = replace(POOL, labels={"gpu": LabelStatus("label.broken", "no flavor", 40.0)})
    subject = "label gpu of cloud/main"
    assert told(POOL, broken) == [(40.0, subject, "unavailable", "label.broken", "no flavor")]
    assert told(broken, broken) == []
    missing = replace(POOL, labels={"gpu": LabelStatus("image.missing", "no image", 40.0)})
    assert told(broken, missing) == [(NOW, subject, "unavailable", "image.missing", "no image")]
    assert told(broken, POOL) == [(NOW, subject, "available", "", "")]


def test_launches_that_failed() -> None:
    failed = replace(POOL, launches=LaunchesStatus(last_error=FailedLaunch("error.quota", "no room", 60.0, "7", "gpu")))
    (event,) = pool_events(POOL, failed, NOW)
    assert event == Event(60.0, "l1 cloud/main", "node 7", "launch failed", "error.quota", "gpu: no room")
    assert told(failed, failed) == []
    nameless = replace(POOL, launches=LaunchesStatus(last_error=FailedLaunch("error.quota", "no room", 60.0)))
    assert told(POOL, nameless) == [(60.0, "pool cloud/main", "launch failed", "error.quota", "no room")]


def host(**fields: Any) -> PoolStatus:
    return replace(POOL, hosts=(HostStatus(**{"name": "h", "up": True, "since": 30.0, **fields}),))


def test_hosts() -> None:
    down = host(up=False, text="refused")
    assert told(host(), down) == [(30.0, "host h", "down", "", "refused")]
    assert told(None, down) == [(30.0, "host h", "down", "", "refused")]
    assert told(down, down) == []
    assert told(down, host()) == [(30.0, "host h", "up", "", "")]
    assert told(host(up=None), host()) == []
    assert told(host(), host(quarantine="flaps")) == [(NOW, "host h", "quarantined", "", "flaps")]
    assert told(host(quarantine="flaps"), host()) == [(NOW, "host h", "released", "", "")]


def test_what_all_launchers_see_is_one_event() -> None:
    events = [Event(at, actor, "provider a", "unavailable") for at, actor in [(2, "l2"), (1, "l1"), (3, "l2")]]
    assert merged(events) == [Event(1, "l1, l2", "provider a", "unavailable")]
    many = [Event(1, f"l{number}", "provider a", "unavailable") for number in range(5)]
    assert merged(many)[0].actor == "l0, l1, l2 and 2 more"


def test_a_provider_that_comes_and_goes() -> None:
    events = [
        Event(1, "l1", "provider a", "unavailable"),
        Event(2, "l1", "provider a", "available"),
        Event(3, "l1", "provider a", "unavailable"),
        Event(90, "l1", "provider a", "unavailable"),
    ]
    assert merged(events[::-1]) == events


def test_older_ones_are_left_out() -> None:
    assert merged([Event(1, "l1", "x 1"), Event(2, "l1", "x 2")], since=2) == [Event(2, "l1", "x 2")]


def test_launches_that_take_long() -> None:
    """OV-4: when the first one does, and when none does any more."""
    launch = LaunchStatus("1", "gpu", "call", begun=30.0, since=30.0, slow=True)
    slow = replace(POOL, launches=LaunchesStatus(running=1), launching=[launch])
    ((at, subject, what, _, text),) = told(POOL, slow)
    assert (at, subject, what) == (NOW, "pool cloud/main", "launches slow")
    assert text.startswith("1 of 1 launch takes long: it waits for the answer of the cloud")
    assert told(slow, replace(slow, launching=[launch, replace(launch, node="2")])) == []
    assert told(slow, replace(slow, launching=[replace(launch, slow=False)])) == [
        (NOW, "pool cloud/main", "launches as usual", "", "")
    ]
