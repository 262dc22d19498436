# SPDX-License-Identifier: Apache-2.0
"""Spans: their ids, where they go, and how they are sent to a collector in this process by OpenTelemetry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from nodepool.metrics.catalog import SPANS
from nodepool.model.request import NodeRequest
from nodepool.tracing import spans
from nodepool.tracing.spans import (
    GRPC,
    HTTP,
    MAX_WAITING,
    SPAN_ID_BITS,
    TRACE_ID_BITS,
    Exporter,
    OtlpSettings,
    OtlpTarget,
    Span,
    Trace,
    derived_id,
    missing_module,
    record,
    trace_of,
)
from tests.support.certificates import Certificates, make_certificates
from tests.support.counted import Counted
from tests.support.otlp_receiver import Received, grpc_receiver, http_receiver
from tests.support.wait import wait_for

#: As Zuul 14.3 writes it: whole numbers, that of the trace beyond 64 bits.
SPAN_INFO = {"name": "RequestNodes", "trace_id": 2**127 + 12345, "span_id": 2**63 + 7, "trace_flags": 1, "parent": None}
SPAN = Span("nodepool.launch", 2**127 + 1, 2**63 + 2, 3, 1.5, 2.5, {"a": "b", "c": ("d", "e"), "n": 2}, "why")


def request(info: Any = None, **fields: Any) -> NodeRequest:
    data = {"state": "requested", "node_types": ["small"], "requestor_data": {"span_info": info}, "created_time": 5.0}
    return NodeRequest.from_dict({**data, **fields}, "200-0000000001")


ODD: list[dict[str, Any]] = [{"trace_id": 0}, {"trace_id": True}, {"trace_id": 2**128}, {"trace_id": "1"}]
ODD += [{"span_id": 2**64}, {"span_id": -1}, {"span_id": 1.5}]


@pytest.mark.parametrize("info", [None, "text", {}, *({**SPAN_INFO, **odd} for odd in ODD)])
def test_a_trace_of_its_own(info: Any) -> None:
    """TR-2: the same one in each process, and another one for each request."""
    one = trace_of(request(info))
    assert (one, one.parent_id) == (trace_of(request(info)), 0)
    assert one != trace_of(request(info, created_time=6.0))
    assert trace_of(request(requestor_data=info)).parent_id == 0
    assert 0 < derived_id(SPAN_ID_BITS, "a", 1) < 2**64 < derived_id(TRACE_ID_BITS, "a", 1) < 2**128
    assert derived_id(SPAN_ID_BITS, "a", "b") != derived_id(SPAN_ID_BITS, "ab")
    assert derived_id(SPAN_ID_BITS, "\ud800") > 0


@pytest.fixture
def kept() -> Iterator[list[Span]]:
    """What was recorded."""
    found: list[Span] = []
    spans.use(found.append)
    yield found
    spans.stop_using(found.append)


def test_records(kept: list[Span]) -> None:
    """TR-2, TR-5: also when the clock went back; and what is not sampled is not recorded."""
    trace = Trace(5, 7)
    record(trace, "a", (1,), 10.0, 9.0, error="e", x=1)
    record(Trace(5, 7, sampled=False), "a", (), 1.0, 2.0)
    assert kept == [Span("a", 5, spans.span_id_of(trace, "a", 1), 7, 10.0, 10.0, {"nodepool.x": 1}, "e")]
    assert spans.log_id(request(SPAN_INFO)) == f"{SPAN_INFO['trace_id']:032x}"
    assert spans.log_id(request({**SPAN_INFO, "trace_flags": 0})) is None
    spans.stop_using(lambda _span: None)
    assert spans.enabled(), "another sink stays"


def test_an_upload_belongs_to_its_build(kept: list[Span]) -> None:
    """TR-4: also when another builder uploads it."""
    spans.build_ended("debian", "b1", 10.0, "")
    spans.upload_ended("debian", "b1", "cloud", "0000000001", 5.0, "failed", "full")
    spans.build_ended("debian", "b2", 10.0, "no disk")
    build, upload, other = kept
    assert [(one.name, one.error) for one in kept[1:]] == [("nodepool.upload", "full"), ("nodepool.build", "no disk")]
    assert (build.parent_id, upload.parent_id, round(build.end - build.begin, 3)) == (0, build.span_id, 10.0)
    assert upload.trace_id == build.trace_id != other.trace_id
    expected = {"nodepool.image": "debian", "nodepool.provider": "cloud", "nodepool.outcome": "failed"}
    assert {**upload.attributes, **expected} == upload.attributes


# -- a thread that sends them


class Collector(OtlpTarget):
    """Answers when it may; `answers` are what it says, the last one again and again."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.got: list[Span] = []
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    def send(self, spans: Sequence[Span]) -> str:
        self.asked.set()
        self.may_answer.wait(60)
        answer = self.answers.pop(0) if self.answers else ""
        if isinstance(answer, Exception):
            raise answer
        self.got += [] if answer else spans
        return answer

    def close(self) -> None:
        self.may_answer.set()


