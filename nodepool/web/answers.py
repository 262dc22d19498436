# SPDX-License-Identifier: Apache-2.0
"""What answers of pages and API are made of.

First errors (RFC 9457) and JSON, then our own addresses, static files and links to Zuul, then texts in HTML, then
answers that are kept. Last tables that a page and the API share.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from nodepool import fast_json
from nodepool.clock import wall_time
from nodepool.listing.nodes import host_table
from nodepool.listing.pools import provider_table, tenant_table
from nodepool.listing.records import launcher_table
from nodepool.listing.table import Table, printable_lines
from nodepool.model.request import NodeRequest, origin_of
from nodepool.plan.attention import registered_launchers
from nodepool.plan.pool_summary import summarize
from nodepool.web.snapshot import CellText, Link, Links, WebSnapshot, quoted

MEDIA_TYPE: Final = "application/problem+json"
#: Below this path errors have this form.
API: Final = "/api/"
#: Longest text: it may name what a client has sent.
MAX_DETAIL: Final = 1000


class WebProblem(HTTPException):
    """An answer that is an error: a page, or in the API a problem.

    :param detail: what is wrong, and what is allowed; in a sentence.
    :param kinds: records of which one may be what was asked for; when they change a page is asked for again.
    :param field: name of the parameter, or of the field of a form, that is wrong; empty = none of them.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        kinds: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        field: str = "",
    ) -> None:
        super().__init__(status, detail, headers)
        self.kinds = kinds
        self.field = field


FORM: Final = "application/x-www-form-urlencoded"


def is_form(request: Request) -> bool:
    """Does a form of a page send it?"""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail[:MAX_DETAIL],
    }
    return Response(json.dumps(body), status, {**(headers or {}), "Cache-Control": "no-store"}, MEDIA_TYPE)


async def http_error(request: Request, error: Exception) -> Response:
    """Of a `WebProblem`, and of unknown paths and methods, which are texts elsewhere than in the API."""
    assert isinstance(error, HTTPException)
    detail = error.detail
    if not isinstance(error, WebProblem):
        path: str = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if not path.startswith(API):
            return PlainTextResponse(detail, error.status_code, error.headers)
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail = "There is no such resource; /api/v1/openapi.json describes those that there are."
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = (error.headers or {}).get("Allow", "GET")
            detail = f"This resource has no method {request.method[:20]}; it has: {allowed}."
    return problem_response(error.status_code, detail, error.headers)


# `to_json`: a JSON text, whatever other programs stored.

#: Levels of values that other programs stored; what is deeper is cut off.
_MAX_DEPTH: Final = 50


def to_json(value: Mapping[str, Any]) -> bytes:
    """A JSON text, whatever other programs stored."""
    try:
        return fast_json.dumps(value)
    except ValueError:
        return json.dumps(_plain(value, _MAX_DEPTH), sort_keys=True).encode()


def _plain(value: Any, depth: int) -> Any:
    """The same without what JSON does not know."""
    if isinstance(value, dict):
        return {str(key): _plain(one, depth - 1) for key, one in value.items()} if depth else "..."
    if isinstance(value, (list, tuple)):
        return [_plain(one, depth - 1) for one in value] if depth else "..."
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


# Addresses of ours, as a browser behind any proxy finds them; those that a client names are never another site's.


def root_of(request: Request) -> str:
    """The way from a page to the root of the site, e.g. ``../``: a reverse proxy may have put it below a prefix."""
    return "../" * (_raw_path(request).count("/") - 1) or "./"


def place_of(request: Request) -> str:
    """Where a request asks: path and query, encoded, from the root of the site."""
    query: bytes = request.scope["query_string"]
    path = _raw_path(request).lstrip("/")
    return f"{path}?{query.decode('latin-1')}" if query else path


def own_address(request: Request, wanted: str) -> str:
    """An address of ours, relative to that of the request.

    :param wanted: path and query from the root of the site. A scheme or a host in it becomes part of a path.
    """
    return f"{root_of(request)}{_own_path(wanted)}"


