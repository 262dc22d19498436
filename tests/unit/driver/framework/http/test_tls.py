# SPDX-License-Identifier: Apache-2.0
"""TLS contexts: what is shared, and that all connections are verified as without sharing."""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import SSLError
from urllib3.util.url import parse_url

from nodepool.driver.framework.http.plain_http import NoAnswer, NoTls, PlainHttp, TrustingConnection
from tests.support.certificates import Certificates, make_certificates
from tests.support.recording_server import OK, SlowServer

SECONDS = 30.0


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "good")


@pytest.fixture
def port(made: Certificates) -> Iterator[int]:
    """Of a server with TLS."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.keystore)
    with SlowServer(list, tls=tls) as server:
        found = parse_url(server.url).port
        assert found is not None
        yield found


def connect(port: int, authorities: Path | None, **options: Any) -> ssl.SSLContext:
    """Open a connection, and close it; returns its context."""
    settings = {"cert_reqs": "CERT_REQUIRED", "ca_certs": authorities and str(authorities), **options}
    connection = TrustingConnection("127.0.0.1", port, timeout=SECONDS, **settings)
    try:
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        assert connection.is_verified is (settings["cert_reqs"] == "CERT_REQUIRED")
        return connection.sock.context
    finally:
        connection.close()


def test_shared(port: int, made: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not changed by connections: other threads may be about to copy what urllib3 would set."""
    first = connect(port, made.ca)
    monkeypatch.setattr(ssl.SSLContext, "set_alpn_protocols", lambda *_: pytest.fail("changed"))
    assert connect(port, made.ca) is first


def test_verified(port: int, made: Certificates, tmp_path: Path) -> None:
    """Authorities, name, and a file that changes while the launcher runs; the context of others is not used for it."""
    first = connect(port, made.ca)
    bundle = tmp_path / "bundle.pem"
    shutil.copy(make_certificates(tmp_path / "foreign").ca, bundle)
    with pytest.raises(NoTls, match="certificate verify failed"):
        connect(port, bundle)
    with pytest.raises(NoTls, match=r"[Hh]ostname"):
        connect(port, made.ca, server_hostname="other.test")
    shutil.copy(made.ca, bundle)
    os.utime(bundle, (1, 1))
    connect(port, bundle)
    # Surely nothing was sent: that is what this error means to requests.
    with pytest.raises(NoTls, match="No such file"):
        connect(port, tmp_path / "none.pem")
    assert connect(port, made.ca) is first


def test_answer_that_is_no_tls(made: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a connection that is there: the call may have been carried out. Without one it was not."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.keystore)

    def no_record() -> list[bytes]:
        os.write(server.connections[-1].fileno(), b"no record of TLS")
        return []

    with SlowServer(no_record, first=OK, tls=tls) as server:
        strange = PlainHttp(1)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made.ca))
        known = PlainHttp(1)
        assert known.send("POST", server.url, {}).status == 200
        for http, maybe_done in ((known, True), (strange, False)):
            with pytest.raises(NoAnswer) as caught:
                http.send("POST", server.url, {})
            assert isinstance(caught.value.__cause__, SSLError)
            assert caught.value.maybe_done is maybe_done
            http.close()
