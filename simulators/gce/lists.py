# SPDX-License-Identifier: Apache-2.0
"""Lists of a scope and of all scopes: what they show, in which order, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from simulators.base.messages import ApiError, Json, Request
from simulators.base.pages import page
from simulators.gce.filters import read_filter
from simulators.gce.links import GLOBAL, REGIONS, ZONES, link, region_scope, zone_scope

if TYPE_CHECKING:
    from simulators.gce.cloud import Project

#: Google's limit of ``maxResults``.
MOST: Final = 500
PROVISIONING: Final = "PROVISIONING"
NEWEST_FIRST: Final = "creationTimestamp desc"


class ListEntry(NamedTuple):
    """One entry of a list."""

    scope: str
    name: str
    document: Json

    @property
    def key(self) -> str:
        return f"{self.scope}/{self.name}"


class ProjectLists:
    """The lists of a project."""

    def __init__(self, cloud: Project) -> None:
        self.cloud = cloud

    def _entries(self, collection: str, project: str) -> Iterable[ListEntry]:
        if collection == "operations":
            return (ListEntry(one.scope, one.name, one.document) for one in self.cloud.operations.newest_first())
        found = [one for one in self.cloud.resources.of(collection) if one.listed and one.project == project]
        if collection == "instances":
            found += self.cloud.instances.ghosts
        return (ListEntry(one.scope, one.name, one.document) for one in reversed(found))

    def _ordered(self, request: Request, entries: Iterable[ListEntry]) -> list[ListEntry]:
        """Those that the filter lets through, in the order that is asked for."""
        lets_through = read_filter(request.argument("filter"))
        found = [entry for entry in entries if lets_through(entry.document)]
        order = request.argument("orderBy") or "name"
        if order == "name":
            found.sort(key=lambda entry: entry.name)
        elif order != NEWEST_FIRST:
            text = f"Invalid value for field 'orderBy': '{order}'. Only '{NEWEST_FIRST}' and 'name' are supported."
            raise ApiError(400, text, "invalid")
        return found

    def _page(self, request: Request, entries: Sequence[ListEntry]) -> tuple[Sequence[ListEntry], str | None]:
        text = request.argument("maxResults") or str(MOST)
        if not text.isdigit() or not 0 <= int(text) <= MOST:
            raise ApiError(400, f"Invalid value for field 'maxResults': '{text}'. Must be at most {MOST}.", "invalid")
        most = min(int(text) or MOST, self.cloud.core.knobs.page_limit)
        try:
            token, core = request.argument("pageToken") or None, self.cloud.core
            empty_first = core.knobs.empty_pages or (token is None and core.turn("page", False, False, False, True))
            return page(entries, lambda entry: entry.key, token, most, empty_first=empty_first)
        except ValueError:
            text = f"Invalid value for field 'pageToken': '{request.argument('pageToken')}'."
            raise ApiError(400, text, "invalid") from None

    def of_scope(self, request: Request, collection: str, project: str, scope: str, kind: str) -> Json:
        """One page of a zone, a region, or of what belongs to none."""
        self._check_answers(scope)
        entries = (entry for entry in self._entries(collection, project) if entry.scope == scope)
        found, token = self._page(request, self._ordered(request, entries))
        where = f"projects/{project}/{scope}/{collection}"
        content: Json = {"kind": f"compute#{kind}List", "id": where, "selfLink": link(where)}
        if found:
            content["items"] = [self.shown(entry.document) for entry in found]
        return _with_token(content, token)

    def shown(self, document: Json) -> Json:
        """A resource as an answer has it: other states while it comes up, and nothing in place of what is empty."""
        turn = self.cloud.core.turn
        more: Json = {}
        if document.get("status") == PROVISIONING and "networkInterfaces" in document:
            more = {"status": turn("state", PROVISIONING, "PENDING", "WHAT_COMES_NEXT")}
        shown: Json = self.cloud.core.sparse("empty", {**document, **more})
        return shown

    def of_all(self, request: Request, collection: str, project: str, kind: str) -> Json:
        """One page of all scopes: the entries by scope, and why a scope has none."""
        partial = request.argument("returnPartialSuccess") == "true"
        silent = [scope for scope in map(zone_scope, ZONES) if scope in self._silent()]
        if not partial:
            for scope in silent:
                self._check_answers(scope)
        entries = [entry for entry in self._entries(collection, project) if entry.scope not in silent]
        ordered = sorted(self._ordered(request, entries), key=lambda entry: entry.scope)
        found, token = self._page(request, ordered)
        items: dict[str, Json] = {}
        for entry in found:
            items.setdefault(entry.scope, {collection: []})[collection].append(self.shown(entry.document))
        for scope in _scopes(collection):
            if scope not in items and scope not in silent:
                items[scope] = {"warning": _nothing(scope)}
        where = f"projects/{project}/aggregated/{collection}"
        content: Json = {"kind": f"compute#{kind}AggregatedList", "id": where, "items": items, "selfLink": link(where)}
        if silent and self.cloud.core.knobs.unreachable_warnings:
            items |= {scope: {"warning": _silence(scope)} for scope in silent}
        elif silent:
            content["unreachables"] = [link(f"projects/{project}/{scope}") for scope in silent]
        return _with_token(content, token)

    def fixed(self, request: Request, documents: Iterable[Json], kind: str, where: str) -> Json:
        """One page of what does not change."""
        entries = [ListEntry("", document["name"], document) for document in documents]
        found, token = self._page(request, self._ordered(request, entries))
        items = [entry.document for entry in found]
        return _with_token({"kind": f"compute#{kind}List", "id": where, "items": items, "selfLink": link(where)}, token)

    def _silent(self) -> set[str]:
        return {zone_scope(zone) for zone in self.cloud.core.knobs.unreachable}

    def _check_answers(self, scope: str) -> None:
        if scope in self._silent():
            raise ApiError(503, f"The scope '{scope}' is currently unreachable.", "backendError")


def _scopes(collection: str) -> list[str]:
    zones, regions = list(map(zone_scope, ZONES)), list(map(region_scope, REGIONS))
    if collection == "addresses":
        return [GLOBAL, *regions]
    return [GLOBAL, *regions, *zones] if collection == "operations" else zones


def _nothing(scope: str) -> Json:
    return {
        "code": "NO_RESULTS_ON_PAGE",
        "message": f"There are no results for scope '{scope}' on this page.",
        "data": [{"key": "scope", "value": scope}],
    }


def _silence(scope: str) -> Json:
    return {
        "code": "UNREACHABLE",
        "message": f"The scope '{scope}' is currently unreachable.",
        "data": [{"key": "scope", "value": scope}],
    }


def _with_token(content: Json, token: str | None) -> Json:
    if token is not None:
        content["nextPageToken"] = token
    return content
