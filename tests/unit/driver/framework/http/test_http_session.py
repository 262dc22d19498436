# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.connections`: the same calls as those of requests, for less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from nodepool.driver.framework.http.connections import HttpSession

URL = "http://cloud.test:8774/v2.1/servers"
#: As keystoneauth makes a call.
CALL: dict[str, Any] = {"verify": True, "timeout": 60.0, "allow_redirects": False}


class Wire(requests.adapters.BaseAdapter):
    """Keeps what is sent, and answers with a cookie if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[Any, dict[str, Any]]] = []
        self.status = 200

    def send(self, request: Any, *arguments: Any, **named: Any) -> requests.Response:
        self.sent.append((request, named))
        response = requests.Response()
        response.status_code = self.status
        response._content = b"{}"
        response.request = request
        response.url = request.url
        return response

    def close(self) -> None:
        return


def plain() -> requests.Session:
    """As requests makes it, but for netrc."""
    session = requests.Session()
    session.auth = lambda request: request
    return session


def described(sent: tuple[Any, dict[str, Any]]) -> tuple[Any, ...]:
    request, named = sent
    return request.method, request.url, dict(request.headers), request.body, named


@pytest.fixture
def wires() -> Iterator[tuple[HttpSession, Wire, requests.Session, Wire]]:
    """Ours and the one of requests, and what each of them sends."""
    ours, theirs = HttpSession(plain()), plain()
    mine, other = Wire(), Wire()
    for session, wire in ((ours, mine), (theirs, other)):
        session.mount("http://", wire)
        session.mount("https://", wire)
    with ours, theirs:
        yield ours, mine, theirs, other


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"params": {"changes-since": "2024-01-01T00:00:00Z", "fields": ("id", "name")}},
        {"data": '{"server": {}}', "headers": {"Content-Type": "application/json", "X-None": None}},
        {"headers": {"User-Agent": "launcher", "X-Auth-Token": "secret"}, "stream": True},
        {"verify": "/etc/ssl/cloud.pem", "cert": ("a.pem", "b.pem")},
        {"verify": False},
        {"json": {"not": "of keystoneauth"}},
        {"cookies": {"a": "b"}},
    ],
)
@pytest.mark.parametrize("method", ["GET", "post", "DELETE"])
def test_sends_what_requests_sends(wires: Any, monkeypatch: pytest.MonkeyPatch, method: str, given: Any) -> None:
    """Also with what the environment says."""
    ours, mine, theirs, other = wires
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/all.pem")
    monkeypatch.setenv("NO_PROXY", "inside.test")
    for url in (URL, "http://inside.test/x?a=b", URL):
        ours.request(method, url, **{**CALL, **given})
        theirs.request(method, url, **{**CALL, **given})
    assert [described(sent) for sent in mine.sent] == [described(sent) for sent in other.sent]
    assert ["http" in named["proxies"] for _, named in mine.sent] == [True, False, True]


def test_environment_is_asked_once_for_a_host(wires: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, mine, _, _ = wires
    asked: list[str] = []
    merge = requests.Session.merge_environment_settings

    def ask(session: Any, url: Any, *arguments: Any) -> Any:
        asked.append(url)
        return merge(session, url, *arguments)

    monkeypatch.setattr(requests.Session, "merge_environment_settings", ask)
    for url in (URL, f"{URL}/1", "http://other.test/", URL):
        ours.request("GET", url, **CALL)
        mine.sent[-1][1]["proxies"]["http"] = "what an adapter does with it stays its own"
    assert asked == [URL, "http://other.test/"]
    assert all(list(named["proxies"]) == ["http"] for _, named in mine.sent)


def test_cookie_of_a_load_balancer_is_sent_again(wires: Any) -> None:
    ours, mine, _, _ = wires
    ours.request("GET", URL, **CALL)
    ours.cookies.set("backend", "two")
    ours.request("GET", URL, **CALL)
    assert [request.headers.get("Cookie") for request, _ in mine.sent] == [None, "backend=two"]


def test_settings_of_the_other_session_are_kept() -> None:
    with requests.Session() as other:
        other.headers["X-Ours"] = "yes"
        other.verify = False
        other.params = {"always": "1"}
        session = HttpSession(other)
        assert (session.headers, session.verify, session.adapters) == (other.headers, False, other.adapters)
        wire = Wire()
        session.mount("http://", wire)
        session.request("GET", URL, **CALL)
        assert wire.sent[0][0].url == f"{URL}?always=1"
