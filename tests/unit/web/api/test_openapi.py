# SPDX-License-Identifier: Apache-2.0
"""The description of the API."""

from __future__ import annotations

from typing import Any

from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from nodepool.web.api.routes import ROOT, all_resources, routes
from tests.support.web_site import WebSite


def document() -> dict[str, Any]:
    found: dict[str, Any] = WebSite().client.get(f"{ROOT}/openapi.json").json()
    return found


def test_is_valid() -> None:
    """WP-27"""
    OpenAPIV31SpecValidator(document()).validate()
    assert document()["info"]["version"] == "1.2.3"


def test_has_every_route() -> None:
    """WP-27: and no other, but the stream of events."""
    described = document()["paths"]
    served = {
        route.path.removeprefix(ROOT).replace(":path}", "}")
        for route in routes(WebSite().site)
        if isinstance(route, Route)
    }
    assert served - set(described) == {"/openapi.json"}
    assert set(described) - served == {"/events/stream"}


def test_has_every_parameter() -> None:
    """WP-27"""
    described = document()["paths"]
    for resource in all_resources():
        get = described[resource.path.replace(":path}", "}")]["get"]
        names = [one["name"] for one in get["parameters"] if one["in"] == "query"]
        assert names == [one.name for one in resource.parameters]
        assert ("404" in get["responses"]) == resource.has_name


def test_names_of_operations_differ() -> None:
    """WP-27: programs make functions of them."""
    operations = [path["get"]["operationId"] for path in document()["paths"].values()]
    assert len(set(operations)) == len(operations)
    assert {"summary", "nodes", "nodes_one", "requests_one_explain"} <= set(operations)
