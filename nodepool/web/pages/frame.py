# SPDX-License-Identifier: Apache-2.0
"""How pages are made. A page can ask for its live part alone; see ``static/live.js`` and WP-41.

First the answer (`Frame`) and the templates, then tables, texts and links in HTML, then answers that are kept for other
viewers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodepool.clock import monotonic
from nodepool.listing.table import Column, Place, Table, cell, date_and_time, printable_lines, shown, without_empty
from nodepool.web.answers import place_of, root_of
from nodepool.web.logins import user_of

if TYPE_CHECKING:
    from starlette.types import Scope

    from nodepool.web.answers import StaticFiles
    from nodepool.web.snapshot import RecordKind, SnapshotMaker, WebSnapshot

#: Address (relative to the root of the site) and name of each page that all others lead to.
NAVIGATION: Final = (
    ("", "Overview"),
    ("requests", "Requests"),
    ("nodes", "Nodes"),
    ("providers", "Providers"),
    ("hosts", "Hosts"),
    ("labels", "Labels"),
    ("launchers", "Launchers"),
    ("images", "Images"),
    ("tenants", "Tenants"),
    ("events", "Events"),
)


@dataclass(frozen=True)
class PageAction:
    """A button with a field for a reason.

    :param target: of the form, relative to the root of the site.
    :param mode: of a maintenance record.
    :param may_end: there is a field for how long.
    :param subject: what it is done to, where a page has buttons for several subjects.
    :param sure: what must be confirmed by a mark before it is done; empty = nothing.
    """

    name: str
    target: str
    mode: str = ""
    needs_reason: bool = True
    may_end: bool = False
    subject: str = ""
    sure: str = ""


@dataclass(frozen=True)
class Page:
    """What a template is to show.

    :param values: for the template. Texts are escaped there.
    :param kinds: the page is asked for again when records of these kinds change; empty = only with time.
    :param actions: what operators can do here.
    :param personal: it is not the same for everybody, also in its live part.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[RecordKind] = ()
    actions: Sequence[PageAction] = ()
    personal: bool = False


class PageError(Exception):
    """There is no such page.

    :param status: of HTTP.
    :param kinds: records of which one may be what was asked for; when they change it is asked for again.
    """

    def __init__(self, status: int, text: str, kinds: Sequence[RecordKind] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.kinds = kinds


#: Of each answer with a page or a part of one.
HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-cache",
    "Vary": "HX-Request",
    "Content-Type": "text/html; charset=utf-8",
}
#: Makes a page; raises PageError. It runs in a thread and must not do I/O.
MakePage = Callable[[Request, "WebSnapshot"], Page]


class Frame:
    """Makes routes of pages. The constructor blocks for the file system.

    :param version: of this release.
    :param logins: can anybody log in?
    """

    def __init__(self, snapshots: SnapshotMaker, version: str, files: StaticFiles, *, logins: bool) -> None:
        self._snapshots = snapshots
        self._logins = logins
        #: Live parts that are the same for everybody.
        self._kept = KeptAnswers(monotonic)
        #: Held while a part is made, so that those who ask for the same meanwhile get that one.
        self._making = threading.Lock()
        self._templates = Templates(files, version)

    def route(self, path: str, make: MakePage) -> Route:
        """The route of a page; ``path`` as in starlette."""

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(self._part if _is_part(request) else self._whole, request, make)

        return Route(path, answer)

    def _part(self, request: Request, make: MakePage) -> Response:
        """The live part alone. All viewers of a page ask for it at the same time: it is made for one of them."""
        key = key_of(request.scope)
        with self._making:
            snapshot = self._snapshots.latest()
            content = self._kept.get(key, snapshot.number)
            if content is not None:
                return _response(content, 200)
            page, status = _made(request, snapshot, make)
            content = self._render(page, request, snapshot, part=True)
            if status == 200 and not page.personal:
                self._kept.put(key, snapshot.number, content)
        return _response(content, status)

    def _whole(self, request: Request, make: MakePage) -> Response:
        snapshot = self._snapshots.latest()
        page, status = _made(request, snapshot, make)
        return _response(self._render(page, request, snapshot, part=False), status)

    def page(self, request: Request, page: Page, status: int) -> Response:
        """The answer with a page that is not the same for everybody. Does not block."""
        content = self._render(page, request, self._snapshots.latest(), part=False)
        return Response(content, status, {"Cache-Control": "no-store"}, "text/html; charset=utf-8")

    def _render(self, page: Page, request: Request, snapshot: WebSnapshot, *, part: bool) -> bytes:
        return self._templates.render(
            page.template,
            **page.values,
            frame="part.html" if part else "base.html",
            title=page.title,
            root=root_of(request),
            here=request.url.path.strip("/").partition("/")[0],
            again=f"?{request.url.query}",
            kinds=" ".join(page.kinds),
            snapshot_number=snapshot.number,
            complete=snapshot.complete,
            shown_at=date_and_time(snapshot.observed.now),
            navigation=NAVIGATION,
            user=user_of(request),
            logins=self._logins,
            actions=page.actions,
            back=place_of(request),
        )


