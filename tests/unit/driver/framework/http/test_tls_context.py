# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.connections`: what is shared, and that all are verified as before."""

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

from nodepool.driver.framework.http import connections
from nodepool.driver.framework.http.connections import TrustingConnection
from tests.support.certificates import Certificates, make_certificates
from tests.support.slow_server import SlowServer
from tests.unit.driver.framework.http.test_bounded import HEAD

SECONDS = 30.0


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "good")


@pytest.fixture
def port(made: Certificates) -> Iterator[int]:
    """Of a server with TLS."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.keystore)
    with SlowServer(lambda: [HEAD], tls=tls) as server:
        found = parse_url(server.url).port
        assert found is not None
        yield found


def connect(port: int, authorities: Path | str | None, **options: Any) -> ssl.SSLContext:
    """Open a connection, and close it; returns its context."""
    settings = {"cert_reqs": "CERT_REQUIRED", "ca_certs": None if authorities is None else str(authorities), **options}
    connection = TrustingConnection("127.0.0.1", port, timeout=SECONDS, **settings)
    try:
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        assert connection.is_verified is (settings["cert_reqs"] == "CERT_REQUIRED")
        return connection.sock.context
    finally:
        connection.close()


def test_shared(port: int, made: Certificates) -> None:
    assert connect(port, made.ca) is connect(port, made.ca)


def test_other_authorities(port: int, made: Certificates, tmp_path: Path) -> None:
    """Their connections trust nobody else, before and after."""
    foreign = make_certificates(tmp_path / "foreign")
    first = connect(port, made.ca)
    with pytest.raises((ssl.SSLError, SSLError), match="certificate verify failed"):
        connect(port, foreign.ca)
    assert connect(port, made.ca) is first


def test_another_host(port: int, made: Certificates) -> None:
    """The certificate is for a name; it is verified with the shared context, too."""
    connect(port, made.ca)
    with pytest.raises((ssl.SSLError, SSLError), match=r"[Hh]ostname"):
        connect(port, made.ca, server_hostname="other.test")


def test_file_that_changes(port: int, made: Certificates, tmp_path: Path) -> None:
    """A cloud may get another authority while the launcher runs."""
    bundle = tmp_path / "bundle.pem"
    shutil.copy(make_certificates(tmp_path / "foreign").ca, bundle)
    with pytest.raises((ssl.SSLError, SSLError)):
        connect(port, bundle)
    shutil.copy(made.ca, bundle)
    os.utime(bundle, (1, 1))
    connect(port, bundle)


@pytest.mark.parametrize(
    "options",
    [
        {"cert_reqs": "CERT_NONE"},
        {"assert_hostname": False},
        {"ssl_minimum_version": ssl.TLSVersion.TLSv1_3},
    ],
    ids=["not verified", "name not verified", "version"],
)
def test_unusual(port: int, made: Certificates, options: dict[str, Any]) -> None:
    """A connection that verifies less has a context of its own, and takes nothing from the others."""
    shared = connect(port, made.ca)
    other = connect(port, made.ca, **options)
    assert other is not shared
    assert (shared.verify_mode, shared.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert connect(port, made.ca) is shared


def test_client_certificate(port: int, made: Certificates) -> None:
    """It is loaded into the context: the others are not to show it."""
    options = {"cert_file": str(made.client_cert), "key_file": str(made.client_key)}
    assert connect(port, made.ca, **options) is not connect(port, made.ca)


def test_authorities_of_the_system(port: int, made: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file urllib3 finds them."""
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    assert connect(port, None) is not connect(port, None)


def test_file_that_is_missing(port: int, tmp_path: Path) -> None:
    """Surely nothing was sent: that is what this error means to requests."""
    with pytest.raises(SSLError, match="No such file"):
        connect(port, tmp_path / "none.pem")


def test_not_changed_by_connections(port: int, made: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads may be about to copy what urllib3 would set."""
    connect(port, made.ca)
    monkeypatch.setattr(ssl.SSLContext, "set_alpn_protocols", lambda *_: pytest.fail("changed"))
    connect(port, made.ca)


def test_read_once(port: int, made: Certificates) -> None:
    before = connections._context.cache_info()
    for _ in range(3):
        connect(port, made.ca)
    after = connections._context.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 2)
