# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.connections`: a second call over a connection is as the first one."""

from __future__ import annotations

import gzip
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from nodepool.driver.framework.http import connections
from nodepool.driver.framework.http.connections import HttpSession
from simulators.openstack import OpenStackSimulator
from tests.support.certificates import make_certificates
from tests.support.slow_server import SlowServer
from tests.support.wait import wait_for
from tests.unit.driver.framework.http.test_bounded import ENDLESS_ANSWERS, HEAD, TIMEOUT_SECONDS

FIRST = HEAD + b"Content-Length: 2\r\n\r\n{}"
PACKED = gzip.compress(b'{"a": 1}')
GOOD_ANSWERS = {
    "packed": HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED,
    "in chunks": HEAD + b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n4\r\n: 1}\r\n0\r\n\r\n',
    "with a length": HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}',
    "until the end": b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b'\r\n{"a": 1}',
}


class LongWay:
    """Counts the calls that requests makes itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self._send = requests.adapters.HTTPAdapter.send
        monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", lambda *args, **named: self.send(*args, **named))

    def send(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        return self._send(*arguments, **named)


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> LongWay:
    return LongWay(monkeypatch)


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with HttpSession(requests.Session()) as made:
        connections.mount(made, 4)
        yield made


def call(session: requests.Session, url: str, method: str = "GET", **named: Any) -> requests.Response:
    """As keystoneauth does."""
    return session.request(method, url, **{"allow_redirects": False, "timeout": 30.0, "verify": True, **named})


@pytest.mark.parametrize("answer", GOOD_ANSWERS.values(), ids=GOOD_ANSWERS)
def test_answers(session: requests.Session, long_way: LongWay, answer: bytes) -> None:
    with SlowServer(lambda: [answer], first=FIRST) as server:
        assert call(session, server.url).json() == {}
        found = call(session, server.url)
        assert (found.status_code, found.reason, found.encoding) == (200, "OK", "utf-8")
        assert found.json() == {"a": 1}
        assert long_way.calls == 1


@pytest.mark.parametrize("name", sorted(ENDLESS_ANSWERS))
def test_bounded(session: requests.Session, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As over a connection that is new."""
    monkeypatch.setattr(connections, "MAX_ANSWER_BYTES", 1 << 20)
    pieces, pause = ENDLESS_ANSWERS[name]
    with SlowServer(pieces, pause, first=FIRST) as server:
        call(session, server.url)
        with pytest.raises(requests.RequestException):
            call(session, server.url, "POST", timeout=TIMEOUT_SECONDS)


def test_no_answer_in_time(session: requests.Session) -> None:
    """keystoneauth tells this from a connection that breaks."""
    with SlowServer(lambda: [b"H"], pause=60.0, first=FIRST) as server:
        call(session, server.url)
        with pytest.raises(requests.Timeout):
            call(session, server.url, timeout=TIMEOUT_SECONDS)


def test_breaks_in_the_middle(session: requests.Session, long_way: LongWay) -> None:
    """The call may have been made: it is not made again. The connection is not used again."""
    with SlowServer(lambda: [HEAD + b"Content-Length: 9\r\n\r\n{"], first=FIRST) as server:
        call(session, server.url)
        with pytest.raises(requests.ConnectionError):
            call(session, server.url, "POST", data="{}")
        assert call(session, server.url).json() == {}
        assert long_way.calls == 2


def test_was_closed_by_the_cloud(session: requests.Session, long_way: LongWay) -> None:
    """O-19: before the second call, or during it; nobody can tell which it will be."""
    answers = iter([HEAD + b"Content-Length: 2\r\n\r\n{}", HEAD + b"Content-Length: 3\r\n\r\n[1]"])
    with SlowServer(lambda: [next(answers)]) as server:
        assert call(session, server.url).json() == {}
        # A call that is sent while it closes the connection fails.
        wait_for("the cloud has closed the connection", lambda: server.closed == 1)
        assert call(session, server.url).json() == [1]
        assert long_way.calls == 2


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_is_closed_during_a_call(
    session: requests.Session, long_way: LongWay, tmp_path: Path, tls: bool, reset: bool
) -> None:
    """O-19: what only reads is made once more; anything else may have been done. Later calls are as usual."""
    made = make_certificates(tmp_path) if tls else None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if made is not None:
        context.load_cert_chain(made.keystore)
    verify = True if made is None else str(made.ca)
    # Each connection is closed after the head of the second call.
    with SlowServer(list, first=FIRST, tls=context if tls else None, reset=reset) as server:
        for _ in range(3):
            assert call(session, server.url, verify=verify).json() == {}
        assert long_way.calls == 3
        for method in ("POST", "PUT", "DELETE"):
            with pytest.raises(requests.ConnectionError):
                call(session, server.url, method, data="{}", verify=verify)
            assert call(session, server.url, verify=verify).json() == {}


