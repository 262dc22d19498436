# SPDX-License-Identifier: Apache-2.0
"""The endpoints of Nodepool 11.0.0; tests/migration/test_web.py compares them with those of the released launcher."""

from __future__ import annotations

import dataclasses
from typing import Any

import httpx2 as httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from nodepool.model import states
from nodepool.model.image import ImagesView
from nodepool.web import app
from nodepool.web.snapshot import WebSnapshot
from tests.support import image_views, observed
from tests.support.web_site import WebSite

JSON = {"Accept": "application/json"}
LISTINGS = ("/image-list", "/dib-image-list", "/image-status", "/node-list", "/request-list", "/label-list")
NODE, OTHER = f"{1:010}", f"{2:010}"


def images() -> ImagesView:
    upload = image_views.upload(1, time=observed.NOW - 30.5)
    build = image_views.build("b1", "ready", observed.NOW - 60.5, upload)
    return image_views.images(build, paused=True, build_requested=observed.NOW - 9.5)


def snapshot() -> WebSnapshot:
    nodes = observed.known(observed.node(), observed.node(2, "gpu", "arm", state=states.IN_USE))
    nodes[OTHER].connection_port = {"token": "s3cret"}
    seen = observed.seen(
        observed.request(),
        nodes=nodes,
        registered=[observed.component("cloud-1", "gpu", "arm")],
        locked=frozenset([OTHER]),
    )
    return WebSnapshot(0, seen, images=images())


@pytest.fixture
def site() -> WebSite:
    return WebSite(snapshot())


