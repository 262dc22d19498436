# SPDX-License-Identifier: Apache-2.0
"""From the error of an attempt to connect to its cause, and to a sentence."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from nodepool.zk.connect_failure import (
    Cause,
    ConnectFailure,
    ConnectStep,
    ServerPlace,
    TlsFiles,
    cause_of,
    furthest,
    is_hopeless,
    sentence,
    sentences,
    server_text,
)
from tests.support.certificates import make_certificates

FILES = TlsFiles("/tls/client.pem", "/tls/client.key", "/tls/ca.pem")
SERVER = ServerPlace("zk1.example.com", 2281)
OTHER = ServerPlace("zk2.example.com", 2281)


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] {reason.lower().replace('_', ' ')} (_ssl.c:1006)")
    error.reason = reason
    return error


def untrusted() -> ssl.SSLError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1006)")
    error.verify_message = "unable to get local issuer certificate"
    return error


REFUSED = ConnectFailure(ConnectStep.CONNECT, ConnectionRefusedError(111, "Connection refused"))
UNKNOWN_CA = ConnectFailure(ConnectStep.SESSION, tls_error("TLSV1_ALERT_UNKNOWN_CA"))


@pytest.mark.parametrize(
    ("stage", "error", "cause"),
    [
        (ConnectStep.RESOLVE, socket.gaierror(-2, "Name or service not known"), Cause.UNKNOWN_NAME),
        (ConnectStep.CONNECT, ConnectionRefusedError(111, "Connection refused"), Cause.REFUSED),
        (ConnectStep.CONNECT, OSError(113, "No route to host"), Cause.UNREACHABLE),
        (ConnectStep.CONNECT, TimeoutError("timed out"), Cause.SILENT),
        (ConnectStep.TLS_FILES, tls_error("PEM_LIB"), Cause.TLS_FILES),
        (ConnectStep.TLS_FILES, FileNotFoundError(2, "No such file"), Cause.TLS_FILES),
        (ConnectStep.HANDSHAKE, ConnectionResetError("connection closed during the TLS handshake"), Cause.NO_TLS),
        (ConnectStep.HANDSHAKE, tls_error("WRONG_VERSION_NUMBER"), Cause.NO_TLS),
        (ConnectStep.HANDSHAKE, TimeoutError("timed out"), Cause.SILENT),
        (ConnectStep.HANDSHAKE, untrusted(), Cause.SERVER_CERTIFICATE),
        (ConnectStep.HANDSHAKE, tls_error("SSLV3_ALERT_BAD_CERTIFICATE"), Cause.CLIENT_CERTIFICATE),
        (ConnectStep.HANDSHAKE, tls_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), Cause.HANDSHAKE),
        # With TLS 1.3 the server looks at our certificate when we are ready already.
        (ConnectStep.SESSION, tls_error("SSLV3_ALERT_CERTIFICATE_UNKNOWN"), Cause.CLIENT_CERTIFICATE),
        (ConnectStep.SESSION, tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), Cause.CLIENT_CERTIFICATE),
        (ConnectStep.SESSION, tls_error("TLSV1_ALERT_UNKNOWN_CA"), Cause.CLIENT_CERTIFICATE),
        (ConnectStep.SESSION, TimeoutError("nothing came in time"), Cause.SILENT),
        (ConnectStep.SESSION, ConnectionError("socket connection broken"), Cause.NOT_SERVING),
    ],
)
def test_causes(stage: ConnectStep, error: Exception, cause: Cause) -> None:
    assert cause_of(ConnectFailure(stage, error), tls=True) is cause


def test_server_that_wants_tls() -> None:
    failure = ConnectFailure(ConnectStep.SESSION, ConnectionError("socket connection broken"))
    assert cause_of(failure, tls=False) is Cause.NEEDS_TLS
    assert "set zookeeper-tls: cert, key and ca" in sentence(SERVER, 0, failure, None)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (REFUSED, ["nothing listens", "start ZooKeeper"]),
        (
            ConnectFailure(ConnectStep.RESOLVE, socket.gaierror(-2, "Name or service not known")),
            ["cannot be resolved (Name or service not known)", "zookeeper-servers[1].host"],
        ),
        (ConnectFailure(ConnectStep.CONNECT, OSError(113, "No route to host")), ["No route to host", "firewall"]),
        (ConnectFailure(ConnectStep.HANDSHAKE, TimeoutError("timed out")), ["no answer (timed out)"]),
        (
            ConnectFailure(ConnectStep.HANDSHAKE, tls_error("WRONG_VERSION_NUMBER")),
            ["does not speak TLS on this port (wrong version number)", "zookeeper-servers[1].port", "secureClientPort"],
        ),
        (
            ConnectFailure(ConnectStep.HANDSHAKE, untrusted()),
            ["unable to get local issuer certificate", "zookeeper-tls.ca (/tls/ca.pem)"],
        ),
        (UNKNOWN_CA, ["tlsv1 alert unknown ca", "zookeeper-tls.cert (/tls/client.pem)", "trust store"]),
        (
            ConnectFailure(ConnectStep.HANDSHAKE, tls_error("SSLV3_ALERT_HANDSHAKE_FAILURE")),
            ["TLS handshake failed (sslv3 alert handshake failure)"],
        ),
        (
            ConnectFailure(ConnectStep.SESSION, ConnectionError("socket connection broken")),
            ["does not serve", "its log"],
        ),
        (
            ConnectFailure(ConnectStep.TLS_FILES, tls_error("PEM_LIB")),
            ["zookeeper-tls.key: there is no file /tls/client.key"],
        ),
    ],
)
def test_sentences(failure: ConnectFailure, words: list[str]) -> None:
    """One line each, with server, place in the configuration, and remedy."""
    text = sentence(SERVER, 1, failure, FILES)
    assert text.startswith("ZooKeeper zk1.example.com:2281 (zookeeper-servers[1]): ")
    assert [word for word in words if word not in text] == []
    assert "_ssl.c" not in text
    assert "\n" not in text


def test_files_that_are_in_order_again(tmp_path: Path) -> None:
    """Somebody has renewed them since: what was said is told, and all three are named."""
    made = make_certificates(tmp_path)
    files = TlsFiles(str(made.client_cert), str(made.client_key), str(made.ca))
    text = sentence(SERVER, 0, ConnectFailure(ConnectStep.TLS_FILES, tls_error("KEY_VALUES_MISMATCH")), files)
    assert "zookeeper-tls: cert, key and ca cannot be used (key values mismatch)" in text
    assert [path for path in files if path not in text] == []


def test_addresses() -> None:
    assert server_text(ServerPlace("2001:db8::1", 2281), 0) == "[2001:db8::1]:2281 (zookeeper-servers[0])"


def test_the_furthest_attempt_says_most() -> None:
    """A name with several addresses: what was found out behind an open port is the trouble."""
    assert furthest([REFUSED, UNKNOWN_CA, REFUSED]) is UNKNOWN_CA


def test_only_servers_that_were_tried() -> None:
    found = sentences([SERVER, OTHER], {OTHER: [REFUSED], ServerPlace("gone", 1): [REFUSED]}, FILES)
    assert [text.partition(": ")[0] for text in found] == ["ZooKeeper zk2.example.com:2281 (zookeeper-servers[1])"]


@pytest.mark.parametrize(
    ("failures", "hopeless"),
    [
        ({}, False),
        ({SERVER: [UNKNOWN_CA]}, False),
        ({SERVER: [UNKNOWN_CA], OTHER: [REFUSED]}, False),
        ({SERVER: [UNKNOWN_CA], OTHER: [REFUSED, UNKNOWN_CA]}, True),
    ],
)
def test_hope(failures: dict[ServerPlace, list[ConnectFailure]], hopeless: bool) -> None:
    """A server that is down may come back; one that does not want our certificate will not."""
    assert is_hopeless([SERVER, OTHER], failures, FILES) is hopeless