def own_address_from(place: str) -> str:
    """The same of a page, for a script in this page itself, or in a form that names the page."""
    return f"{root_of_place(place)}{_own_path(place)}"


def root_of_place(place: str) -> str:
    """The way from a page to the root of the site.

    :param place: of the page, from the root of the site.
    """
    return "../" * _own_path(place).partition("?")[0].count("/") or "./"


def _own_path(wanted: str) -> str:
    path = wanted.replace("\\", "/").lstrip("/")
    return quote(path, safe="/?=&%:@+,;~!$()*-._", errors="replace")


def _raw_path(request: Request) -> str:
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"], errors="replace").encode()
    return raw.partition(b"?")[0].decode("latin-1")


# ``/static``: style sheets and scripts. Their addresses have a hash, so that browsers keep them for ever.

_DIRECTORY: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class StaticFiles:
    """All of them, in memory. The constructor blocks for the file system."""

    def __init__(self) -> None:
        paths = [path for path in sorted(_DIRECTORY.rglob("*")) if path.suffix in _TYPES]
        self._files = {path.relative_to(_DIRECTORY).as_posix(): path.read_bytes() for path in paths}
        self._digests = {name: hashlib.sha256(content).hexdigest()[:16] for name, content in self._files.items()}

    def address(self, name: str) -> str:
        """Where a file is, relative to the root of the site. Raises KeyError: there is none of this name."""
        return f"static/{name}?v={self._digests[name]}"

    def route(self) -> Route:
        async def answer(request: Request) -> Response:
            name = request.path_params["name"]
            if name not in self._files:
                return PlainTextResponse("There is no such file.", 404)
            same = request.query_params.get("v") == self._digests[name]
            headers = {"Cache-Control": _FOR_EVER if same else "no-cache", "ETag": f'"{self._digests[name]}"'}
            if request.headers.get("if-none-match") == headers["ETag"]:
                return Response(status_code=304, headers=headers)
            return Response(self._files[name], headers=headers, media_type=_TYPES[PurePath(name).suffix])

        return Route("/static/{name:path}", answer)


# Where Zuul's pages have what a request is for.


def zuul_links(record: NodeRequest, zuul_url: str | None) -> dict[str, str]:
    """``buildset`` and ``status`` page of the tenant -> address, those that are known.

    :param zuul_url: where Zuul's pages are; None = not known.
    """
    tenant = origin_of(record).get("tenant")
    if zuul_url is None or tenant is None:
        return {}
    data = record.requestor_data
    buildset = data.get("build_set_uuid") if isinstance(data, dict) else None
    base = f"{zuul_url.rstrip('/')}/t/{quoted(tenant)}"
    found = {"status": f"{base}/status"}
    if isinstance(buildset, str) and buildset:
        found = {"buildset": f"{base}/buildset/{quoted(buildset)}", **found}
    return found


# A text of another program, as pages show it, and its links and commands in HTML.

#: Longest text that a page shows.
MAX_TEXT: Final = 2000


def shown_text(text: str) -> str:
    """A text without characters that do more than be seen, and not too long. It is not escaped."""
    if len(text) > MAX_TEXT:
        return printable_lines(f"{text[:MAX_TEXT]}...")
    return text if text.isprintable() else printable_lines(text)


#: Longest text in a cell; the page of the row has all of it.
MAX_CELL: Final = 300
#: Names of a list in a cell, and those that are looked at.
CELL_NAMES: Final = 20
MOST_COUNTED: Final = 1000


def cell_text(text: str) -> str:
    """A text of a cell, not too long."""
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}..."