def _is_part(request: Request) -> bool:
    """Is only the live part of the page wanted?"""
    return request.headers.get("hx-request") == "true"


def _made(request: Request, snapshot: WebSnapshot, make: MakePage) -> tuple[Page, int]:
    """A page and its status; one that cannot be made is a page, too."""
    try:
        return make(request, snapshot), 200
    except PageError as problem:
        title = "Not found" if problem.status == 404 else "Not understood"
        return Page("error.html", title, {"text": str(problem)}, problem.kinds), problem.status


def _response(content: bytes, status: int) -> Response:
    return Response(content, status, HEADERS)


# `Templates`: makes HTML of values, and `address`: where pages are.

_DIRECTORY: Final = Path(__file__).parents[1] / "templates"


class Templates:
    """The templates of all pages. Texts are escaped.

    :param version: of this release.
    """

    def __init__(self, files: StaticFiles, version: str) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_DIRECTORY),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        self._environment.globals.update(static=files.address, version=version)
        self._environment.filters.update(row_html=row_html, parts_html=parts_html)

    def render(self, name: str, /, **values: Any) -> bytes:
        """A page. Blocks for the file system at the first use of a template."""
        return self._environment.get_template(name).render(**values).encode("utf-8", "replace")


def address(*parts: str, **query: str | int | None) -> str:
    """An address relative to the root of the site; names may have any characters. None = without that parameter."""
    text = "/".join(_quoted(part) for part in parts)
    given = "&".join(f"{key}={_quoted(str(value))}" for key, value in query.items() if value is not None)
    return f"{text}?{given}" if given else text


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _shown(value: Any) -> Any:
    """What a template shows of a value."""
    if value is None:
        return ""
    return shown_text(value) if type(value) is str else value


# HTML of the cells of tables and of texts with links. A page has a thousand of them; a template takes 2 ms longer.


def row_html(row: Sequence[Cell], root: str) -> Markup:
    """The cells of a row. Texts are escaped.

    :param root: the way from the page to the root of the site.
    """
    return Markup("\n".join([_cell(cell, root) for cell in row]))


def parts_html(parts: Iterable[CellText], root: str) -> Markup:
    """Texts, each with its link, with commas between them.

    :param root: see `row_html`.
    """
    return Markup(", ".join([_part(part, root) for part in parts]))


def _cell(cell: Cell, root: str) -> str:
    css = f' class="{escape(cell.css)}"' if cell.css else ""
    return f"<td{css}>{parts_html(cell.parts, root)}</td>"


def _part(part: CellText, root: str) -> str:
    text = escape(shown_text(part.text))
    if part.href is None:
        return text
    href = escape(shown_text(part.href if part.outside else root + part.href))
    return f'<a href="{href}">{text}</a>'


# A `Table` as a page shows it: texts, colours, and where each value leads to.