def test_who_records_never_waits() -> None:
    """TR-6: a collector that does not answer costs spans, and no time; all others are sent."""
    counted, collector = Counted(SPANS), Collector()
    collector.may_answer.clear()
    exporter = Exporter(collector, "there")
    exporter.record(SPAN)
    assert collector.asked.wait(60)
    for _ in range(MAX_WAITING + 15):
        exporter.record(SPAN)
    assert counted.new() == {("dropped",): 15}
    collector.may_answer.set()
    assert exporter.stop(60)
    assert (len(collector.got), counted.new()) == (MAX_WAITING + 1, {("sent",): MAX_WAITING + 1, ("dropped",): 15})


def test_spans_that_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """TR-6: logged once; an error of the library does not end the thread."""
    counted, collector = Counted(SPANS), Collector("no", "no", ZeroDivisionError())
    exporter = Exporter(collector, "there")
    for number in range(1, 4):
        exporter.record(SPAN)
        wait_for("it is lost", lambda number=number: counted.new() == {("dropped",): number})  # type: ignore[misc]
    exporter.record(SPAN)
    wait_for("the next one is sent", lambda: collector.got)
    exporter.stop(60)
    assert caplog.text.count("Spans cannot be sent to there, 1 are lost: no") == 1
    assert "ZeroDivisionError" in caplog.text


# -- the protocol

Receiver = Callable[[Certificates | None], AbstractContextManager[Received]]
RECEIVERS = pytest.mark.parametrize(("protocol", "receiver"), [(HTTP, http_receiver), (GRPC, grpc_receiver)])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def sent(settings: OtlpSettings, *spans: Span) -> str:
    target = OtlpTarget(settings)
    try:
        return target.send(spans)
    finally:
        target.close()


@RECEIVERS
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_sent(protocol: str, receiver: Receiver, compression: str | None) -> None:
    """TR-3, TR-6: what is no text or time does not lose the spans that are sent with it."""
    odd = [SPAN._replace(begin=-5.0), SPAN._replace(error="no \ud800"), SPAN._replace(attributes={"a": "\ud800"})]
    with receiver(None) as received:
        settings = OtlpSettings(protocol, received.endpoint, "np", timeout=60, compression=compression)
        assert sent(settings, *odd, SPAN) == ""
        *others, span = received.spans
    assert [(one.begin, one.error) for one in others] == [(0, "why"), (1.5, "no ?"), (1.5, "why")]
    assert (span.name, span.service, span.error) == ("nodepool.launch", "np", "why")
    assert (span.trace_id, span.span_id, span.parent_id) == (2**127 + 1, 2**63 + 2, 3)
    assert (span.begin, span.end, span.attributes) == (1.5, 2.5, {"a": "b", "c": ["d", "e"], "n": 2})


@RECEIVERS
def test_tls(
    protocol: str, receiver: Receiver, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TR-3: each side looks at the certificate of the other; an authority of the environment does not count."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/hostname")
    cert, key, ca = map(str, (certificates.client_cert, certificates.client_key, certificates.ca))
    others = make_certificates(tmp_path / "others")
    with receiver(certificates) as received:
        assert sent(OtlpSettings(protocol, received.endpoint, "np", tls_ca=str(others.ca), timeout=1), SPAN)
        assert received.spans == []
        assert sent(OtlpSettings(protocol, received.endpoint, "np", cert, key, ca, timeout=60), SPAN) == ""
        assert len(received.spans) == 1


def test_what_cannot_be_used(tmp_path: Path) -> None:
    """A collector that refuses is named with its answer; a file that is missing is an error of the configuration."""
    with http_receiver() as received:
        received.refuse = 400
        assert "400" in sent(OtlpSettings(HTTP, received.endpoint), SPAN)
    for protocol in (HTTP, GRPC):
        assert missing_module(protocol) is None
        with pytest.raises(FileNotFoundError):
            OtlpTarget(OtlpSettings(protocol, tls_ca=str(tmp_path / "none.pem")))


def test_the_end_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """TR-7: what waits is lost then, and logged."""
    collector = Collector("closed")
    collector.may_answer.clear()
    exporter = Exporter(collector, "there")
    exporter.record(SPAN)
    assert collector.asked.wait(60)
    exporter.record(SPAN)
    assert not exporter.stop(0.1)
    assert "Spans that were not sent to there before the end" in caplog.text or "Spans cannot be sent" in caplog.text
