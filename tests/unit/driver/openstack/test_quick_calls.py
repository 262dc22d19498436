# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.service_client`: calls are as those of keystoneauth, which makes unusual ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from keystoneauth1 import exceptions

from nodepool.driver.framework.http.connections import QuickAnswer
from nodepool.driver.openstack import service_client
from nodepool.driver.openstack.clouds import Clouds
from nodepool.driver.openstack.service_client import TEMPLATE_SECONDS
from nodepool.driver.openstack.transport import close, make_http_client
from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from tests.support.manual_clock import ManualClock
from tests.support.recording_server import OK, RecordingServer, Sent

BODY = {"server": {"name": "n-1", "description": "ä", "networks": [{"uuid": "1"}]}}


class Site:
    """A client of a simulated cloud whose compute service is a server that keeps what it is sent."""

    def __init__(self, client: Any, service: RecordingServer, identity: OpenStackSimulator) -> None:
        self.client = client
        self.service = service
        self.identity = identity

    def call(self, method: str = "GET", path: str = "/servers/1", **arguments: Any) -> Any:
        """As `transport.Transport` makes it."""
        return self.client.request(path, method, raise_exc=False, **arguments)

    def learn(self) -> None:
        """The first opens a connection, the second is the one to be learned from."""
        for _ in range(2):
            assert not isinstance(self.call(), QuickAnswer)

    @property
    def last(self) -> Sent:
        return self.service.sent[-1]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> Callable[..., Any]:
    monkeypatch.setattr(service_client, "QuickCalls", partial(service_client.QuickCalls, clock=clock))

    @contextmanager
    def make(path: str = "/v2.1", **settings: Any) -> Iterator[Site]:
        with OpenStackSimulator() as identity, RecordingServer() as service:
            override = {"compute_endpoint_override": f"{service.url}{path}"}
            file = identity.write_clouds_yaml(tmp_path / "clouds.yaml", **override, **settings)
            monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
            client = make_http_client(Clouds().region(CLOUD_NAME, None), "compute")
            yield Site(client, service, identity)
            close(client)

    return make


@pytest.fixture
def site(make_site: Callable[..., Any]) -> Iterator[Site]:
    with make_site() as made:
        made.learn()
        yield made


