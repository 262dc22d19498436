# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry protocol, by HTTP and gRPC, with and without TLS, to a collector in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from nodepool.tracing.sending import GRPC, HTTP, OtlpSettings, OtlpTarget, missing_module
from nodepool.tracing.spans import Span
from tests.support.certificates import Certificates, make_certificates
from tests.support.otlp_receiver import Received, grpc_receiver, http_receiver

Receiver = Callable[[Certificates | None], AbstractContextManager[Received]]
RECEIVERS = pytest.mark.parametrize(("protocol", "receiver"), [(HTTP, http_receiver), (GRPC, grpc_receiver)])
SPAN = Span("nodepool.launch", 2**127 + 1, 2**63 + 2, 3, 1.5, 2.5, {"a": "b", "c": ("d", "e"), "n": 2}, "why")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@RECEIVERS
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_sent(protocol: str, receiver: Receiver, compression: str | None) -> None:
    """TR-3."""
    with receiver(None) as received:
        target = OtlpTarget(OtlpSettings(protocol, received.endpoint, "np", timeout=60, compression=compression))
        assert target.send([SPAN]) == ""
        target.close()
        (span,) = received.spans
    assert (span.name, span.service, span.error) == ("nodepool.launch", "np", "why")
    assert (span.trace_id, span.span_id, span.parent_id) == (2**127 + 1, 2**63 + 2, 3)
    assert (span.begin, span.end) == (1.5, 2.5)
    assert span.attributes == {"a": "b", "c": ["d", "e"], "n": 2}


@RECEIVERS
def test_tls(protocol: str, receiver: Receiver, certificates: Certificates) -> None:
    """TR-3: the collector asks for our certificate, and we look at its."""
    cert, key, ca = map(str, (certificates.client_cert, certificates.client_key, certificates.ca))
    with receiver(certificates) as received:
        target = OtlpTarget(OtlpSettings(protocol, received.endpoint, "np", cert, key, ca, timeout=60))
        assert target.send([SPAN]) == ""
        target.close()
        assert len(received.spans) == 1


@RECEIVERS
def test_a_collector_of_somebody_else(
    protocol: str, receiver: Receiver, certificates: Certificates, tmp_path: Path
) -> None:
    """TR-3: nothing is sent to one whose certificate another authority made."""
    others = make_certificates(tmp_path / "others")
    with receiver(certificates) as received:
        target = OtlpTarget(OtlpSettings(protocol, received.endpoint, "np", tls_ca=str(others.ca), timeout=1))
        assert target.send([SPAN])
        target.close()
        assert received.spans == []


def test_another_authority_in_the_environment(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of the configuration counts."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/hostname")
    test_tls(HTTP, http_receiver, certificates)


def test_what_is_no_text_or_time() -> None:
    """TR-6: records of others and messages of clouds; the spans that are sent with them are not lost."""
    odd = [SPAN._replace(begin=-5.0), SPAN._replace(error="no \ud800"), SPAN._replace(attributes={"a": "\ud800"})]
    with http_receiver() as received:
        target = OtlpTarget(OtlpSettings(HTTP, received.endpoint))
        assert target.send([*odd, SPAN]) == ""
        target.close()
    assert [(span.begin, span.error) for span in received.spans] == [
        (0, "why"),
        (1.5, "no ?"),
        (1.5, "why"),
        (1.5, "why"),
    ]


def test_nothing_is_left_of_one_that_cannot_be_made() -> None:
    """A configuration that is wrong is tried again with each reload."""
    library = logging.getLogger("opentelemetry.exporter")
    before = list(library.handlers)
    with pytest.raises(OSError, match="No such file"):
        OtlpTarget(OtlpSettings(HTTP, "http://127.0.0.1:1", tls_ca="/does/not/exist"))
    assert library.handlers == before


def test_refused() -> None:
    with http_receiver() as received:
        received.refuse = 400
        target = OtlpTarget(OtlpSettings(HTTP, received.endpoint))
        assert "400" in target.send([SPAN])
        target.close()


@pytest.mark.parametrize("protocol", [HTTP, GRPC])
def test_a_file_that_is_missing(protocol: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OtlpTarget(OtlpSettings(protocol, tls_ca=str(tmp_path / "none.pem")))


def test_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_module(HTTP) is None
    assert missing_module(GRPC) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert missing_module(HTTP) == "opentelemetry.sdk.trace"
