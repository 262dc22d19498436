# SPDX-License-Identifier: Apache-2.0
"""The endpoints of Nodepool 11.0.0 (tests/migration/test_web.py compares them), health, files, the server."""

from __future__ import annotations

import base64
import dataclasses
import gc
import hashlib
import logging
import socket
import tomllib
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

import nodepool.web
from nodepool.clock import monotonic
from nodepool.model import states
from nodepool.web.answers import StaticFiles
from nodepool.web.served import STUCK_SECONDS, AllowedHosts
from nodepool.web.server import BoundedListener, ListenAddress, WebServer
from nodepool.web.snapshot import WebSnapshot
from tests.support import image_views, observed
from tests.support.tables import rows
from tests.support.wait import wait_for
from tests.support.web_site import WebSite
from tests.unit.web.rig import SECONDS, serving, set_constants

JSON = {"Accept": "application/json"}
NODE, OTHER = f"{1:010}", f"{2:010}"
STATIC = Path(nodepool.web.__file__).parent / "static"


def snapshot() -> WebSnapshot:
    nodes = observed.known(observed.node(), observed.node(2, "gpu", "arm", state=states.IN_USE))
    nodes[OTHER].connection_port = {"token": "s3cret"}
    registered = [observed.component("cloud-1", "gpu", "arm")]
    seen = observed.seen(observed.request(), nodes=nodes, registered=registered, locked=frozenset([OTHER]))
    upload = image_views.upload(1, time=observed.NOW - 30.5)
    build = image_views.build("b1", "ready", observed.NOW - 60.5, upload)
    images = image_views.images(build, paused=True, build_requested=observed.NOW - 9.5)
    return WebSnapshot(0, dataclasses.replace(seen, images=images))


@pytest.fixture
def site() -> WebSite:
    return WebSite(snapshot())