@pytest.mark.parametrize(
    ("method", "given"), [("GET", {}), ("POST", {"json": BODY}), ("PUT", {"json": {}}), ("DELETE", {}), ("POST", {})]
)
def test_as_keystoneauth_makes_it(site: Site, method: str, given: dict[str, Any]) -> None:
    """O-20: method, path, headers and value are the same. Only lists, which are long, may be compressed."""
    answer = site.call(method, **given)
    quick = site.last
    assert isinstance(answer, QuickAnswer)
    assert (answer.status_code, answer.json()) == (200, {})
    assert not isinstance(site.client._long_way("/servers/1", method, {"raise_exc": False, **given}), QuickAnswer)
    usual = site.last
    assert quick.first == usual.first == f"{method} /v2.1/servers/1 HTTP/1.1"
    assert quick.headers.pop("accept-encoding") == "identity"
    usual.headers.pop("accept-encoding")
    lengths = [int(sent.headers.pop("content-length", 0)) for sent in (quick, usual)]
    assert quick.headers == usual.headers
    assert lengths == [len(quick.body), len(usual.body)]
    assert (json.loads(quick.body) if quick.body else None) == (json.loads(usual.body) if usual.body else None)


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/servers/detail", {"params": {"limit": "1"}}),
        ("/servers/1", {"headers": {"X-A": "b"}}),
        ("/servers/1", {"microversion": "2.79"}),
        ("/servers/a b", {}),
        ("/servers/1?all=1", {}),
        ("/servers/1", {"json": {"at": object}}),
    ],
)
def test_unusual_calls(site: Site, path: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """O-20: keystoneauth gets them as they are."""
    taken: list[Any] = []

    def take(*call: Any) -> Any:
        taken.append(call)
        return SimpleNamespace(status_code=200)

    monkeypatch.setattr(site.client, "_long_way", take)
    site.call(path=path, **given)
    assert taken == [(path, "GET", {"raise_exc": False, **given})]


def test_finds_out_anew(site: Site, clock: ManualClock) -> None:
    """O-20: after a minute keystoneauth looks at the catalog, the versions and its settings again."""
    clock.pass_seconds(TEMPLATE_SECONDS - 1)
    assert isinstance(site.call(), QuickAnswer)
    clock.pass_seconds(1)
    assert not isinstance(site.call(), QuickAnswer)
    assert isinstance(site.call(), QuickAnswer)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_token_is_refused(site: Site, method: str) -> None:
    """O-20: keystoneauth logs in, and makes the call with the new token; the next ones have that, too."""
    old = site.last.headers["x-auth-token"]
    refused = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    site.service.answer = lambda sent: refused if sent.headers["x-auth-token"] == old else OK
    assert site.call(method).status_code == 200
    new = site.last.headers["x-auth-token"]
    assert new != old
    assert isinstance(site.call(method), QuickAnswer)
    assert site.last.headers["x-auth-token"] == new


def test_token_that_is_nearly_over(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """keystoneauth renews it before the call."""
    old = site.last.headers["x-auth-token"]
    monkeypatch.setattr(type(site.client.session.auth.auth_ref), "will_expire_soon", lambda *_, **__: True)
    assert isinstance(site.call(), QuickAnswer)
    assert site.last.headers["x-auth-token"] != old


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_elsewhere(site: Site, method: str) -> None:
    """A redirection is followed by keystoneauth."""
    moved = f"HTTP/1.1 308 Permanent Redirect\r\nLocation: {site.service.url}/v2.1/other\r\nContent-Length: 0\r\n\r\n"
    site.service.answer = lambda sent: OK if "/other" in sent.first else moved.encode()
    assert site.call(method).status_code == 200
    assert site.last.first == f"{method} /v2.1/other HTTP/1.1"


def test_connection_is_closed(site: Site) -> None:
    """O-19: what only reads is made once more; anything else may have been done."""
    broken = iter([b""])
    site.service.answer = lambda _: next(broken, OK)
    assert site.call().status_code == 200
    assert isinstance(site.call(), QuickAnswer)
    site.service.answer = lambda _: b""
    with pytest.raises(exceptions.ConnectFailure, match="Unable to establish connection to http"):
        site.call("POST", json=BODY)
    made = len(site.service.sent)
    site.service.answer = lambda _: OK
    assert site.call("POST", json=BODY).status_code == 200
    assert len(site.service.sent) == made + 1


def test_breaks_in_the_middle(site: Site) -> None:
    site.service.answer = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"
    with pytest.raises(exceptions.ConnectFailure, match="no HTTP"):
        site.call()


def test_no_answer_in_time(make_site: Callable[..., Any]) -> None:
    with make_site(api_timeout=1) as site:
        site.learn()
        site.service.answer = lambda _: b"HTTP/1.1 200 OK\r\n"
        with pytest.raises(exceptions.ConnectTimeout):
            site.call("POST")


def test_compressed(site: Site) -> None:
    """It was not asked for: keystoneauth reads it, where that changes nothing."""
    site.service.answer = lambda sent: (
        OK
        if "gzip" in sent.headers["accept-encoding"]
        else OK.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    )
    assert not isinstance(site.call(), QuickAnswer)
    site.learn()
    with pytest.raises(exceptions.ConnectFailure, match="compressed"):
        site.call("DELETE")


def test_cookie(site: Site) -> None:
    """Of a load balancer: requests keeps it, so these calls are left to it."""
    site.service.answer = lambda _: OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b\r\n\r\n")
    assert isinstance(site.call(), QuickAnswer)
    for _ in range(3):
        assert not isinstance(site.call(), QuickAnswer)
    assert site.last.headers["cookie"] == "a=b"


def test_endpoint_without_a_version(make_site: Callable[..., Any]) -> None:
    """The service did not tell its versions: nothing is learned from what may be the wrong place."""
    with make_site("/compute") as site:
        for _ in range(3):
            assert not isinstance(site.call(), QuickAnswer)


def test_errors_are_not_learned_from(make_site: Callable[..., Any]) -> None:
    with make_site() as site:
        site.service.answer = lambda _: OK.replace(b"200 OK", b"404 Not Found")
        for _ in range(3):
            assert not isinstance(site.call(), QuickAnswer)


def test_repeats_that_clouds_yaml_asks_for(make_site: Callable[..., Any]) -> None:
    """They are keystoneauth's."""
    with make_site(compute_connect_retries=2) as site:
        site.learn()
        assert not isinstance(site.call(), QuickAnswer)


def test_as_often_as_clouds_yaml_says(make_site: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """O-14: each call takes one turn, whoever makes it."""
    with make_site() as site:
        taken: list[int] = []
        monkeypatch.setattr(site.client._turns._limiter, "wait", lambda: taken.append(1))
        site.learn()
        site.call()
        site.call(params={"limit": "1"})
        assert (len(taken), len(site.service.sent)) == (4, 4)
