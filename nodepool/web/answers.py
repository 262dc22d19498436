# SPDX-License-Identifier: Apache-2.0
"""What answers of pages and API are made of.

First errors (RFC 9457) and JSON, then our own addresses, static files and links to Zuul, then what a query asks for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from nodepool import fast_json
from nodepool.listing import table
from nodepool.listing.nodes import Filter, names_in, states_in
from nodepool.listing.paging import MAX_CURSOR
from nodepool.model.request import origin_of

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest

MEDIA_TYPE: Final = "application/problem+json"
#: Below this path errors have this form.
API: Final = "/api/"
#: Longest text: it may name what a client has sent.
MAX_DETAIL: Final = 1000


class ApiProblem(Exception):
    """An answer that is an error.

    :param detail: what is wrong, and what is allowed; in a sentence.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


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
    """Of what the router refuses: unknown paths and methods. In the API as a problem, elsewhere as text."""
    if not isinstance(error, HTTPException):
        raise error
    path: str = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    if not path.startswith(API):
        return PlainTextResponse(error.detail, error.status_code, error.headers)
    detail = error.detail
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
    path = wanted.replace("\\", "/").lstrip("/")
    return f"{root_of(request)}{quote(path, safe='/?=&%:@+,;~!$()*-._', errors='replace')}"


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


@dataclass(frozen=True)
class StaticFile:
    """One file.

    :param digest: of its content.
    """

    content: bytes
    media_type: str
    digest: str


class StaticFiles:
    """All of them, in memory. The constructor blocks for the file system."""

    def __init__(self, directory: Path = _DIRECTORY) -> None:
        self._files: Mapping[str, StaticFile] = {
            path.relative_to(directory).as_posix(): _read(path)
            for path in sorted(directory.rglob("*"))
            if path.suffix in _TYPES
        }

    def address(self, name: str) -> str:
        """Where a file is, relative to the root of the site. Raises KeyError: there is none of this name."""
        return f"static/{name}?v={self._files[name].digest}"

    def route(self) -> Route:
        async def answer(request: Request) -> Response:
            file = self._files.get(request.path_params["name"])
            if file is None:
                return PlainTextResponse("There is no such file.", 404)
            same = request.query_params.get("v") == file.digest
            headers = {"Cache-Control": _FOR_EVER if same else "no-cache", "ETag": f'"{file.digest}"'}
            if request.headers.get("if-none-match") == headers["ETag"]:
                return Response(status_code=304, headers=headers)
            return Response(file.content, headers=headers, media_type=file.media_type)

        return Route("/static/{name:path}", answer)


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(content, _TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:16])


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
    base = f"{zuul_url.rstrip('/')}/t/{_quoted(tenant)}"
    found = {"status": f"{base}/status"}
    if isinstance(buildset, str) and buildset:
        found = {"buildset": f"{base}/buildset/{_quoted(buildset)}", **found}
    return found


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


# What the query of a request of the API asks for: filters, order, part and fields (WP-22, WP-23).

