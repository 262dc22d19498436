# SPDX-License-Identifier: Apache-2.0
"""The API: each answer fits its description, whatever other programs stored and clients send; errors are problems."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_from_bytes

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route
from starlette.testclient import TestClient

from nodepool.listing.nodes import Filter
from nodepool.model.status import MODES
from nodepool.web.answers import MAX_DETAIL, to_json
from nodepool.web.api import (
    MAX_CURSOR,
    OPENAPI,
    ROOT,
    TAG_SECONDS,
    ApiResource,
    Order,
    all_resources,
    part_of,
    routes,
    whole,
)
from nodepool.web.changes import routes as write_routes
from nodepool.web.frame import MAX_QUERY, MAX_VALUE, NODE_STATE, ROWS, Query, parse
from tests.support.tables import rows, table
from tests.support.web_records import HOSTILE, ended, full
from tests.support.web_site import WebSite
from tests.support.web_tokens import token
from tests.unit.web.rig import GuardedSite, bearer

RESOURCES = all_resources()
RECORDS = {
    "requests": ["200-0000000001", "200-0000000002", "200-0000000003"],
    "nodes": [f"000000000{number}" for number in range(1, 5)],
    "providers": ["cloud-1{mark}", "cloud-2{mark}/main", "lab{mark}"],
    "labels": ["gpu{mark}", "unknown{mark}"],
}
PROBLEM = "application/problem+json"


def addresses(resource: ApiResource, mark: str = "") -> Iterator[str]:
    """Of a list, or of all its records."""
    for name in RECORDS[resource.path.split("/")[1]] if resource.has_name else [""]:
        # Half of a surrogate pair cannot be asked for.
        if "{mark}" not in name or "\ud800" not in mark:
            place = quote(name.replace("{mark}", mark))
            yield ROOT + re.sub("{name.*?}", place, resource.path)


@pytest.mark.parametrize("mark", ["", HOSTILE, None], ids=["full", "hostile", "empty"])
def test_answers_fit_their_schemas(mark: str | None) -> None:
    """WP-20, WP-26: with every property, and no other."""
    client = (WebSite() if mark is None else WebSite(full(mark), history=ended(mark))).client
    count = 0
    for resource in RESOURCES:
        for path in addresses(resource, mark or "") if mark is not None or not resource.has_name else ():
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), path
            data = json.loads(answer.content, parse_constant=pytest.fail)
            Draft202012Validator(whole(resource.schema)).validate(data)
            count += 1
            if "items" in data:
                known = resource.schema["properties"]["items"]["items"]["properties"]
                assert {frozenset(item) for item in data["items"]} == (
                    {frozenset(known)} if mark is not None else set()
                )
    assert count >= len([one for one in RESOURCES if mark == "" or not one.has_name])


def test_odd_values() -> None:
    """WP-26: of other programs; deep ones are cut."""
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    odd = {"a": float("nan"), "b": "\ud800", "c": {1: float("inf"), "d": "\ud800"}, "e": 2**70}
    expected = {"a": None, "b": "\ud800", "c": {"1": None, "d": "\ud800"}, "e": 2**70}
    assert json.loads(to_json(odd), parse_constant=pytest.fail) == expected
    assert b'"..."' in to_json({"x": deep})


@rows(__file__, "test_what_cannot_be_understood")
def test_what_cannot_be_understood(path: str, detail: str) -> None:
    """WP-25: says what is allowed."""
    answer = WebSite(full()).client.get(ROOT + path)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert (answer.json()["status"], answer.json()["title"]) == (400, "Bad Request")
    assert detail in answer.json()["detail"]


def test_long_queries() -> None:
    """WP-25: also in the address of a page."""
    client = WebSite(full()).client
    for value, detail in (("x" * (MAX_VALUE + 1), "than 500"), ("x," * 51, "50 names"), ("x" * MAX_QUERY, "query")):
        for path in (f"{ROOT}/nodes", "/nodes"):
            answer = client.get(f"{path}?label={value}")
            assert (answer.status_code, detail in answer.text) == (400, True)


def test_queries() -> None:
    """WP-21, WP-22, WP-23: filters are those of commands; some columns, in some order, a part."""

    def parsed(text: str) -> Query:
        return parse(text.encode(), {})

    text = "state=ready,used&label=a,%20b*&provider=p&pool=p/main&tenant=t&older_than=1h30m"
    wanted = Filter(["ready", "used"], ["a", "b*"], ["p"], ["p/main"], ["t"], 5400.0)
    assert parsed(text).filter(NODE_STATE) == wanted
    for text in ("", "state=&label=,"):
        assert parsed(text).filter(NODE_STATE) == Filter([], [], [], [], [], None)
    assert (parsed("").limit, parsed("limit=7").limit, parsed("fields=a,b,a").fields) == (ROWS, 7, ["a", "b"])
    assert [parsed(text).since(100.0) for text in ("", "since=90.5", "since=1m")] == [0.0, 90.5, 40.0]
    client = WebSite(full()).client
    first = client.get(f"{ROOT}/nodes?sort=-id&limit=3&fields=id").json()
    second = client.get(f"{ROOT}/nodes?sort=-id&limit=3&fields=id&cursor={first['next']}").json()
    found = [item for page in (first, second) for item in page["items"]]
    assert (found, second["next"]) == ([{"id": f"000000000{number}"} for number in (4, 3, 2, 1)], None)


def test_other_names_paths_and_methods() -> None:
    """WP-25: each problem names what there is not, and is bounded. Outside of the API errors are texts, as before."""
    client = WebSite(full()).client
    for resource in RESOURCES:
        if resource.has_name:
            path = ROOT + resource.path.replace("{name:path}", "no/body").replace("{name}", "nobody")
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)
            assert "body" in answer.json()["detail"]
    for path, name in (("providers/cluod-1", "cloud-1"), ("labels/gpuu", "gpu")):
        assert f"did you mean '{name}'?" in client.get(f"{ROOT}/{path}").json()["detail"]
    unknown, method = client.get(f"{ROOT}/nothing"), client.post(f"{ROOT}/summary")
    assert (unknown.status_code, unknown.json()["title"]) == (404, "Not Found")
    assert (method.status_code, method.json()["title"]) == (405, "Method Not Allowed")
    assert "GET" in method.headers["allow"]
    assert client.get("/nothing").headers["content-type"].startswith("text/plain")
    answer = client.get(f"{ROOT}/nodes/{'x' * 9999}")
    assert (answer.headers["cache-control"], len(answer.json()["detail"])) == ("no-store", MAX_DETAIL)
    assert set(answer.json()) == {"type", "title", "status", "detail"}


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
    assert (code, tag[:3]) == (200, 'W/"')
    for known in (tag, f'"other", {tag.removeprefix("W/")}', "*"):
        assert ask(tag=known) == (304, tag)
    assert ask("?limit=5", tag)[0] == 200
    show(1, TAG_SECONDS - 0.001 - full().observed.now % TAG_SECONDS)
    assert ask(tag=tag)[0] == 304
    for number, later in ((1, TAG_SECONDS), (2, 0.0)):
        show(number, later)
        assert ask(tag=tag)[0] == 200
    assert WebSite(full()).client.get(f"{ROOT}/nodes").headers["etag"] != tag
    for complete in (True, False):
        shown = WebSite(dataclasses.replace(full(), complete=complete))
        assert shown.client.get(f"{ROOT}/nodes").json()["complete"] is complete, "WP-20: while caches are filled"


def document(site: WebSite) -> dict[str, Any]:
    found: dict[str, Any] = site.client.get(f"{ROOT}/openapi.json").json()
    OpenAPIV31SpecValidator(found).validate()
    return found


def served(found: list[Any]) -> dict[str, set[str]]:
    """Path as the description has it -> methods."""
    paths: dict[str, set[str]] = {}
    for route in found:
        if isinstance(route, Route):
            path = route.path.removeprefix(ROOT).replace(":path}", "}")
            paths.setdefault(path, set()).update(method.lower() for method in route.methods or ())
    return paths


def test_description() -> None:
    """WP-27: it has every route and parameter, and no other but the stream of events; names of operations differ."""
    found = document(WebSite())
    assert found["info"]["version"] == "1.2.3"
    extra = set(served(list(routes(WebSite().snapshots, "1.2.3")))) ^ set(found["paths"])
    assert extra == {"/openapi.json", "/events/stream"}
    for resource in RESOURCES:
        get = found["paths"][resource.path.replace(":path}", "}")]["get"]
        names = [one["name"] for one in get["parameters"] if one["in"] == "query"]
        assert names == [one.name for one in resource.parameters]
        assert ("404" in get["responses"]) == resource.has_name
    operations = [path["get"]["operationId"] for path in found["paths"].values()]
    assert len(set(operations)) == len(operations)
    assert {"summary", "nodes", "nodes_one", "requests_one_explain"} <= set(operations)


def test_description_of_changes() -> None:
    """WP-27: where there are some; but the addresses and methods that are there for forms of our pages."""
    site = GuardedSite()
    described = {path: set(methods) for path, methods in OPENAPI["changes"].items()}
    assert set(described) <= set(document(site)["paths"])
    assert not set(described) & set(document(WebSite())["paths"])
    there = served(list(write_routes(site.access.actions)))
    assert set(there) - set(described) == {"/maintenance/{kind}/{name}/end"}
    for path, methods in described.items():
        assert methods <= there[path]
        assert there[path] - methods <= {"post"}
    begin = OPENAPI["changes"]["/maintenance/{kind}/{name}"]["put"]
    assert begin["parameters"][0]["schema"]["enum"] == list(MODES)


@rows(__file__, "test_answers_to_changes")
def test_answers_to_changes(method: str, path: str, place: str, body: dict[str, Any], status: int) -> None:
    """WP-27"""
    described = OPENAPI["changes"][path][method]
    if body:
        Draft202012Validator(described["requestBody"]["content"]["application/json"]["schema"]).validate(body)
    site = GuardedSite(full())
    answer = site.client.request(method.upper(), ROOT + place, json=body, headers=bearer(token()))
    assert answer.status_code == status, answer.text
    schema = described["responses"][str(status)]["content"]["application/json"]["schema"]
    Draft202012Validator(schema).validate(answer.json())


PATHS = [path for resource in RESOURCES for path in addresses(resource)]
PATHS += ["/image-list", "/dib-image-list", "/image-status", "/node-list", "/request-list", "/label-list", "/ready"]
PARAMETERS = sorted({one.name for resource in RESOURCES for one in resource.parameters} | {"node_id", "fields"})
ODD = [*table(__file__, "odd_texts"), "\ud800", "9" * 400, "1w" * 90, "*" * 99]
#: As in an address: percent-encoded, half of a surrogate pair too.
TEXTS = st.one_of(st.sampled_from(ODD), st.text(max_size=20), st.text("*?[]-,.%\\", max_size=40)).map(
    lambda text: quote_from_bytes(text.encode("utf-8", "surrogatepass"))
)
PAIRS = st.tuples(st.sampled_from(PARAMETERS), TEXTS).map("=".join)
QUERIES = st.one_of(st.lists(PAIRS, max_size=4).map("&".join), st.text("&=;%?+abcdef0123456789", max_size=30))
TOPS = st.sampled_from([*PATHS, "", *(f"{ROOT}/{kind}" for kind in RECORDS)])
WHERE = st.one_of(st.sampled_from(PATHS), st.tuples(TOPS, TEXTS).map("/".join))
NAMES = st.sampled_from(["accept", "if-none-match", "if-modified-since", "range", "accept-encoding", "host", "cookie"])
BYTES = st.one_of(st.binary(max_size=30).map(lambda raw: raw.translate(None, b"\r\n")), st.just(b"*/*"))
HEADERS = st.dictionaries(NAMES, BYTES, max_size=3)
METHODS = st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "DELETE", "OPTIONS", "TRACE"])
CLIENT = TestClient(WebSite(full()).client.app, base_url="http://nodepool.example", raise_server_exceptions=True)


@settings(max_examples=60, deadline=None)
@given(METHODS, WHERE, QUERIES, HEADERS)
@example("GET", f"{ROOT}/nodes", "cursor=W2ZhbHNlLGZhbHNlLDEsIiIsIiJd", {})
@example("GET", "/node-list", "fields=%ff", {"accept": b"\xff"})
def test_any_request(method: str, path: str, query: str, headers: dict[str, bytes]) -> None:
    """WP-8, WP-25: no answer has a status of 500 or above, and each is what it says that it is."""
    if path == f"{ROOT}/events/stream":
        return
    sent = [(name.encode(), value) for name, value in headers.items()]
    answer = CLIENT.request(method, f"{path}?{query}", headers=sent, follow_redirects=False)
    assert answer.status_code < 500
    if answer.content and "json" in answer.headers.get("content-type", "") and answer.text != "OK":
        json.loads(answer.content)
    # The client takes .. out of a path.
    if answer.request.url.path.startswith(ROOT) and answer.status_code >= 400:
        assert answer.headers["content-type"] == PROBLEM
        if method != "HEAD":
            assert answer.json()["status"] == answer.status_code


#: (value, identity)
Record = tuple[Any, str]
VALUES = st.one_of(
    st.none(), st.integers(-3, 3), st.floats(-1, 1), st.text(max_size=300), st.lists(st.text(max_size=2))
)


def order(*, descending: bool = False) -> Order[Record]:
    return Order(lambda record: record[0], lambda record: record[1], descending)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=20), st.integers(1, 7), st.booleans())
def test_parts_are_the_whole(values: dict[str, Any], limit: int, descending: bool) -> None:
    """WP-21, WP-23: each record once, in order; those without a value last, those with the same one by their ids."""
    by, records = order(descending=descending), [(value, identity) for identity, value in sorted(values.items())]
    found, cursor = part_of(records, by, limit, "")
    while cursor is not None:
        assert (len(found) % limit, len(cursor) <= MAX_CURSOR) == (0, True)
        part, cursor = part_of(records, by, limit, cursor)
        found = [*found, *part]
    there = [record for record in records if record[0] is not None]
    there.sort(key=lambda record: by.rank(record)[0], reverse=descending)
    assert found == [*there, *(record for record in records if record[0] is None)]


def test_what_comes_and_goes() -> None:
    """WP-21: the record before the cursor may be there no more."""
    records: list[Record] = [(number, str(number)) for number in range(6)]
    first, cursor = part_of(records, order(), 2, "")
    assert cursor is not None
    left = [record for record in records if record not in first]
    assert part_of([(-1, "new"), *left], order(), 9, cursor) == (left, None)
    assert part_of([], order(), 9, cursor) == ([], None)
    assert part_of(records[:2], order(), 2, "") == (records[:2], None)
