# SPDX-License-Identifier: Apache-2.0
"""Calls to a cloud: what no answer means, when they are made, and that quick ones are as those of keystoneauth."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from keystoneauth1 import exceptions
from keystoneauth1.discover import normalize_version_number
from keystoneauth1.session import Session
from openstack.proxy import Proxy

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.http.plain_http import HttpAnswer
from nodepool.driver.openstack.clouds import Clouds
from nodepool.driver.openstack.service_client import USUAL_SECONDS, operation_name
from nodepool.driver.openstack.transport import make_http_client
from nodepool.exceptions import LaunchStatusException
from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from tests.support.manual_clock import ManualClock
from tests.support.recording_server import OK, Sent
from tests.support.tables import driver_table
from tests.unit.driver.openstack.support import FastTransport, MakeSite, Response, Site


@pytest.mark.parametrize(
    ("name", "said", "status", "kind", "maybe_done", "text"), driver_table("openstack", "no_answer")
)
def test_no_answer(
    name: str, said: str, status: int | None, kind: type[Exception], maybe_done: bool, text: str
) -> None:
    """J-7: a call whose answer was lost may have had its effect; one that was never sent has none."""
    more: dict[str, Any] = {"http_status": status} if status else {}
    more |= {"original": Exception()} if name == "UnknownConnectionError" else {}
    with pytest.raises(kind) as caught:
        FastTransport(getattr(exceptions, name)(said, **more)).get()
    assert type(caught.value) is kind
    error: Any = caught.value
    assert error.maybe_done is maybe_done
    assert text in str(caught.value)
    assert "pass-W0RD" not in str(caught.value)


# -- pace --


def answer(status: int, seconds: str = "") -> Response:
    return Response(status, {"a": 1} if status == 200 else {}, **({"Retry_After": seconds} if seconds else {}))


@pytest.mark.parametrize(("answers", "interval", "calls", "results", "pauses"), driver_table("openstack", "pace"))
def test_pace(answers: list[Any], interval: float, calls: str, results: list[Any], pauses: list[Any]) -> None:
    """O-14, reference/configuration 7"""
    transport = FastTransport(*(answer(*one) for one in answers), interval=interval)
    for service, wanted in zip(calls, results, strict=True):
        try:
            found: Any = transport.get({"c": "compute", "n": "network"}[service]) == {"a": 1}
        except CloudAway as error:
            found = "maybe done" if error.maybe_done else "not done"
        assert found == wanted
    waited = transport.waiting.pauses
    assert len(waited) == len(pauses)
    assert all(least <= found <= most for found, (least, most) in zip(waited, pauses, strict=True)), waited


@pytest.mark.parametrize("stopped", [False, True])
def test_calls_that_are_not_made(stopped: bool) -> None:
    """What was put off is not sent if it is not wanted any more when its turn comes again. None after close()."""
    transport = FastTransport(answer(429), answer(200))
    if stopped:
        transport.close()

    def permit() -> None:
        if transport.waiting.pauses:
            raise LaunchStatusException("not wanted any more")

    with pytest.raises((LaunchStatusException, CloudAway), match="stopped" if stopped else "not wanted"):
        transport.call("compute", "POST", "/servers", "creating a server", permit=permit)
    assert len(transport.asked) == (0 if stopped else 1)


def test_odd_answers_of_the_login() -> None:
    """What keystoneauth stumbles over is an answer that cannot be understood, no error of ours. Bugs stay."""
    with pytest.raises(CloudAway, match=r"the answer cannot be understood: .*is it a web page or a proxy"):
        FastTransport(lambda: normalize_version_number("x")).get()
    with pytest.raises(ZeroDivisionError):
        FastTransport(ZeroDivisionError()).get()


# -- as keystoneauth makes them --

BODY = {"server": {"name": "n-1", "description": "ä", "networks": [{"uuid": "1"}]}}


@pytest.fixture
def site(make_site: MakeSite) -> Iterator[Site]:
    with make_site() as made:
        made.learn()
        yield made


@pytest.mark.parametrize(
    ("method", "given"),
    [
        *(("GET", {}), ("POST", {"json": BODY}), ("PUT", {"json": {}}), ("DELETE", {}), ("POST", {})),
        ("GET", {"params": {"limit": "1", "fields": ("id", "a b"), "changes-since": "2026-01-01T12:00:00Z"}}),
    ],
)
def test_as_keystoneauth_makes_it(site: Site, clock: ManualClock, method: str, given: dict[str, Any]) -> None:
    """O-20: method, path, query, headers and value are the same."""
    answer = site.call(method, **given)
    quick = site.last
    assert isinstance(answer, HttpAnswer)
    assert (answer.status_code, answer.json()) == (200, {})
    # After a minute keystoneauth looks at the catalog, the versions and its settings again.
    clock.pass_seconds(USUAL_SECONDS)
    assert not site.is_quick(method, **given)
    usual = site.last
    assert quick.first == usual.first
    assert usual.first.startswith(f"{method} /v2.1/servers/1")
    for sent in (quick, usual):
        assert "gzip" in sent.headers.pop("accept-encoding")
    lengths = [int(sent.headers.pop("content-length", 0)) for sent in (quick, usual)]
    assert quick.headers == usual.headers
    assert lengths == [len(quick.body), len(usual.body)]
    assert (json.loads(quick.body) if quick.body else None) == (json.loads(usual.body) if usual.body else None)
    assert site.is_quick()


@pytest.mark.parametrize(
    ("path", "given", "sent"),
    [
        ("/servers/1", {"headers": {"X-A": "b"}}, "GET /v2.1/servers/1"),
        ("/servers/1", {"raise_exc": True}, "GET /v2.1/servers/1"),
        ("/servers/1", {"json": {"at": uuid.UUID(int=1)}}, "GET /v2.1/servers/1"),
    ],
)
def test_unusual_calls(site: Site, path: str, given: dict[str, Any], sent: str) -> None:
    """O-20: keystoneauth makes them."""
    assert site.is_quick()
    assert not site.is_quick(path=path, **given)
    assert site.last.first == f"{sent} HTTP/1.1"


def with_header(line: bytes) -> bytes:
    return OK.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")


def moved(sent: Sent) -> bytes:
    place = f"Location: http://{sent.headers['host']}/v2.1/other"
    return OK if "/other" in sent.first else f"HTTP/1.1 308 Moved\r\n{place}\r\nContent-Length: 0\r\n\r\n".encode()


SITE: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("settings", "answer", "method", "outcomes"),
    [
        # A redirection is followed by keystoneauth.
        *((SITE, moved, method, "k") for method in ("GET", "DELETE")),
        # O-19: what only reads is made once more; anything else may have been done.
        (SITE, iter([b""]), "GET", "qq"),
        (SITE, iter([b""]), "POST", "Eq"),
        (SITE, lambda sent: b"SSH-2.0-OpenSSH_9.2\r\n", "GET", "E"),
        ({"api_timeout": 1}, lambda sent: b"HTTP/1.1 200 OK\r\n", "POST", "T"),
        # Of a load balancer: requests keeps it, so these calls are left to it.
        (SITE, lambda sent: with_header(b"Set-Cookie: a=b"), "GET", "qkkk"),
        # The service did not tell its versions: nothing is learned from what may be the wrong place, nor from errors.
        ({"path": "/compute"}, lambda sent: OK, "GET", "kk"),
        ({"compute_connect_retries": 2}, lambda sent: OK, "GET", "kk"),
        (SITE, lambda sent: OK.replace(b"200 OK", b"404 Not Found"), "GET", "qq"),
    ],
)
def test_odd_answers(make_site: MakeSite, settings: Any, answer: Any, method: str, outcomes: str) -> None:
    """O-20, O-19: made quickly (q), by keystoneauth (k), with its errors: no connection (E), no answer in time (T)."""
    with make_site(**settings) as site:
        site.learn()
        site.service.answer = answer if callable(answer) else lambda _: next(answer, OK)
        for wanted in outcomes:
            try:
                found = "q" if site.is_quick(method, json=BODY if method == "POST" else None) else "k"
            except exceptions.ConnectTimeout:
                found = "T"
            except exceptions.ConnectFailure:
                found = "E"
            assert found == wanted


# -- in a simulated cloud --


@pytest.mark.parametrize(("service", "paths"), driver_table("openstack", "metrics"))
def test_names_of_calls(service: str, paths: list[str]) -> None:
    """As openstacksdk makes them of the address of a call, for which it has no public function."""
    proxy: Any = Proxy(Session())
    for path in paths:
        # openstacksdk has no public name for this.
        names = proxy._extract_name(f"https://cloud/v2.1{path}", service, "p1")  # noqa: SLF001
        assert operation_name(path) == "_".join(names)


def test_counted(make_site: MakeSite) -> None:
    """reference/metrics 7"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(30)
        place = {"host": "127.0.0.1", "port": statsd.getsockname()[1], "prefix": "cloud"}
        with make_site(metrics={"statsd": place}) as site:
            site.call("DELETE")
        first, *others = statsd.recv(1024).decode().splitlines()
    assert first.startswith("cloud.compute.DELETE.server.200:")
    assert others == [f"cloud.compute.DELETE.server.{name}:1|c" for name in ("200", "attempted")]