#: Rows of an answer, if nobody asks for another number, and at most.
ROWS: Final = 100
MOST_ROWS: Final = 1000
#: Longest query, longest value of a parameter but a cursor, and most names in one.
MAX_QUERY: Final = 8000
MAX_VALUE: Final = 500
MAX_NAMES: Final = 50
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a query, as it is parsed and as OpenAPI describes it.

    :param values: those that there are; empty = any.
    """

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string", "maxLength": MAX_VALUE})
    values: Sequence[str] = ()


def state(values: Sequence[str]) -> Parameter:
    """``state``, of these states; empty = any."""
    there_are = f": {', '.join(values)}" if values else ""
    return Parameter("state", f"In one of these states, divided by commas{there_are}.", values=values)


LABEL: Final = Parameter("label", "With one of these labels: names or patterns such as `gpu-*`, divided by commas.")
PROVIDER: Final = Parameter("provider", "Of one of these providers: names or patterns, divided by commas.")
POOL: Final = Parameter("pool", "Of one of these pools: `POOL` or `PROVIDER/POOL`, or patterns, divided by commas.")
TENANT: Final = Parameter("tenant", "Of one of these tenants: names or patterns, divided by commas.")
OLDER_THAN: Final = Parameter(
    "older_than", "Nodes that are in their state, requests that wait for longer, e.g. `90s`, `15m`, `1h30m`."
)
SINCE: Final = Parameter(
    "since", "Not older than this moment in seconds since the epoch, or than a duration such as `15m` or `2d`."
)
SUBJECT: Final = Parameter(
    "subject", "About this: a kind, a name or an id, e.g. `cloud-1`, `node` or `200-0000000001`."
)
SORT: Final = Parameter("sort", "Key of a field to sort by; with `-` before it in descending order.")
LIMIT: Final = Parameter(
    "limit",
    "At most so many items.",
    {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": ROWS},
)
CURSOR: Final = Parameter(
    "cursor", "`next` of the answer before: the items behind that.", {"type": "string", "maxLength": MAX_CURSOR}
)
FIELDS: Final = Parameter("fields", "Only these fields of each item, divided by commas.")
#: What every list has.
OF_LISTS: Final = (SORT, LIMIT, CURSOR, FIELDS)


@dataclass(frozen=True)
class Query:
    """A parsed query.

    :param given: parameters that are not empty, all of them allowed.
    :param path: names and ids in the path.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)

    def names(self, parameter: Parameter) -> list[str]:
        """Names or patterns, divided by commas; empty = not given. Raises ApiProblem."""
        text = self.given.get(parameter.name, "")
        try:
            names = states_in(text, parameter.values) if parameter.values else names_in(text)
        except ValueError as error:
            raise _wrong(parameter.name, str(error)) from None
        if len(names) > MAX_NAMES:
            raise _wrong(parameter.name, f"more than {MAX_NAMES} names")
        return names

    def filter(self, states: Parameter) -> Filter:
        """Of nodes or requests. Raises ApiProblem."""
        age = self.given.get(OLDER_THAN.name)
        return Filter(
            self.names(states),
            self.names(LABEL),
            self.names(PROVIDER),
            self.names(POOL),
            self.names(TENANT),
            None if age is None else _duration(OLDER_THAN.name, age),
        )

    def since(self, now: float) -> float:
        """The moment of ``since``, in seconds since the epoch; 0 = it is not given. Raises ApiProblem."""
        text = self.given.get(SINCE.name, "0")
        if _NUMBER.fullmatch(text):
            return float(text)
        return now - _duration(SINCE.name, text)

    @property
    def limit(self) -> int:
        """Raises ApiProblem."""
        text = self.given.get(LIMIT.name, str(ROWS))
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= MOST_ROWS):
            raise _wrong(LIMIT.name, f"{text!r} is no number from 1 to {MOST_ROWS}")
        return int(text)

    @property
    def fields(self) -> list[str]:
        """Keys, each once; empty = all."""
        return list(dict.fromkeys(names_in(self.given.get(FIELDS.name, ""))))


def parse(query: bytes, allowed: Sequence[Parameter], path: Mapping[str, str]) -> Query:
    """Read the query of a request.

    :raises ApiProblem: a parameter is not allowed, there twice, or too long.
    """
    if len(query) > MAX_QUERY:
        raise ApiProblem(400, f"The query is longer than {MAX_QUERY} characters.")
    longest = {parameter.name: parameter.schema.get("maxLength", MAX_VALUE) for parameter in allowed}
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in longest:
            there_are = f"there are: {', '.join(longest)}" if longest else "there is none"
            raise ApiProblem(400, f"There is no parameter {name[:MAX_VALUE]!r} here; {there_are}.")
        if name in given:
            raise _wrong(name, "it is there twice; several values are divided by commas")
        if len(value) > longest[name]:
            raise _wrong(name, f"it is longer than {longest[name]} characters")
        given[name] = value.strip()
    return Query({name: value for name, value in given.items() if value}, path)


def _duration(name: str, text: str) -> float:
    try:
        return table.duration(text)
    except ValueError as error:
        raise _wrong(name, str(error)) from None


def _wrong(name: str, text: str) -> ApiProblem:
    return ApiProblem(400, f"The parameter {name!r} cannot be understood: {text}.")