def listed(client: TestClient, path: str) -> list[dict[str, Any]]:
    answer = client.get(path, headers=JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    found: list[dict[str, Any]] = answer.json()
    return found


def test_what_the_released_launcher_has_not(site: WebSite) -> None:
    """WP-3, WP-8: no token of a pod; the moment of builds of paused images; odd queries, which get status 500 there."""
    assert "s3cret" not in site.client.get("/node-list", headers=JSON).text + site.client.get("/node-list").text
    (build,) = listed(site.client, "/dib-image-list")
    assert (build["age"], build["state"]) == (int(observed.NOW - 60.5), "ready")
    (status,) = listed(site.client, "/image-status")
    assert (status["build_request_age"], status["paused"]) == (int(observed.NOW - 9.5), True)
    assert "00:00:00:30" in site.client.get("/image-list").text
    assert [row["locked"] for row in listed(site.client, f"/node-list?node_id={NODE}&node_id={OTHER}")] == ["locked"]
    for path in ("/label-list?x=%ff%zz&&=&a", "/node-list?node_id=%ff", "/node-list?fields=%ff", "/ready?%"):
        assert site.client.get(path).status_code == 200
    assert len(listed(site.client, "/request-list?fields=id")) == 1
    assert site.client.get("/node-list?fields=state,nothing").text.count("|") == 6
    for path in ("/label-list/", "/LABEL-LIST", "/nothing"):
        assert site.client.get(path, follow_redirects=False).status_code == 404


@rows(__file__, "test_health")
def test_health(started: bool, age: float, connected: bool, complete: bool, live: bool, ready: bool) -> None:
    """What a load balancer, systemd and an orchestrator learn."""
    site = WebSite()
    if not started:
        site.daemon.ready.clear()
    site.daemon.last_loop, site.daemon.connected = monotonic() - age, connected
    site.daemon.reload_errors = errors = ["line 5: no"]
    site.snapshots.snapshot = dataclasses.replace(site.snapshots.snapshot, complete=complete)
    codes = [site.client.get(f"/health/{what}").status_code for what in ("live", "ready")]
    assert codes == [200 if one else 503 for one in (live, ready)]
    found = site.client.get("/health/status").json()
    assert age <= found.pop("loop_age_seconds") < age + STUCK_SECONDS
    state = {"kind": "launcher", "version": "1.2.3", "state": "running" if started else "initializing"}
    assert found == {**state, "live": live, "ready": ready, "connected": connected, "reload_errors": errors}


def test_files() -> None:
    """WP-40: kept for ever at the address with the hash; nothing else is served; our scripts are short."""
    client = WebSite().client
    with_hash, without = client.get(f"/{StaticFiles().address('nodepool.css')}"), client.get("/static/nodepool.css")
    assert with_hash.content == without.content == (STATIC / "nodepool.css").read_bytes()
    assert with_hash.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (without.headers["cache-control"], without.headers["content-type"]) == (
        "no-cache",
        "text/css; charset=utf-8",
    )
    again = client.get("/static/nodepool.css", headers={"If-None-Match": without.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for name in ("nothing.css", "vendor/vendor.toml", "../app.py", "%2e%2e/app.py", "", "/etc/passwd"):
        assert client.get(f"/static/{name}").status_code == 404
    for path in STATIC.glob("*.js"):
        assert len(path.read_text().splitlines()) <= 150, path.name


def test_vendored_files_are_those_of_their_releases() -> None:
    """WP-40: the hashes are those that tools/vendor has compared with the registry's archive."""
    packages = tomllib.loads((STATIC / "vendor" / "vendor.toml").read_text())["package"]
    assert {(package["name"], package["licence"]) for package in packages} == {("htmx.org", "0BSD"), ("uplot", "MIT")}
    files = {file["to"]: file["integrity"] for package in packages for file in package["files"]}
    for name, integrity in files.items():
        digest = hashlib.sha512((STATIC / "vendor" / name).read_bytes()).digest()
        assert integrity == "sha512-" + base64.b64encode(digest).decode(), name
    assert {path.name for path in (STATIC / "vendor").iterdir()} == {*files, "vendor.toml"}


# -- the server and its connections: it serves whatever happens to its port; clients cannot use it up (WP-66, WP-67)


LIVE = "/health/live"


def connect(server: WebServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), SECONDS)


def get(server: WebServer, path: str = LIVE) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{server.port}{path}", timeout=SECONDS)


def test_serves_and_holds_no_answer_back() -> None:
    """Each connection sends at once what is written to it (TCP_NODELAY, which it has from the listener)."""
    with serving() as server:
        answer = get(server)
        listeners = [one for one in gc.get_objects() if type(one) is BoundedListener and one.fileno() >= 0]
        assert [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in listeners] == [1]
    assert (answer.status_code, answer.text) == (200, "OK")
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_port_is_taken(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One message names address and keys; when the port is free, it is served."""
    set_constants(monkeypatch, WebServer, RETRY_SECONDS=0.01)
    with caplog.at_level(logging.ERROR, "nodepool.web"), socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        thread = WebServer(ListenAddress("127.0.0.1", port), WebSite().make_app, 100)
        thread.start()
        wait_for("a message", lambda: bool(caplog.messages))
        assert not thread.listening.is_set()
    try:
        assert thread.listening.wait(SECONDS)
    finally:
        thread.stop()
        thread.join(SECONDS)
    assert [f"127.0.0.1 port {port} (webapp.listen_address, webapp.port)" in text for text in caplog.messages] == [True]


def test_application_cannot_be_made(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again."""
    set_constants(monkeypatch, WebServer, RETRY_SECONDS=0.01)
    tries = iter([RuntimeError("not now")])

    def make() -> Any:
        for error in tries:
            raise error
        return WebSite().make_app()

    with serving(make) as server:
        assert get(server).status_code == 200
    assert "not now" in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\nx y z\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_clients_cannot_fill_the_log(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """WP-66"""
    with caplog.at_level(logging.WARNING, "uvicorn.error"), serving() as server, connect(server) as client:
        client.sendall(sent)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 ")
    assert caplog.records == []


async def ok(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("ok")(scope, receive, send)


@rows(__file__, "test_allowed_hosts")
def test_allowed_hosts(given: str, allowed: bool) -> None:
    """WP-67: against DNS rebinding. Probes are answered whatever name they send."""
    hosts = AllowedHosts(ok, ["nodepool.example.org", "*.pods.example.org"])
    client = TestClient(hosts, base_url="http://nodepool.example.org")
    assert client.get("/nodes", headers={"Host": given}).status_code == (200 if allowed else 400)
    assert client.get(LIVE, headers={"Host": given}).status_code == 200
    assert client.get("/ready", headers={"Host": given}).status_code == 200