def counted_parts(values: Sequence[Any], link: Link | None) -> list[CellText]:
    """The texts of a list, each once with its number, e.g. ``2 x gpu``."""
    names = list(Counter(values[:MOST_COUNTED]).items())
    parts = [
        CellText(cell_text(f"{count} x {name}" if count > 1 else str(name)), None if link is None else link(name))
        for name, count in names[:CELL_NAMES]
    ]
    return [*parts, CellText(f"{len(names) - CELL_NAMES} more")] if len(names) > CELL_NAMES else parts


def parts_html(parts: Iterable[CellText], root: str, between: str = ", ") -> Markup:
    """Texts, each with its link.

    :param root: the way from the page to the root of the site. ``between``: stands between them.
    """
    return Markup(between.join([_part(part, root) for part in parts]))


#: The next rendering of a page has most of the same parts.
@lru_cache(4096)
def _part(part: CellText, root: str) -> str:
    html: str = escape(shown_text(part.text))
    if part.title:
        html = f'<time title="{escape(part.title)}">{html}</time>'
    if part.command:
        html = command_html(part.text)
    if part.href is None:
        return html
    is_elsewhere = part.href.startswith(("http://", "https://"))
    return f'<a href="{escape(shown_text(part.href if is_elsewhere else root + part.href))}">{html}</a>'


def command_html(command: str) -> Markup:
    """A command with a button that copies it."""
    html = escape(shown_text(command))
    button = f'<button type="button" class="copy" data-copy="{html}" aria-label="Copy {html}" title="Copy"></button>'
    return Markup(f"<code>{html}</code>{button}")


def text_html(text: str, links: Links, root: str) -> Markup:
    """A text in which ids, names and commands are links; see `Links.of_text`.

    :param root: see `parts_html`.
    """
    return parts_html(links.of_text(text), root, "")


# `KeptAnswers`: what was made for one client is there for all others who ask for the same at the same time.

#: An answer is given for so long, although ages in it grow.
KEPT_SECONDS: Final = 1.0
#: More are not kept: addresses may have any parameters.
MOST_ANSWERS: Final = 200
#: Of all answers together.
MOST_BYTES: Final = 16_000_000


@dataclass(frozen=True)
class KeptAnswer:
    """A body, and when it was made."""

    made_at: float
    body: bytes


class KeptAnswers:
    """Any thread; two may make the same answer at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[Hashable, KeptAnswer] = {}

    def get(self, key: Hashable) -> KeptAnswer | None:
        """The answer to what was asked for; None = there is none, or it is too old."""
        with self._lock:
            found = self._answers.get(key)
        return found if found is not None and self._is_new(found) else None

    def put(self, key: Hashable, body: bytes) -> KeptAnswer:
        """Keep an answer, and forget those that are too old; a very long one is not kept."""
        answer = KeptAnswer(wall_time(), body)
        with self._lock:
            kept = {key: one for key, one in self._answers.items() if self._is_new(one)}
            room = MOST_BYTES - len(body)
            if len(kept) >= MOST_ANSWERS or sum(len(one.body) for one in kept.values()) > room:
                kept.clear()
            if room >= 0:
                kept[key] = answer
            self._answers = kept
        return answer

    def _is_new(self, answer: KeptAnswer) -> bool:
        # The clock may have been set back.
        return 0 <= wall_time() - answer.made_at < KEPT_SECONDS


# Tables that a page and the API share.


def all_providers(snapshot: WebSnapshot) -> Table:
    """As ``nodepool providers``."""
    return provider_table(summarize(snapshot.observed.statuses), snapshot.observed.launchers, snapshot.observed.now)


def all_hosts(snapshot: WebSnapshot) -> Table:
    """As ``nodepool hosts``."""
    return host_table(summarize(snapshot.observed.statuses), snapshot.observed.now)


def all_launchers(snapshot: WebSnapshot) -> Table:
    """As ``nodepool launchers``."""
    seen = snapshot.observed
    return launcher_table(seen.launchers, registered_launchers(seen.registered), seen.now)


def all_tenants(snapshot: WebSnapshot) -> Table:
    """As ``nodepool tenants``."""
    return tenant_table(snapshot.observed)
