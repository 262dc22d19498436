# SPDX-License-Identifier: Apache-2.0
"""The endpoints of Nodepool 11.0.0 (tests/migration/test_web.py compares them), health, files, build logs."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any, cast

import httpx2 as httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import nodepool.web
from nodepool.clock import monotonic
from nodepool.model import states
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.web import served
from nodepool.web.answers import StaticFiles
from nodepool.web.served import MOST_ANSWERS, MOST_BYTES, STUCK_SECONDS, Question, RecentAnswers, prefers_json
from nodepool.web.snapshot import WebSnapshot
from tests.support import image_views, observed
from tests.support.manual_clock import ManualClock
from tests.support.tables import rows
from tests.support.web_site import WebSite
from tests.unit.web.rig import SECONDS, serving

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
    return WebSnapshot(0, seen, images=image_views.images(build, paused=True, build_requested=observed.NOW - 9.5))


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


def test_caching(site: WebSite) -> None:
    """WP-6: for a second the same answer, with headers that say so; conditional requests; answers are bounded."""
    clock = ManualClock(1_000_000_000.5)
    client = TestClient(Starlette(routes=served.listings(cast("ConnectedDaemon", site.daemon), site.snapshots, clock)))
    first = client.get("/label-list")
    expected = {
        "access-control-allow-origin": "*",
        "cache-control": "max-age=1, public",
        "last-modified": "Sun, 09 Sep 2001 01:46:40 GMT",
        "expires": "Sun, 09 Sep 2001 01:46:41 GMT",
    }
    assert {name: first.headers[name] for name in expected} == expected

    def code(moment: str) -> int:
        answer = client.get("/label-list", headers={"If-Modified-Since": moment})
        assert bool(answer.content) == (answer.status_code == 200)
        return answer.status_code

    made = first.headers["last-modified"]
    moments = (made, "Sat, 01 Jan 2050 00:00:00 GMT", "Sat, 01 Jan 2000 00:00:00 GMT", "yesterday")
    assert [code(moment) for moment in moments] == [304, 304, 200, 200]
    site.snapshots.snapshot = dataclasses.replace(snapshot(), observed=observed.seen())
    clock.pass_seconds(0.9)
    assert client.get("/label-list").content == first.content
    assert listed(client, "/label-list") == []
    clock.pass_seconds(0.2)
    assert client.get("/label-list").content != first.content
    assert code(made) == 200
    recent = RecentAnswers(clock)
    questions = [Question(as_json=False, node_id=str(number)) for number in range(3 * MOST_ANSWERS)]
    for question in questions:
        recent.get("/node-list", question, lambda: b"x")
    asked = [recent.get("/node-list", question, lambda: b"y").body for question in questions]
    assert asked.count(b"x") == MOST_ANSWERS
    clock.pass_seconds(2)
    recent.get("/node-list", Question(as_json=True), lambda: b"x" * (MOST_BYTES + 1))
    assert recent.get("/node-list", Question(as_json=True), lambda: b"new").body == b"new"


def test_ready(site: WebSite) -> None:
    """WP-7"""
    answer = site.client.get("/ready")
    assert (answer.status_code, answer.text, answer.headers["cache-control"]) == (200, "OK", "max-age=1, public")
    assert site.client.get("/ready", headers=JSON).headers["content-type"] == "application/json"
    site.daemon.ready.clear()
    answer = site.client.get("/ready")
    assert (answer.status_code, answer.headers.get("cache-control")) == (503, None)


@rows(__file__, "test_preferred_form")
def test_preferred_form(header: str | None, expected: bool) -> None:
    """WP-2: what Nodepool 11.0.0 answers to each header was looked at."""
    assert prefers_json(header and re.sub(r"\bJ\b", "application/json", header)) == expected


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
        assert len(path.read_text().splitlines()) <= 40, path.name


def test_vendored_files_are_those_of_their_releases() -> None:
    """WP-40: the hashes are those that tools/vendor has compared with the registry's archive."""
    packages = tomllib.loads((STATIC / "vendor" / "vendor.toml").read_text())["package"]
    assert {(package["name"], package["licence"]) for package in packages} == {("htmx.org", "0BSD"), ("uplot", "MIT")}
    files = {file["to"]: file["integrity"] for package in packages for file in package["files"]}
    for name, integrity in files.items():
        digest = hashlib.sha512((STATIC / "vendor" / name).read_bytes()).digest()
        assert integrity == "sha512-" + base64.b64encode(digest).decode(), name
    assert {path.name for path in (STATIC / "vendor").iterdir()} == {*files, "vendor.toml"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Of a build."""
    return tmp_path / f"debian-{'0' * 32}.log"


def served_logs(directory: Path, running: set[str]) -> Starlette:
    return served.make_app(served.build_logs(str(directory), lambda: running))


def test_build_logs(log: Path) -> None:
    """WP-49: the list, and all of a log as it is; nothing else of the directory, or of another one."""
    log.write_bytes(b"<b>\x1b[31m\xff" + b"x" * 100_000)
    log.with_name("passwd").write_text("secret")
    with TestClient(served_logs(log.parent, set())) as client:
        assert client.get("/").text == f"{log.stem}\n"
        answer = client.get(f"/logs/{log.stem}")
        assert answer.content == log.read_bytes()
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        for name in ("nothing", "passwd", f"none-{'0' * 32}", "%2e%2e%2fpasswd", f"..%2Fdebian-{'0' * 32}", "%00", "."):
            assert client.get(f"/logs/{name}").status_code == 404


@pytest.mark.parametrize("end", ["of the build", "of the server"])
def test_log_of_a_running_build(log: Path, end: str) -> None:
    """WP-49: what is written meanwhile follows, until the build ends, or the server."""
    log.write_text("old\n")
    running = {"0" * 32}
    with (
        serving(lambda: served_logs(log.parent, running)) as server,
        httpx.stream("GET", f"http://127.0.0.1:{server.port}/logs/{log.stem}", timeout=SECONDS) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "old"
        with log.open("a") as file:
            file.write("new\n")
        assert next(lines) == "new"
        if end == "of the build":
            running.clear()
        else:
            server.stop()
        assert list(lines) == []