#: Longest text in a cell; the page of the row has all of it.
MAX_CELL: Final = 300
#: Names of a list in a cell.
MAX_NAMES: Final = 20
#: Names of the library ``rich`` -> classes in the style sheet.
CSS_CLASSES: Final = {"green": "good", "cyan": "busy", "yellow": "waiting", "red": "bad", "dim": "quiet"}

#: Where a value leads to, from the root of the site, or a whole address; None = nowhere. Given the value, and its row.
Link = Callable[[Any, Mapping[str, Any]], str | None]


@dataclass(frozen=True, slots=True)
class CellText:
    """A text in a cell.

    :param href: where it leads to; None = nowhere.
    :param outside: ``href`` is a whole address, of another site.
    """

    text: str
    href: str | None = None
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """:param css: its classes."""

    parts: Sequence[CellText]
    css: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column.

    :param sort: address of the same page sorted by it; None = it cannot be.
    :param direction: ``ascending`` or ``descending`` when the page is sorted by it; else empty.
    """

    text: str
    css: str = ""
    sort: str | None = None
    direction: str = ""


@dataclass(frozen=True)
class TableView:
    """:param caption: what its rows are, for people who do not see the page."""

    caption: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]


def table_view(
    caption: str,
    table: Table,
    links: Mapping[str, Link] | None = None,
    head: Callable[[Column], tuple[str | None, str]] | None = None,
) -> TableView:
    """What a template shows of a table.

    :param links: key of a column -> where its values lead to.
    :param head: ``sort`` and ``direction`` of a column, see `Head`.
    """
    keys = [column.key for column in table.columns]
    wanted = [dict(zip(keys, row, strict=True)) for row in table.rows]
    table = without_empty(shown(table, Place.TERMINAL))
    heads = [
        Head(column.header, _column_class(column), *((None, "") if head is None else head(column)))
        for column in table.columns
    ]
    columns = [(column, _column_class(column), (links or {}).get(column.key)) for column in table.columns]
    rows = [
        [_make_cell(*column, value, row) for column, value in zip(columns, values, strict=True)]
        for row, values in zip(wanted, table.rows, strict=True)
    ]
    return TableView(caption, heads, rows)


def _make_cell(column: Column, css: str, link: Link | None, value: Any, row: Mapping[str, Any]) -> Cell:
    colour = CSS_CLASSES.get(column.style(value), "")
    if colour:
        css = f"{css} state {colour}".strip()
    if isinstance(value, list) and link is not None:
        parts = [_linked(_cut(str(one)), link(one, row)) for one in value[:MAX_NAMES]]
        if len(value) > MAX_NAMES:
            parts.append(CellText(f"{len(value) - MAX_NAMES} more"))
        return Cell(parts, css)
    text = _cut(cell(column, value))
    return Cell([_linked(text, None if link is None or value is None else link(value, row))] if text else [], css)


def _linked(text: str, href: str | None) -> CellText:
    return CellText(text, href, href is not None and href.startswith(("http://", "https://")))


def _column_class(column: Column) -> str:
    """Columns that people can do without are hidden where there is no room."""
    return f"p{min(column.priority, 8)}" if column.priority else ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}..."


# `shown_text`: a text of another program, as pages show it.

#: Longest text that a page shows.
MAX_TEXT: Final = 2000


def shown_text(text: str) -> str:
    """A text without characters that do more than be seen, and not too long. It is not escaped."""
    if len(text) > MAX_TEXT:
        return printable_lines(f"{text[:MAX_TEXT]}...")
    return text if text.isprintable() else printable_lines(text)


# `Links`: where values in tables lead to. Of what is not there any more there is no page, and no link.

#: Kind of the subject of an event -> list in which it is looked for.
_LISTS: Final = {"host": "hosts", "launcher": "launchers"}


class Links:
    """The pages of one snapshot. Methods take a value, and the row of the table that has it."""

    def __init__(self, snapshot: WebSnapshot) -> None:
        self._snapshot = snapshot
        self._seen = snapshot.observed

    @cached_property
    def providers(self) -> frozenset[str]:
        """Names of the providers that have a page."""
        absent = (one.name for launcher in self._snapshot.launchers for one in launcher.absent)
        return frozenset({*self._seen.providers, *absent, *(status.provider for status in self._seen.statuses)})

    @cached_property
    def labels(self) -> frozenset[str]:
        """Names of the labels that have a page."""
        broken = (label for status in self._seen.statuses for label in status.labels)
        wanted = (label for request in self._seen.requests.values() for label in request.node_types)
        return frozenset({*self._seen.labels, *broken, *wanted})

    def pool(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        """``<provider>/<pool>``, or the provider alone."""
        text = str(value)
        for name in (text, text.partition("/")[0], text.rpartition("/")[0]):
            if name in self.providers:
                return _page("providers", name, self.providers)
        return None

    def provider(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("providers", value, self.providers)

    def label(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("labels", value, self.labels)

    def node(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("nodes", value, self._seen.nodes)

    def request(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("requests", value, self._seen.requests)

    def image(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("images", value, self._snapshot.images.images)

    def tenant(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        """The requests of a tenant."""
        return address("requests", tenant=str(value))

    def launcher(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        """The launchers whose row has the name."""
        return address("launchers", q=str(value))

    def subject(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        """What an event is about, e.g. ``node 0000000001`` or ``label gpu of cloud-1/main``."""
        kind, _, name = str(value).partition(" ")
        if kind == "label":
            return self.label(name.rpartition(" of ")[0] or name)
        pages = {"request": self.request, "node": self.node, "provider": self.pool, "pool": self.pool}
        if kind in pages:
            return pages[kind](name)
        return address(_LISTS[kind], q=name) if kind in _LISTS else None

    def labels_text(self, names: Collection[str]) -> list[CellText]:
        """Labels, each with its link."""
        return [CellText(name, self.label(name)) for name in names]

    def nodes_text(self, ids: Collection[str]) -> list[CellText]:
        """Nodes, each with its link."""
        return [CellText(node_id, self.node(node_id)) for node_id in ids]


def _page(kind: str, name: Any, known: Collection[str]) -> str | None:
    """A half of a surrogate pair, which JSON allows, cannot be in an address."""
    text = str(name)
    return address(kind, text) if text in known and text.isprintable() else None


# `KeptAnswers`: what was made for one viewer is there for all others who ask for the same at the same time.

#: An answer is given for so long, although ages in it grow.
LIFETIME_SECONDS: Final = 1.0
#: More are not kept: addresses may have any parameters.
MOST_ANSWERS: Final = 200
#: Of all answers together.
MOST_BYTES: Final = 8_000_000


class KeptAnswers:
    """Any thread.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: What was asked for -> (number of the snapshot, when it was made, answer).
        self._answers: dict[str, tuple[int, float, bytes]] = {}

    def get(self, key: str, number: int) -> bytes | None:
        """An answer made of the same snapshot; None = there is none, or it is too old."""
        with self._lock:
            found = self._answers.get(key)
        if found is None or found[0] != number or self._clock() - found[1] >= LIFETIME_SECONDS:
            return None
        return found[2]

    def put(self, key: str, number: int, answer: bytes) -> None:
        """Keep an answer, and forget those that are too old; a very long one is not kept."""
        now = self._clock()
        with self._lock:
            kept = {key: one for key, one in self._answers.items() if now - one[1] < LIFETIME_SECONDS}
            room = MOST_BYTES - len(answer)
            if len(kept) >= MOST_ANSWERS or sum(len(one[2]) for one in kept.values()) > room:
                kept.clear()
            if room >= 0:
                kept[key] = (number, now, answer)
            self._answers = kept


def key_of(scope: Scope) -> str:
    """What a part is asked for: path and query, as they were sent."""
    path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    query: bytes = scope["query_string"]
    return f"{path.decode('latin-1')}?{query.decode('latin-1')}"
