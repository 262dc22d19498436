# SPDX-License-Identifier: Apache-2.0
"""Every resource: its answer fits its schema, whatever other programs stored; errors are problems."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from nodepool.plan.observed import Observed
from nodepool.web.api.resource import NAME, ApiResource, whole
from nodepool.web.api.routes import ROOT, TAG_SECONDS, all_resources
from nodepool.web.snapshot import WebSnapshot
from tests.support.web_records import HOSTILE, full
from tests.support.web_site import WebSite

RESOURCES = all_resources()
NOTHING = WebSnapshot(0, Observed(1_000.0))


def paths(resource: ApiResource, mark: str = "") -> Iterator[str]:
    """Of a list, or of all its records."""
    names = {
        "requests": ["200-0000000001", "200-0000000002", "200-0000000003"],
        "nodes": [f"000000000{number}" for number in range(1, 5)],
        "providers": [f"cloud-1{mark}", f"cloud-2{mark}/main", f"lab{mark}"],
        "labels": [f"gpu{mark}", f"unknown{mark}"],
    }
    if not resource.has_name:
        yield ROOT + resource.path
        return
    for name in names[resource.path.split("/")[1]]:
        # Half of a surrogate pair cannot be asked for.
        place = quote(name, errors="ignore") if "\ud800" not in name else ""
        if place:
            yield ROOT + resource.path.replace(f"{{{NAME}:path}}", place).replace(f"{{{NAME}}}", place)


def each(site: WebSite, mark: str = "") -> Iterator[tuple[ApiResource, Any]]:
    """The answer of each resource."""
    for resource in RESOURCES:
        for path in paths(resource, mark):
            answer = site.client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert answer.headers["content-type"] == "application/json"
            yield resource, json.loads(answer.content, parse_constant=pytest.fail)


@pytest.mark.parametrize("mark", ["", HOSTILE])
def test_answers_fit_their_schemas(mark: str) -> None:
    """WP-20, WP-26: with every property, and no other."""
    count = 0
    for resource, answer in each(WebSite(full(mark)), mark):
        count += 1
        Draft202012Validator(whole(resource.schema)).validate(answer)
        items = answer.get("items")
        if items is not None:
            known = resource.schema["properties"]["items"]["items"]["properties"]
            assert items, resource.path
            assert {frozenset(item) for item in items} == {frozenset(known)}
    assert count >= len(RESOURCES) - (4 if mark else 0)


def test_links_to_zuul() -> None:
    """WP-20"""
    path = f"{ROOT}/requests/200-0000000001/explain"
    assert WebSite(full()).client.get(path).json()["links"] == {}
    site = WebSite(full(), zuul_url="https://zuul.example.org")
    assert site.client.get(path).json()["links"]["status"] == "https://zuul.example.org/t/t1/status"


def test_nothing_is_there() -> None:
    """WP-20"""
    site = WebSite(NOTHING)
    for resource in RESOURCES:
        if not resource.has_name:
            answer = site.client.get(ROOT + resource.path).json()
            Draft202012Validator(whole(resource.schema)).validate(answer)
            assert answer.get("items", []) == []


def test_unknown_records() -> None:
    """WP-25: each names what there is not."""
    for resource in RESOURCES:
        if resource.has_name:
            path = ROOT + resource.path.replace(f"{{{NAME}:path}}", "no/body").replace(f"{{{NAME}}}", "nobody")
            answer = WebSite(full()).client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
            assert "body" in answer.json()["detail"]


def test_near_names() -> None:
    """WP-25"""
    client = WebSite(full()).client
    assert "did you mean 'cloud-1'?" in client.get(f"{ROOT}/providers/cluod-1").json()["detail"]
    assert "did you mean 'gpu'?" in client.get(f"{ROOT}/labels/gpuu").json()["detail"]


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/nodes?what=1", "no parameter 'what' here; there are: state, label"),
        ("/summary?fields=a", "no parameter 'fields' here; there is none"),
        ("/nodes?state=redy", "no state 'redy', did you mean 'ready'? (there are: "),
        ("/nodes?sort=nothing", "cannot be sorted by 'nothing'; there are: id, status"),
        ("/requests?sort=-stat", "cannot be sorted by 'stat', did you mean 'state'?"),
        ("/nodes?fields=id,provder", "no column 'provder', did you mean 'provider'?"),
        ("/nodes?limit=0", "'0' is no number from 1 to 1000"),
        ("/nodes?cursor=x", "'cursor' cannot be understood: it cannot be read"),
        ("/requests?older_than=soon", "'soon' is no duration; write e.g. 90s"),
        ("/events?since=yesterday", "'yesterday' is no duration"),
        ("/nodes?state=ready&state=used", "'state' cannot be understood: it is there twice"),
    ],
)
def test_what_cannot_be_understood(path: str, detail: str) -> None:
    """WP-25: says what is allowed."""
    answer = WebSite(full()).client.get(ROOT + path)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert (answer.json()["status"], answer.json()["title"]) == (400, "Bad Request")
    assert detail in answer.json()["detail"]


def test_other_paths_and_methods() -> None:
    """WP-25: outside of the API errors are texts, as before."""
    client = WebSite().client
    unknown, method = client.get(f"{ROOT}/nothing"), client.post(f"{ROOT}/summary")
    assert (unknown.status_code, unknown.json()["title"]) == (404, "Not Found")
    assert (method.status_code, method.json()["title"]) == (405, "Method Not Allowed")
    assert "GET" in method.headers["allow"]
    assert client.get("/nothing").headers["content-type"].startswith("text/plain")


def test_tags() -> None:
    """WP-24: the same until the content changes, some seconds have passed, or something else is asked for."""
    site = WebSite(full())

    def ask(query: str = "", tag: str = "") -> tuple[int, str]:
        answer = site.client.get(f"{ROOT}/nodes{query}", headers={"If-None-Match": tag})
        assert bool(answer.content) == (answer.status_code == 200)
        return answer.status_code, answer.headers["etag"]

    def show(number: int, later: float) -> None:
        shown = full()
        seen = dataclasses.replace(shown.observed, now=shown.observed.now + later)
        site.snapshots.snapshot = dataclasses.replace(shown, number=number, observed=seen)

    code, tag = ask()
    assert code == 200
    assert tag.startswith('W/"')
    assert ask(tag=tag) == (304, tag)
    assert ask(tag=f'"other", {tag.removeprefix("W/")}') == (304, tag)
    assert ask(tag="*") == (304, tag)
    assert ask("?limit=5", tag)[0] == 200
    show(1, TAG_SECONDS - 0.001 - full().observed.now % TAG_SECONDS)
    assert ask(tag=tag)[0] == 304
    show(1, TAG_SECONDS)
    assert ask(tag=tag)[0] == 200
    show(2, 0.0)
    assert ask(tag=tag)[0] == 200
    assert WebSite(full()).client.get(f"{ROOT}/nodes").headers["etag"] != tag


def test_incomplete() -> None:
    """WP-20: while caches are filled, answers say so."""
    assert WebSite(full()).client.get(f"{ROOT}/nodes").json()["complete"] is True
    site = WebSite(dataclasses.replace(full(), complete=False))
    assert site.client.get(f"{ROOT}/nodes").json()["complete"] is False