def test_is_closed_within_the_answer(session: requests.Session, long_way: LongWay) -> None:
    """O-19 is about connections that were idle: a cloud that has begun to answer has a problem of its own."""
    with SlowServer(lambda: [HEAD + b"Content-Length: 9\r\n\r\n{"], first=FIRST) as server:
        call(session, server.url)
        with pytest.raises(requests.ConnectionError):
            call(session, server.url)
        assert long_way.calls == 1


def test_cookie_and_repeated_header(session: requests.Session) -> None:
    head = b"Set-Cookie: backend=two\r\nVary: a\r\nVary: b\r\nContent-Length: 2\r\n\r\n{}"
    with SlowServer(lambda: [HEAD + head], first=FIRST) as server:
        call(session, server.url)
        found = call(session, server.url)
        assert found.json() == {}
        assert found.headers["vary"] == "a, b"
        assert session.cookies.get_dict() == {"backend": "two"}


def test_methods(session: requests.Session, long_way: LongWay) -> None:
    """A body that is sent, and an answer without one."""
    with OpenStackSimulator() as simulator:
        auth = simulator.clouds_yaml_entry()["auth"]
        url = f"{auth['auth_url'].removesuffix('/v3')}/v3/auth/tokens"
        user = {"name": auth["username"], "password": auth["password"], "domain": {"id": "default"}}
        body = json.dumps({"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}})
        found = [call(session, url, "POST", data=body, headers={"Content-Type": "application/json"}) for _ in range(2)]
        assert [answer.status_code for answer in found] == [201, 201]
        assert found[1].json().keys() == found[0].json().keys()
        assert call(session, f"{url}/none", "HEAD").content == b""
        assert long_way.calls == 1


def test_tls(session: requests.Session, long_way: LongWay, tmp_path: Path) -> None:
    """The connection that was checked is used again; a call that trusts another authority gets one of its own."""
    good, foreign = make_certificates(tmp_path / "good"), make_certificates(tmp_path / "foreign")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(good.keystore)
    with SlowServer(lambda: [FIRST], first=FIRST, tls=tls) as server:
        for _ in range(2):
            assert call(session, server.url, verify=str(good.ca)).json() == {}
        assert long_way.calls == 1
        with pytest.raises(requests.exceptions.SSLError):
            call(session, server.url, verify=str(foreign.ca))
        assert long_way.calls == 2


def test_not_with_a_proxy(session: requests.Session, long_way: LongWay, monkeypatch: pytest.MonkeyPatch) -> None:
    with SlowServer(lambda: [FIRST], first=FIRST) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        for _ in range(2):
            assert call(session, "http://cloud.test/").json() == {}
        assert long_way.calls == 2


def test_not_what_is_read_from_a_file(session: requests.Session, long_way: LongWay) -> None:
    with SlowServer(lambda: [FIRST], first=FIRST) as server:
        for _ in range(2):
            assert call(session, server.url, "PUT", data=iter([b"image"])).json() == {}
        assert long_way.calls == 2


def test_after_the_session_was_closed(session: requests.Session) -> None:
    """Calls that are under way then may end."""
    with SlowServer(lambda: [FIRST], first=FIRST) as server:
        call(session, server.url)
        session.close()
        assert call(session, server.url).json() == {}


def test_closed_at_the_same_time() -> None:
    """Somebody closes the session after its pool was chosen."""
    pool = connections._HttpPool("127.0.0.1", 1)
    pool.close()
    request = requests.Request("GET", "http://127.0.0.1:1/").prepare()
    assert pool.exchange(request, 1.0) is None
