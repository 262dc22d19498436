# SPDX-License-Identifier: Apache-2.0
"""Spans of a running launcher, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.local_launcher import LocalLauncher
from tests.support.openstack_place import Place
from tests.support.otlp_receiver import Received, ReceivedSpan, http_receiver
from tests.support.wait import wait_for
from tests.unit.tracing.test_span import SPAN_INFO

TRACE: Any = SPAN_INFO["trace_id"]
DATA = {"build_set_uuid": "b", "tenant_name": "t1", "job_name": "unit", "span_info": SPAN_INFO}


@pytest.fixture
def collector() -> Iterator[Received]:
    with http_receiver() as received:
        yield received


def launch(place: Place, collector: Received) -> LocalLauncher:
    """Starts a launcher whose spans go to the collector."""
    settings = place.settings
    tracing = {"enabled": True, "protocol": "http/protobuf", "endpoint": collector.endpoint}
    place.settings = lambda: {**settings(), "tracing": tracing}  # type: ignore[method-assign]
    return place.launch()


def one(collector: Received, name: str, seconds: float = 60) -> ReceivedSpan:
    """The only span of that name, when it has come."""
    wait_for(f"a span {name}", lambda: collector.named(name), seconds)
    (span,) = collector.named(name)
    return span


def test_a_launch(place: Place, collector: Received, caplog: pytest.LogCaptureFixture) -> None:
    """TR-2, TR-4, TR-5: all belongs to the trace of Zuul; each span to the one that it is a part of."""
    with caplog.at_level(logging.INFO, logger="nodepool"):
        launch(place, collector)
        request = place.znodes.submit(["small"], requestor_data=DATA)
        (node,) = place.fulfilled(request)
        whole = one(collector, "nodepool.request")
    assert (whole.trace_id, whole.parent_id, whole.service) == (TRACE, SPAN_INFO["span_id"], "nodepool")
    expected = {"nodepool.request": request, "nodepool.outcome": "fulfilled", "nodepool.job": "unit"}
    assert expected.items() <= whole.attributes.items()
    assert whole.attributes["nodepool.labels"] == ["small"]
    attempt = one(collector, "nodepool.launch")
    service = one(collector, "nodepool.service")
    parts = {name: one(collector, f"nodepool.{name}") for name in ("boot", "scan", "queue", "lock", "fulfilment")}
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert attempt.parent_id == service.parent_id == parts["queue"].parent_id == whole.span_id
    assert parts["boot"].parent_id == parts["scan"].parent_id == attempt.span_id
    assert parts["lock"].parent_id == service.span_id
    assert attempt.attributes["nodepool.external_id"] == node["external_id"]
    assert attempt.begin <= parts["boot"].end <= parts["scan"].end <= attempt.end + 0.001
    assert f"[trace: {TRACE:032x}] Fulfilled node request" in caplog.text
    traced = {record.name for record in caplog.records if getattr(record, "trace_id", "") == f"{TRACE:032x}"}
    assert any(name.startswith("nodepool.StateMachineNodeLauncher") for name in traced)
    place.give_back(request)
    place.wait_empty()


def test_attempts_that_fail(place: Place, collector: Received) -> None:
    """TR-4: each attempt is a span with its error; the decline is one with its reason, and the request has failed."""
    place.section["launch-retries"] = 2
    place.simulator.change(boots=[{"kind": "error"}])
    launch(place, collector)
    request = place.znodes.submit(["small"], requestor_data=DATA)
    place.failed(request)
    whole = one(collector, "nodepool.request")
    assert (whole.error, whole.attributes["nodepool.outcome"]) == ("every pool declined it", "failed")
    decline = one(collector, "nodepool.decline")
    assert (decline.parent_id, decline.attributes["nodepool.pool"]) == (whole.span_id, "cloud-a/main")
    assert decline.attributes["nodepool.reason"] == "launch.failed"
    attempts = sorted(collector.named("nodepool.launch"), key=lambda span: span.begin)
    assert [span.attributes["nodepool.attempt"] for span in attempts] == [1, 2]
    assert all(span.error and span.parent_id == whole.span_id for span in attempts)
    assert attempts[0].span_id != attempts[1].span_id


def test_ready_nodes_and_requests_without_a_trace(place: Place, collector: Received) -> None:
    """TR-2, TR-4: a trace of its own; the fast path has its spans, too. A request that waits for room tells so."""
    place.pool["max-servers"] = 1
    place.label_settings["small"] = {"min-ready": 1}
    launch(place, collector)
    wait_for("a ready node", lambda: place.znodes.free_nodes())
    first = place.znodes.submit(["small"])
    place.fulfilled(first)
    whole = one(collector, "nodepool.check")
    second = place.znodes.submit(["small"], requestor_data=DATA)
    wait_for("it waits", lambda: place.znodes.request_state(second) in ("requested", "pending"))
    place.give_back(first)
    place.fulfilled(second)
    ended = wait_for(
        "all requests ended",
        lambda: {
            span.attributes["nodepool.request"]: span
            for span in collector.named("nodepool.request")
            if {first, second} <= {one.attributes["nodepool.request"] for one in collector.named("nodepool.request")}
        },
    )
    assert ended[first].parent_id == 0
    assert ended[first].trace_id == whole.trace_id
    assert ended[second].trace_id == TRACE
    queued = wait_for("its wait", lambda: [s for s in collector.named("nodepool.queue") if s.trace_id == TRACE])
    assert all(span.parent_id == ended[second].span_id for span in queued)
    place.give_back(second)


def test_a_launcher_that_takes_over(place: Place, collector: Received) -> None:
    """TR-2: what two launchers tell of one request belongs together, although the first never sees its end."""
    place.simulator.change(boots=[{"kind": "stuck"}])
    launcher = launch(place, collector)
    request = place.znodes.submit(["small"], requestor_data=DATA)
    # A creation that is answered after the hand-over ends the launch of the first, with a span of its own.
    wait_for("it is being launched", lambda: [node for node in place.znodes.nodes().values() if node["external_id"]])
    launcher.stop()
    (first,) = collector.named("nodepool.service")
    assert (first.trace_id, collector.named("nodepool.request")) == (TRACE, [])
    with place.simulator.cloud() as cloud:
        cloud.compute.release_stuck()
    place.launch()
    place.fulfilled(request)
    whole = one(collector, "nodepool.request")
    assert (whole.trace_id, whole.parent_id) == (TRACE, SPAN_INFO["span_id"])
    wait_for("both have told", lambda: len(collector.named("nodepool.service")) == 2)
    second = next(span for span in collector.named("nodepool.service") if span.span_id != first.span_id)
    assert first.parent_id == second.parent_id == whole.span_id, "the first knew the id of a span that the second ends"
    assert first.end <= second.begin
    assert one(collector, "nodepool.launch").parent_id == whole.span_id
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)
    place.give_back(request)
    place.wait_empty()