def test_count_that_fails(site: Site) -> None:
    """A call that was made is not taken for one that failed."""

    def pipeline() -> None:
        raise OSError("Message too long")

    site.client._statsd = SimpleNamespace(pipeline=pipeline, close=lambda: None)  # noqa: SLF001
    assert site.call("POST", json=BODY).status_code == 200


def test_endpoints(clouds_yaml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-21: one without a version is not used: all that is asked for there seems absent."""
    with OpenStackSimulator() as simulator:
        simulator.write_clouds_yaml(clouds_yaml)
        client: Any = make_http_client(Clouds().region(CLOUD_NAME, None), "image")
        right = str(client.get_endpoint())
        bare = right.split("/v2")[0]
        found = [bare, bare, bare, right, bare]
        monkeypatch.setattr(client, "get_endpoint", lambda: found.pop(0))
        with pytest.raises(exceptions.DiscoveryFailure, match=f"the image service at {bare}/* reports no version"):
            client.request("/images", "GET", raise_exc=False)
        # The error says what the service answers.
        for kind, text in (("503", "503"), ("404", "reports no version")):
            simulator.change(errors=[{"operation": "image.versions", "kind": kind}])
            with pytest.raises((exceptions.DiscoveryFailure, exceptions.HttpError), match=text):
                client.request("/images", "GET", raise_exc=False)
        simulator.change(errors=[])
        # The one that is known stays.
        for _ in range(2):
            assert client.request("/images", "GET", params={"limit": "1"}).status_code == 200
        assert found == []
        client.close()