def rows(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"] == "application/json"
    found: list[dict[str, Any]] = answer.json()
    return found


@pytest.mark.parametrize("path", LISTINGS)
def test_text_and_json(site: WebSite, path: str) -> None:
    """WP-1, WP-2: the same rows, in the form that is asked for."""
    text, data = site.client.get(path), site.client.get(path, headers=JSON)
    assert text.headers["content-type"] == "text/plain; charset=UTF-8"
    assert (text.status_code, data.status_code) == (200, 200)
    assert len(text.text.splitlines()) - 4 == len(rows(data)) > 0
    assert not text.text.endswith("\n")


def test_ages(site: WebSite) -> None:
    """WP-3: a text for nodes, the moment for images."""
    assert {row["age"] for row in rows(site.client.get("/node-list", headers=JSON))} == {"00:00:00:50"}
    assert rows(site.client.get("/image-list", headers=JSON))[0]["age"] == int(observed.NOW - 30.5)
    assert rows(site.client.get("/dib-image-list", headers=JSON))[0]["age"] == int(observed.NOW - 60.5)
    (status,) = rows(site.client.get("/image-status", headers=JSON))
    assert status["build_request_age"] == int(observed.NOW - 9.5)
    assert "00:00:00:30" in site.client.get("/image-list").text


def test_builds_of_paused_images(site: WebSite) -> None:
    """WP-3: unlike the command, the state of the build."""
    assert rows(site.client.get("/dib-image-list", headers=JSON))[0]["state"] == "ready"
    assert rows(site.client.get("/image-status", headers=JSON))[0]["paused"] is True


def test_one_node(site: WebSite) -> None:
    """WP-4: of what is there twice the last counts, and an empty id is none."""

    def ids(query: str) -> list[str]:
        return [row["id"] for row in rows(site.client.get(f"/node-list?{query}", headers=JSON))]

    assert ids(f"node_id={OTHER}") == [OTHER]
    assert ids(f"node_id={OTHER}&node_id={NODE}") == [NODE]
    assert ids("node_id=") == [NODE, OTHER]
    assert ids("node_id=nobody") == []


def test_node_fields(site: WebSite) -> None:
    """WP-1: those of the command's --detail, and no more; nobody sees the token of a pod."""
    answer = site.client.get("/node-list", headers=JSON)
    assert list(rows(answer)[1]) == [
        *("id", "provider", "label", "server_id", "public_ipv4", "ipv6", "state", "age", "locked", "pool", "hostname"),
        *("private_ipv4", "AZ", "username", "connection_port", "launcher", "allocated_to", "hold_job", "comment"),
        *("user_data", "driver_data"),
    ]
    assert [row["locked"] for row in rows(answer)] == ["unlocked", "locked"]
    assert "s3cret" not in answer.text + site.client.get("/node-list").text


def test_fields(site: WebSite) -> None:
    """WP-4: columns of the text table alone, in the order of the table."""
    head = site.client.get("/node-list?fields=state,id").text.splitlines()[1]
    assert [cell.strip() for cell in head.strip("|").split("|")] == ["ID", "State"]
    assert site.client.get("/node-list?fields=state,nothing").text.count("|") == 6
    assert site.client.get("/node-list?fields=nothing").text == "++\n||\n++\n\n\n++"
    assert site.client.get("/node-list?fields=").text == site.client.get("/node-list").text
    assert len(rows(site.client.get("/node-list?fields=id", headers=JSON))[0]) == 21
    assert site.client.get("/node-list?fields=id;x=1").text.count("|") == 6


def test_every_method_works_and_other_paths_do_not(site: WebSite) -> None:
    """WP-5"""
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert site.client.request(method, "/label-list").text == site.client.get("/label-list").text
    head = site.client.head("/label-list")
    assert (head.status_code, head.content) == (200, b"")
    for path in ("/label-list/", "/LABEL-LIST", "/nothing"):
        answer = site.client.get(path, follow_redirects=False)
        assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (404, None)


class Clock:
    """Seconds since the epoch."""

    at = 1_000_000_000.5

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(site: WebSite, clock: Clock) -> TestClient:
    return TestClient(Starlette(routes=app.routes(site.site, clock)))


def test_caching(site: WebSite, client: TestClient, clock: Clock) -> None:
    """WP-6: for a second the same answer, with headers that say so."""
    first = client.get("/label-list")
    assert {
        name: first.headers[name]
        for name in ("access-control-allow-origin", "cache-control", "last-modified", "expires")
    } == {
        "access-control-allow-origin": "*",
        "cache-control": "max-age=1, public",
        "last-modified": "Sun, 09 Sep 2001 01:46:40 GMT",
        "expires": "Sun, 09 Sep 2001 01:46:41 GMT",
    }
    site.snapshots.snapshot = dataclasses.replace(snapshot(), observed=observed.seen())
    clock.at += 0.9
    assert client.get("/label-list").content == first.content
    assert rows(client.get("/label-list", headers=JSON)) == []
    clock.at += 0.2
    assert client.get("/label-list").content != first.content


def test_conditional_requests(client: TestClient, clock: Clock) -> None:
    """WP-6"""

    def code(moment: str) -> int:
        answer = client.get("/label-list", headers={"If-Modified-Since": moment})
        assert bool(answer.content) == (answer.status_code == 200)
        return answer.status_code

    made = client.get("/label-list").headers["last-modified"]
    assert code(made) == 304
    assert code("Sat, 01 Jan 2050 00:00:00 GMT") == 304
    assert code("Sat, 01 Jan 2000 00:00:00 GMT") == 200
    assert code("yesterday") == 200
    clock.at += 1
    assert code(made) == 200


def test_answers_are_bounded(clock: Clock) -> None:
    """WP-6: whatever clients ask for."""
    recent = app.RecentAnswers(clock)
    for number in range(3 * app.MOST_ANSWERS):
        recent.get("/node-list", app.Question(as_json=False, node_id=str(number)), lambda: b"x")
    asked = [
        recent.get("/node-list", app.Question(as_json=False, node_id=str(number)), lambda: b"y").body
        for number in range(3 * app.MOST_ANSWERS)
    ]
    assert asked.count(b"x") == app.MOST_ANSWERS
    large = app.Question(as_json=True)
    clock.at += 2
    recent.get("/node-list", large, lambda: b"x" * (app.MOST_BYTES + 1))
    assert recent.get("/node-list", large, lambda: b"new").body == b"new"


def test_ready(site: WebSite) -> None:
    """WP-7"""
    answer = site.client.get("/ready")
    assert (answer.status_code, answer.text, answer.headers["cache-control"]) == (200, "OK", "max-age=1, public")
    assert site.client.get("/ready", headers=JSON).headers["content-type"] == "application/json"
    site.daemon.ready.clear()
    answer = site.client.get("/ready")
    assert (answer.status_code, answer.headers.get("cache-control")) == (503, None)


def test_what_cannot_be_read(site: WebSite) -> None:
    """WP-8: 11.0.0 answers with status 500."""
    for path in ("/label-list?x=%ff%zz&&=&a", "/node-list?node_id=%ff", "/node-list?fields=%ff", "/ready?%"):
        assert site.client.get(path).status_code == 200
    for accept in ("image/png", "", "application/json;q=0"):
        assert site.client.get("/label-list", headers={"Accept": accept}).headers["content-type"].startswith("text/")
