# SPDX-License-Identifier: Apache-2.0
"""How changes are described."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from nodepool.model.maintenance import Maintenance, Mode
from nodepool.web import writes
from nodepool.web.api import routes
from nodepool.web.api.routes import ROOT
from tests.support.web_records import full
from tests.support.web_site import WebSite
from tests.support.web_tokens import token
from tests.unit.web.test_logins import GuardedSite, bearer


def test_description_is_valid() -> None:
    """WP-27: with changes, where there are some."""
    document = GuardedSite().client.get(f"{ROOT}/openapi.json").json()
    OpenAPIV31SpecValidator(document).validate()
    assert set(routes.change_paths()) <= set(document["paths"])
    assert not set(routes.change_paths()) & set(WebSite().client.get(f"{ROOT}/openapi.json").json()["paths"])


def test_has_every_change() -> None:
    """WP-27: but the addresses and methods that are there for forms of our pages."""
    site = GuardedSite()
    access = site.site.access
    assert access is not None
    served: dict[str, set[str]] = {}
    for route in writes.routes(site.site, access.actions):
        assert isinstance(route, Route)
        path = route.path.removeprefix(ROOT).replace(":path}", "}")
        served.setdefault(path, set()).update(method.lower() for method in route.methods or ())
    described = {path: set(methods) for path, methods in routes.change_paths().items()}
    assert set(served) - set(described) == {"/maintenance/{kind}/{name}/end", "/nodes/{id}/pending/end"}
    for path, methods in described.items():
        assert methods <= served[path]
        assert served[path] - methods <= {"post"}


@pytest.mark.parametrize(
    ("method", "path", "place", "body"),
    [
        ("post", "/nodes/{id}/hold", "/nodes/0000000002/hold", {"reason": "r", "until": "8h"}),
        ("post", "/nodes/{id}/delete", "/nodes/0000000002/delete", {"reason": "r"}),
        ("delete", "/nodes/{id}/pending", "/nodes/0000000002/pending", {}),
        ("put", "/maintenance/{kind}/{name}", "/maintenance/provider/cloud-1", {"reason": "r", "mode": "drain"}),
        ("delete", "/maintenance/{kind}/{name}", "/maintenance/provider/cloud-1", {}),
        ("post", "/images/{name}/{what}", "/images/debian/pause", {"reason": "r"}),
    ],
)
def test_answers_fit(monkeypatch: pytest.MonkeyPatch, method: str, path: str, place: str, body: dict[str, Any]) -> None:
    """WP-27"""
    described = routes.change_paths()[path][method]
    if body:
        Draft202012Validator(described["requestBody"]["content"]["application/json"]["schema"]).validate(body)
    site = GuardedSite()
    site.snapshots.snapshot = full()
    for name in ("withdraw", "end", "build", "set_paused"):
        monkeypatch.setattr(site.actions, name, lambda *_arguments: None, raising=False)
    record = Maintenance("provider", "cloud-1", Mode.DRAIN, "r", "alice", 1.0)
    monkeypatch.setattr(site.actions, "begin", lambda *_arguments: record, raising=False)
    answer = site.client.request(method.upper(), ROOT + place, json=body, headers=bearer(token()))
    assert answer.status_code == 200, answer.text
    schema = described["responses"]["200"]["content"]["application/json"]["schema"]
    Draft202012Validator(schema).validate(answer.json())


@pytest.mark.parametrize("what", ["hold", "delete"])
def test_change_that_waits(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """WP-27, WP-101"""
    asked: list[bool] = []

    def waits(_node_id: str, _wish: Any, *, when_free: bool) -> bool:
        asked.append(when_free)
        return False

    site = GuardedSite()
    monkeypatch.setattr(site.actions, what, waits, raising=False)
    body = {"reason": "r", "when_free": True}
    described = routes.change_paths()[f"/nodes/{{id}}/{what}"]["post"]
    Draft202012Validator(described["requestBody"]["content"]["application/json"]["schema"]).validate(body)
    answer = site.client.post(f"{ROOT}/nodes/0000000002/{what}", json=body, headers=bearer(token()))
    assert (answer.status_code, asked) == (202, [True])
    Draft202012Validator(described["responses"]["202"]["content"]["application/json"]["schema"]).validate(answer.json())
    wrong = site.client.post(
        f"{ROOT}/nodes/0000000002/{what}", json={"reason": "r", "when_free": "maybe"}, headers=bearer(token())
    )
    assert (wrong.status_code, len(asked)) == (400, 1)
