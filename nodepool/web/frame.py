# SPDX-License-Identifier: Apache-2.0
"""How pages are made. A page can ask for its live part alone; see ``static/live.js`` and WP-41.

First the answer (`Frame`), then tables, texts and links in HTML, then facts and history of one thing, then pages with
one list: filters and order in the address, as many rows as a page has. Last what the address of a list, of a page or of
the API, asks for (`Query`; WP-21 to WP-23, WP-45).
"""

from __future__ import annotations

import math
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import jinja2
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route

from nodepool.listing.nodes import ALLOCATED, Filter, names_in, states_in
from nodepool.listing.overview import facts
from nodepool.listing.table import (
    Column,
    Place,
    Table,
    cell,
    duration,
    in_order,
    shown,
    since,
    with_zone,
    without_empty,
)
from nodepool.model import states
from nodepool.model.config_keys import did_you_mean
from nodepool.model.event import short
from nodepool.plan.explained import Explained, Moment
from nodepool.web.answers import (
    API,
    KeptAnswers,
    StaticFiles,
    WebProblem,
    cell_text,
    command_html,
    counted_parts,
    http_error,
    is_form,
    own_address,
    parts_html,
    place_of,
    root_of,
    root_of_place,
    shown_text,
    text_html,
)
from nodepool.web.logins import path_of, user_of
from nodepool.web.snapshot import CellText, Link, Links, RecordKind, SnapshotMaker, WebSnapshot, address
from nodepool.web.stream import MOST_VIEWERS, LivePage

if TYPE_CHECKING:
    from nodepool.plan.observed import Observed
    from nodepool.web.history import Life


#: Address (relative to the root of the site) and name of each page that all others lead to.
_LISTS: Final = "Requests Nodes Providers Hosts Labels Launchers Images Tenants Events"
NAVIGATION: Final = (("", "Overview"), *((name.lower(), name) for name in _LISTS.split()))


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
    :param to: where a browser goes at once instead, from the root of the site; empty = nowhere.
    :param status: of HTTP.
    :param content: where it is equal, live parts of one address differ in ages only; None = it is not known.
    """

    title: str
    values: Mapping[str, Any]
    kinds: Sequence[str] = ()
    actions: Sequence[PageAction] = ()
    personal: bool = False
    template: str = "page.html"
    to: str = ""
    status: int = 200
    content: Any = None


_HTML: Final = "text/html; charset=utf-8"
#: Of each answer with a page or a part of one.
HEADERS: Final[Mapping[str, str]] = {"Cache-Control": "no-cache", "Vary": "HX-Request", "Content-Type": _HTML}
_TEMPLATES: Final = Path(__file__).parent / "templates"
#: The port at the end of the header ``Host``.
_SITE: Final = re.compile(r":\d+$")
#: The row of a list that is to be changed, in the address of it.
_ACT: Final = re.compile(r"\?act=[^&]*$|(?<=\?)act=[^&]*&|&act=[^&]*")
_TITLES: Final = {401: "Log in", 403: "Not allowed", 404: "Not found", 409: "Not possible now"}
#: What a page says where there is none.
_NO_PAGE: Final = {
    "": "There is no page of this address. The search above finds records by id, address, host, job and name.",
    "/login": "There are no logins here: webapp.auth.authenticators of the configuration is empty.",
}
#: Of two parts with the same lock one waits for the other.
MAKING_LOCKS: Final = 64
#: Makes a page; raises WebProblem. It runs in a thread and must not do I/O.
MakePage = Callable[[Request, "WebSnapshot"], Page]


class Frame:
    """Makes routes of pages. The constructor blocks for the file system.

    :param version: of this release.
    :param logins: can anybody log in?
    """

    def __init__(self, snapshots: SnapshotMaker, version: str, files: StaticFiles, *, logins: bool) -> None:
        self._snapshots = snapshots
        #: Live parts that are the same for everybody.
        self._kept = KeptAnswers()
        #: By place, held while a part is made, so that those who ask for the same meanwhile get that one.
        self._making = [threading.Lock() for _ in range(MAKING_LOCKS)]
        #: The pages, in the order in which they are looked for.
        self._pages: list[tuple[Route, MakePage]] = []
        #: Place -> `Page.content` that its viewers have.
        self._sent: dict[str, Any] = {}
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        self._templates.globals.update(static=files.address, version=version, navigation=NAVIGATION, logins=logins)
        filters = (state_class, row_html, parts_html, text_html, command_html)
        self._templates.filters.update({one.__name__: one for one in filters})

    def route(self, path: str, make: MakePage) -> Route:
        """The route of a page; ``path`` as in starlette."""

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(self._made, request, make)

        route = Route(path, answer)
        self._pages.append((route, make))
        return route

    def followed(self, request: Request) -> LivePage | None:
        """The page that the parameter ``page`` names by path and query from the root of the site; None = none."""
        place = request.query_params.get("page", "")
        path, _, query = place.partition("?")
        where = {"path": f"/{unquote(path)}", "raw_path": f"/{path}".encode(), "query_string": query.encode()}
        for route, make in self._pages if "page" in request.query_params else ():
            match, found = route.matches({**request.scope, **where})
            if match is Match.FULL:
                return LivePage(place, partial(self._part, Request({**request.scope, **where, **found}), make))
        return None

    def _part(self, request: Request, make: MakePage, is_new: bool) -> tuple[Sequence[str], str]:
        snapshot = self._snapshots.latest()
        page = self._page(request, make, snapshot)
        place, content = place_of(request), page.content
        if page.personal or (content is not None and not is_new and self._sent.get(place) == content):
            # Every page asks for its part now and then, so that ages grow.
            return page.kinds, ""
        self._sent = {**(self._sent if len(self._sent) < MOST_VIEWERS else {}), place: content}
        return page.kinds, self._render(page, request, snapshot, part=True).decode()

    async def error(self, request: Request, error: Exception) -> Response:
        """The answer to a request that failed: a page for a browser that asks for one, else as `http_error`."""
        assert isinstance(error, HTTPException)
        is_program = path_of(request).startswith(API) and not is_form(request)
        if is_program or "text/html" not in request.headers.get("accept", ""):
            return await http_error(request, error)
        is_unknown = error.status_code == HTTPStatus.NOT_FOUND and not isinstance(error, WebProblem)
        detail = _NO_PAGE.get(path_of(request), _NO_PAGE[""]) if is_unknown else error.detail
        if is_form(request) and request.headers.get("hx-request") == "true":
            headers = {"HX-Reswap": "afterbegin", "Cache-Control": "no-store"}
            return Response(f'<p class="wrong" role="alert">{escape(detail)}</p>', error.status_code, headers, _HTML)
        return await run_in_threadpool(self.page, request, Page(_title(error), {"error": detail}), error.status_code)

    def _made(self, request: Request, make: MakePage) -> Response:
        """A page, or its live part alone; one that cannot be made is a page, too."""
        if request.headers.get("hx-request") != "true":
            return self._make(request, make, part=False)
        # All viewers of a page ask for its part at the same time: it is made for one of them.
        with self._making[hash(place_of(request)) % MAKING_LOCKS]:
            return self._make(request, make, part=True)

    def _make(self, request: Request, make: MakePage, *, part: bool) -> Response:
        snapshot = self._snapshots.latest()
        key = (place_of(request), snapshot.number)
        if part and (kept := self._kept.get(key)) is not None:
            return Response(kept.body, 200, HEADERS)
        page = self._page(request, make, snapshot)
        if page.to and not part:
            return RedirectResponse(own_address(request, page.to), HTTPStatus.SEE_OTHER)
        content = self._render(page, request, snapshot, part=part)
        if part and page.status == 200 and not page.personal:
            self._kept.put(key, content)
        return Response(content, page.status, HEADERS)

    @staticmethod
    def _page(request: Request, make: MakePage, snapshot: WebSnapshot) -> Page:
        try:
            return make(request, snapshot)
        except WebProblem as problem:
            return Page(_title(problem), {"error": problem.detail}, problem.kinds, status=problem.status_code)

    def page(self, request: Request, page: Page, status: int) -> Response:
        """The answer with a page that is not the same for everybody."""
        content = self._render(page, request, self._snapshots.latest(), part=False)
        return Response(content, status, {"Cache-Control": "no-store"}, _HTML)

    def form(
        self,
        request: Request,
        button: Callable[[Observed], PageAction | None],
        given: Mapping[str, Any],
        wrong: WebProblem,
    ) -> Response:
        """The answer to a form that is refused: the form again, with what was typed and what is wrong.

        With JavaScript it takes the place of the one on the page, else it is a page. Blocks as `_render`.

        :param button: finds the one of the form; None = there is none any more.
        :param given: the fields.
        """
        action = button(self._snapshots.latest().observed)
        values = {"error": wrong.detail, "given": given, "wrong": wrong.field}
        if action is None or request.headers.get("hx-request") != "true":
            title = _title(wrong) if action is None else f"{action.name}: {action.subject}"
            page = Page(title, values, actions=[] if action is None else [action])
            return self.page(request, page, wrong.status_code)
        back = str(given.get("back", ""))
        form = self._templates.get_template("page.html").module.form_of  # type: ignore[attr-defined]
        content = form(action, root_of_place(back), back, given, wrong.field, wrong.detail)
        return Response(content, wrong.status_code, {"Cache-Control": "no-store"}, _HTML)

    def _render(self, page: Page, request: Request, snapshot: WebSnapshot, *, part: bool) -> bytes:
        """HTML. Blocks for the file system at the first use of a template."""
        values = {
            "given": {},
            "wrong": "",
            **page.values,
            "part": part,
            "title": page.title,
            "root": root_of(request),
            "here": (here := path_of(request).strip("/").partition("/")[0]),
            "site": _SITE.sub("", request.headers.get("host", "")),
            "searched": request.query_params.get("q", "")[:MAX_VALUE] if here == "search" else "",
            "again": f"?{request.url.query}",
            "place": place_of(request),
            "kinds": " ".join(page.kinds),
            "snapshot_number": snapshot.number,
            "complete": snapshot.complete,
            "shown_at": with_zone(snapshot.observed.now),
            "links": Links(snapshot),
            "user": user_of(request),
            "actions": page.actions,
            "back": page.values.get("given", {}).get("back") or _ACT.sub("", place_of(request)),
        }
        return self._templates.get_template(page.template).render(values).encode("utf-8", "replace")


def _title(error: HTTPException) -> str:
    """Of a page that says what is wrong."""
    return _TITLES.get(error.status_code, "Not understood" if error.status_code < 500 else "Not now")


def _shown(value: Any) -> Any:
    """What a template shows of a value."""
    if value is None:
        return ""
    return shown_text(value) if type(value) is str else value


# A `Table` as a page shows it: texts, colours, and where each value leads to.

#: Keys of columns -> class of their cells: what people want to know first, where a row is a card.
_ROLES: Final = {
    **dict.fromkeys(("age_seconds", "age", "since", "oldest", "newest", "ended", "at"), "age"),
    **dict.fromkeys(("reason", "text", "error"), "why"),
    "change": "change",
}
#: Keys of columns with states: each state has its colour.
_STATES: Final = ("state", "status", "what", "result")
_STATE: Final = re.compile(r"[a-z][a-z-]{0,20}")
#: Names of the library ``rich`` -> classes in the style sheet.
CSS_CLASSES: Final = {"green": "good", "cyan": "busy", "yellow": "waiting", "red": "bad", "dim": "quiet"}


class Cell(NamedTuple):
    """:param css: its classes. ``label``: its head, where a row is a card. ``between``: stands between the parts."""

    parts: Sequence[CellText]
    css: str = ""
    label: str = ""
    between: str = ", "


class Head(NamedTuple):
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
    links: Links | None = None,
    head: Callable[[Column], tuple[str | None, str]] = lambda _column: (None, ""),
    **more: Link | None,
) -> TableView:
    """What a template shows of a table.

    :param links: the pages of the snapshot; None = no value is a link.
    :param head: ``sort`` and ``direction`` of a column, see `Head`.
    :param more: key of a column -> where its values lead to, if not where ``links`` says.
    """
    table = without_empty(shown(table, Place.TERMINAL))
    columns = []
    for number, column in enumerate(table.columns):
        # Columns that people can do without are hidden where there is no room.
        css = [f"p{min(column.priority, 8)}"] if column.priority else []
        role = "name" if not number else _ROLES.get(column.key, "")
        if all(type(row[number]) in (int, float, type(None)) for row in table.rows):
            css += [] if isinstance(column.show, since) or column.key == "at" else ["number"]
        css += [role] if role else []
        found = None if links is None else links.of_column(column.key)
        link = more.get(column.key, found)
        texts = links.of_text if links is not None and role == "why" and link is None else None
        columns.append((column, " ".join(css), "" if role else column.header, link, texts))
    heads = [Head(column.header, css, *head(column)) for column, css, *_ in columns]
    rows = [[_cell(*column, value) for column, value in zip(columns, row, strict=True)] for row in table.rows]
    return TableView(caption, heads, rows)


def first_rows(table: Table, most: int) -> Table:
    """A table with so many rows at most."""
    return Table(table.columns, table.rows[:most])


def _cell(
    column: Column,
    css: str,
    label: str,
    link: Link | None,
    texts: Callable[[str], Sequence[CellText]] | None,
    value: Any,
) -> Cell:
    """:param texts: finds links in a text that has no link of its own."""
    if value is None or value == "" or value == []:
        return Cell([], css)
    if isinstance(value, CellText):
        return Cell([value], css, label)
    colour = CSS_CLASSES.get(column.style(value), "")
    if colour or column.key in _STATES:
        css = f"{css} state {colour} {state_class(value)}".strip()
    if isinstance(value, list):
        return Cell(counted_parts(value, link), css, label)
    text, href = cell_text(cell(column, value)), None if link is None else link(value)
    if isinstance(column.show, since):
        return Cell([CellText(column.show.ago(value), href, with_zone(value))] if text else [], css, label)
    if column.key == "at":
        return Cell([CellText(with_zone(value), href)], css, label)
    if texts is not None:
        return Cell(texts(text), css, label, "")
    return Cell([CellText(text, href)] if text else [], css, label)


def state_class(state: Any) -> str:
    """The class with the colour of a state, e.g. ``s-in-use``; empty = the text is no word for a state."""
    name = state.partition(" (")[0].replace(" ", "-") if isinstance(state, str) else ""
    return f"s-{name}" if _STATE.fullmatch(name) else ""


# HTML of the cells of tables and of texts with links. A page has a thousand of them; a template takes 2 ms longer.


def row_html(row: Sequence[Cell], root: str) -> Markup:
    """The cells of a row. Texts are escaped.

    :param root: the way from the page to the root of the site.
    """
    return Markup("\n".join([_cell_html(one, root) for one in row]))


def _cell_html(one: Cell, root: str) -> str:
    css = f' class="{one.css}"' if one.css else ""
    label = f' data-label="{escape(one.label)}"' if one.label and one.parts else ""
    return f"<td{css}{label}>{parts_html(one.parts, root, one.between)}</td>"


# What pages about one thing have in common.


@dataclass(frozen=True)
class ShownFact:
    """A name and its value; without a value it is not shown.

    :param css: classes of the value.
    :param folded: few people look for it.
    """

    name: str
    parts: Sequence[CellText]
    css: str = ""
    folded: bool = False


def fact(name: str, value: Any, *, css: str = "") -> ShownFact:
    """A fact with one value.

    :param css: ``state`` = the colour of the value is that of a state.
    """
    if value is None or value == "":
        return ShownFact(name, [])
    folded = name in _FOLDED
    css = f"state {state_class(value)}" if css == "state" else css
    return ShownFact(name, [CellText(str(value))], css.strip(), folded)


_FOLDED: Final = frozenset({"Event", "Requestor", "Priority", "Launcher"})
#: Name of a fact -> key of a column whose values lead to the same.
_LINKED: Final = {
    "Labels": "labels",
    "Nodes": "nodes",
    "Only in": "provider",
    "Pool": "pool",
    "Request": "allocated_to",
    "Tenant": "tenant",
}


def facts_of(answer: Explained, now: float, links: Links, **more: Link) -> list[ShownFact]:
    """What ``nodepool explain`` shows of an answer, with links.

    :param now: seconds since the epoch.
    :param more: name of a fact -> where its values lead to.
    """
    found = []
    for name, values in facts(answer, now).items():
        link = more.get(name) or links.of_column(_LINKED.get(name, ""))
        parts = counted_parts(values, link)
        found.append(replace(fact(name, values[0], css="state" if name == "State" else ""), parts=parts))
    return found


#: What begins a phase of a life.
_PHASES: Final = {*states.NODE_STATES, *states.REQUEST_STATES, "submitted", "created", "waits"} - {states.DELETED}


def story(history: Iterable[Moment], now: float, life: Life | None = None) -> dict[str, Any]:
    """What happened when, how long each of it lasted, and a bar of the phases, for a template.

    :param now: seconds since the epoch.
    :param life: what was kept of it; it has states that are over.
    """
    found, end = list(history), now
    if life is not None:
        known = {(one.what, round(one.at)) for one in found} | {(states.REQUESTED, round(life.created or 0.0))}
        found += [Moment(at, what) for what, at in life.times if (what, round(at)) not in known]
        if life.ended is not None:
            end = life.ended
            found.append(Moment(end, "deleted" if life.kind == "node" else "removed", None, life.reason))
    found.sort(key=lambda one: one.at)
    phases = [one for one in found if one.what in _PHASES]
    ends = dict(zip(map(id, phases), [*(after.at for after in phases[1:]), end], strict=False))
    lasted = {key: f"for {short(ends[key] - one.at)}" for key, one in zip(ends, phases, strict=True)}
    begin = phases[0].at if phases else end
    places = [round(1000 * (at - begin) / max(end - begin, 0.001)) for at in (begin, *ends.values())]
    bar = [
        {"x": x, "width": after - x, "what": one.what, "title": f"{one.what} {lasted[id(one)]}"}
        for one, x, after in zip(phases, places, places[1:], strict=False)
    ]
    rows = [
        {"at": with_zone(one.at), "what": one.what, "code": one.code, "text": one.text, "for": lasted.get(id(one), "")}
        for one in found
    ]
    return {"rows": rows, "bar": bar}


def log_commands(mark: str) -> list[str]:
    """What finds the lines about something in the logs of launchers.

    :param mark: what these lines have, e.g. ``node: 0000000001``.
    """
    # Ids come from other programs, and these lines are for a shell.
    plain = mark if re.fullmatch(r"[\w: -]+", mark) else re.escape(mark)
    return [
        f"journalctl -u nodepool-launcher --grep {shlex.quote(plain)}",
        f"grep -F {shlex.quote(mark)} /var/log/nodepool/nodepool.log",
    ]


# Pages with one list: of a small table, then of records of which there may be thousands, then what both have in common.

#: Names that a field proposes.
MOST_PROPOSALS: Final = 200


@dataclass(frozen=True)
class ListSubject:
    """What a list is about.

    :param kinds: it is asked for again when records of these change.
    :param empty: what the page says when there is nothing.
    """

    title: str
    kinds: Sequence[RecordKind]
    empty: str


@dataclass(frozen=True)
class FilterField:
    """A field of the form above a list.

    :param name: of the parameter. ``label``: what people read.
    :param value: what is chosen. ``hint``: stands in an empty field.
    :param options: the only values; empty = any text.
    :param proposals: values that there are, of a field for any text.
    :param wrong: it cannot be understood.
    """

    name: str
    label: str
    value: str
    hint: str = ""
    options: Sequence[str] = ()
    proposals: Sequence[str] = ()
    wrong: bool = False


def query_of(request: Request) -> Query:
    """What an address chooses; parameters that are not known are of no account."""
    return parse(request.scope["query_string"], request.path_params)


def list_of_table(
    request: Request,
    subject: ListSubject,
    make_table: Callable[[], Table],
    links: Links,
    more: Sequence[FilterField] = (),
    id_link: Link | None = None,
    *,
    changed: bool = False,
) -> Page:
    """The page of a table that is small enough to be made as a whole. ``q`` chooses the rows that have a text.

    :param make_table: may raise WebProblem.
    :param more: fields beside ``q``, which have chosen the rows already.
    :param id_link: where values of the column ``id`` lead to.
    :param changed: each row has a link for operators, to the forms that change what is in its first column.
    """
    query = query_of(request)
    fields = [*more, FilterField("q", "Text", query.text("q"), "in any column")]

    def act(name: str) -> CellText:
        return CellText("Change", address(subject.title.lower(), **{**query.given, "act": name}))

    def make() -> Page:
        table = make_table()
        wanted = query.text("q").casefold()
        if wanted:
            people = shown(table, Place.TERMINAL)
            texts = (" ".join(map(cell, people.columns, row)).casefold() for row in people.rows)
            table = replace(table, rows=[row for row, text in zip(table.rows, texts, strict=True) if wanted in text])
        keys = [column.key for column in table.columns]
        found = in_order(table, query.text("sort")) if query.order([*keys, ""], "")[0] else table

        def part(first: int, end: int) -> Table:
            rows = found.rows[first:end]
            if not changed:
                return replace(found, rows=rows)
            return Table([*found.columns, Column("Change", "change")], [[*row, act(row[0])] for row in rows])

        return _list(query, subject, len(found.rows), part, fields, keys, "", links, id_link)

    return _kept_fields(query, subject, fields, make)


def _kept_fields(query: Query, subject: ListSubject, fields: Sequence[FilterField], make: Callable[[], Page]) -> Page:
    """The page of a list. If its address cannot be understood, the fields keep what they have; the page says why."""
    try:
        return make()
    except WebProblem as problem:
        marked = [replace(field, wrong=field.name == problem.field) for field in fields]
        chosen = sum(bool(field.value) for field in fields)
        values = {"fields": marked, "hidden": {}, "sorts": [], "chosen": chosen, "all": "?", "total": 0}
        return Page(subject.title, {"list": values, "error": problem.detail}, subject.kinds, status=problem.status_code)


@dataclass(frozen=True)
class RecordList:
    """How nodes or requests are listed.

    :param state: filter with their states. ``filters``: those beside it.
    :param orders: key of a column -> what is sorted by. ``id``, the first, is the order in which ``records`` has them.
    :param wanted: does a filter choose one, at a time in seconds since the epoch?
    :param table: makes rows of some.
    :param link: where an id leads to. ``content``: what rows of some show, see `Page.content`.
    """

    subject: ListSubject
    state: Parameter
    filters: Sequence[Parameter]
    orders: Mapping[str, Callable[[Any], Any]]
    records: Callable[[Observed], Iterable[Any]]
    wanted: Callable[[Filter, Any, float], bool]
    table: Callable[[Sequence[Any], WebSnapshot], Table]
    link: Callable[[Links, Any], str | None]
    content: Callable[[Sequence[Any], Observed], Any] = lambda _records, _seen: None


def list_of_records(kind: RecordList, request: Request, snapshot: WebSnapshot) -> Page:
    """The page of a list of which only the rows that are shown are made."""
    seen, query, links = snapshot.observed, query_of(request), Links(snapshot)
    state = query.text("state")
    # Several at a time are chosen by the address alone.
    options = kind.state.values if state in ("", *kind.state.values) else [*kind.state.values, state]
    fields = [FilterField("state", "State", state, options=options)]
    for name in (parameter.name for parameter in kind.filters):
        known = {LABEL.name: seen.labels, PROVIDER.name: seen.providers}.get(name, ())
        proposals = sorted(known)[:MOST_PROPOSALS]
        fields.append(FilterField(name, name.capitalize(), query.text(name), "e.g. gpu-*, a,b", proposals=proposals))
    fields.append(FilterField(OLDER_THAN.name, "Older than", query.text(OLDER_THAN.name), "e.g. 15m, 1h30m"))

    def make() -> Page:
        found = _chosen(kind, query, seen)

        def table(first: int, end: int) -> Table:
            return kind.table(found[first:end], snapshot)

        link = partial(kind.link, links)
        page = _list(query, kind.subject, len(found), table, fields, list(kind.orders), "id", links, link)
        first, end = page.values["list"]["first"], page.values["list"]["end"]
        content = kind.content(found[first:end], seen)
        return replace(page, content=None if content is None else (content, len(found), snapshot.complete))

    return _kept_fields(query, kind.subject, fields, make)


def _chosen(kind: RecordList, query: Query, seen: Observed) -> list[Any]:
    """The records that an address chooses, in its order."""
    wanted = query.filter(kind.state)
    key, descending = query.order(kind.orders, "id")
    found = list(kind.records(seen))
    if not wanted.everything:
        found = [record for record in found if kind.wanted(wanted, record, seen.now)]
    if key != "id":
        pairs = [(kind.orders[key](record), record) for record in found]
        there = sorted((pair for pair in pairs if pair[0] is not None), key=itemgetter(0), reverse=descending)
        return [record for _, record in (*there, *(pair for pair in pairs if pair[0] is None))]
    return found[::-1] if descending else found


def _list(
    query: Query,
    subject: ListSubject,
    total: int,
    make_table: Callable[[int, int], Table],
    fields: Sequence[FilterField],
    sorts: Sequence[str],
    default: str,
    links: Links,
    id_link: Link | None = None,
) -> Page:
    """A page with a part of a list.

    :param total: rows of the list. ``make_table``: makes those from a number to before another, counted from 0.
    :param sorts: keys of the columns by which it can be sorted.
    :param default: key that it is sorted by if none is asked for; empty = it has an order of its own.
    """
    last = max(1, math.ceil(total / query.limit))
    page = min(query.number("page", 1, 10**9), last)
    first, end = (page - 1) * query.limit, min(page * query.limit, total)
    key, descending = query.order(["", *sorts], default)
    given: dict[str, str | int | None] = {name: value for name, value in query.given.items() if name != "page"}

    def link(**changes: str | int | None) -> str:
        """The same list with other parameters; the first page of it unless ``page`` is among them."""
        return address(**{**given, **changes}) or "?"

    def head(column: Column) -> tuple[str | None, str]:
        if column.key not in sorts:
            return None, ""
        if column.key != key:
            return link(sort=column.key), ""
        other = column.key if descending else f"-{column.key}"
        return link(sort=other), "descending" if descending else "ascending"

    values = {
        "fields": fields,
        "hidden": {name: query.text(name) for name in ("limit", "ended") if query.text(name)},
        "sorts": list(dict.fromkeys([query.text("sort"), *sorts])),
        "chosen": sum(bool(field.value) for field in fields),
        "all": link(**dict.fromkeys((field.name for field in fields), None)),
        "first": first,
        "end": end,
        "total": total,
        "previous": link(page=page - 1) if page > 1 else None,
        "next": link(page=page + 1) if page < last else None,
        "empty": subject.empty,
        # Made when it is shown: of a page that has not changed it is not.
        "view": lambda: table_view(subject.title, make_table(first, end), links, head, id=id_link),
    }
    return Page(subject.title, {"list": values}, subject.kinds)


# `Query`: what the address of a list asks for.

#: Rows of an answer, if no other number is asked for, and at most.
ROWS: Final = 100
MOST_ROWS: Final = 1000
#: Longest query, longest value of a parameter but a cursor, and most names in one.
MAX_QUERY: Final = 8000
MAX_VALUE: Final = 500
MAX_NAMES: Final = 50
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?")


@dataclass(frozen=True, eq=False)
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
SORT: Final = Parameter("sort", "Key of a field to sort by; with `-` before it in descending order.")
_LIMITS: Final = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": ROWS}
LIMIT: Final = Parameter("limit", "At most so many items.", _LIMITS)
FIELDS: Final = Parameter("fields", "Only these fields of each item, divided by commas.")
NODE_STATE: Final = state((*states.NODE_STATES, ALLOCATED))
REQUEST_STATE: Final = state(states.REQUEST_STATES)


@dataclass(frozen=True)
class Query:
    """A parsed query. Methods raise WebProblem: a value cannot be understood.

    :param given: parameters that are not empty.
    :param path: names and ids in the path.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A parameter; empty = it is not given."""
        return self.given.get(name, "")

    def names(self, parameter: Parameter) -> list[str]:
        """Names or patterns, divided by commas; empty = not given."""
        text = self.text(parameter.name)
        try:
            names = states_in(text, parameter.values) if parameter.values else names_in(text)
        except ValueError as error:
            raise wrong(parameter.name, error) from None
        if len(names) > MAX_NAMES:
            raise wrong(parameter.name, f"more than {MAX_NAMES} names")
        return names

    def filter(self, states: Parameter) -> Filter:
        """Of nodes or requests, as the commands have it."""
        age = self.duration(OLDER_THAN.name) if self.text(OLDER_THAN.name) else None
        label, provider, pool, tenant = (self.names(one) for one in (LABEL, PROVIDER, POOL, TENANT))
        return Filter(self.names(states), label, provider, pool, tenant, age)

    def duration(self, name: str) -> float:
        """A duration that is given, in seconds."""
        try:
            return duration(self.text(name))
        except ValueError as error:
            raise wrong(name, error) from None

    def since(self, now: float) -> float:
        """The moment of ``since``, in seconds since the epoch; 0 = it is not given."""
        text = self.given.get(SINCE.name, "0")
        return float(text) if _NUMBER.fullmatch(text) else now - self.duration(SINCE.name)

    def number(self, name: str, default: int, most: int) -> int:
        """A number from 1."""
        text = self.given.get(name, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) < 12 and 1 <= int(text) <= most):
            raise wrong(name, f"{text!r} is no number from 1 to {most}")
        return int(text)

    @property
    def limit(self) -> int:
        """Rows."""
        return self.number(LIMIT.name, ROWS, MOST_ROWS)

    @property
    def fields(self) -> list[str]:
        """Keys, each once; empty = all."""
        return list(dict.fromkeys(names_in(self.text(FIELDS.name))))

    def order(self, keys: Iterable[str], default: str) -> tuple[str, bool]:
        """Key of the field to sort by, and whether the order is descending.

        :param keys: those that there are.
        :param default: if none is asked for, as in the parameter.
        """
        asked = self.text(SORT.name) or default
        key = asked.removeprefix("-")
        if key not in keys:
            there_are = f"there are: {', '.join(keys)}"
            raise WebProblem(400, f"This list cannot be sorted by {key!r}{did_you_mean(key, keys)}; {there_are}.")
        return key, asked.startswith("-")


def parse(query: bytes, path: Mapping[str, str], allowed: Sequence[Parameter] | None = None) -> Query:
    """Read the query of a request.

    :param allowed: the only parameters, each once; None = others, and earlier ones of a name, are of no account.
    :raises WebProblem: a parameter is not allowed, there twice, or too long.
    """
    if len(query) > MAX_QUERY:
        raise WebProblem(400, f"The query is longer than {MAX_QUERY} characters.")
    longest = {parameter.name: parameter.schema.get("maxLength", MAX_VALUE) for parameter in allowed or ()}
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if allowed is not None and name not in longest:
            there_are = f"there are: {', '.join(longest)}" if longest else "there is none"
            raise WebProblem(400, f"There is no parameter {name[:MAX_VALUE]!r} here; {there_are}.")
        if allowed is not None and name in given:
            raise wrong(name, "it is there twice; several values are divided by commas")
        if len(value) > longest.get(name, MAX_VALUE):
            raise wrong(name[:MAX_VALUE], f"it is longer than {longest.get(name, MAX_VALUE)} characters")
        given[name] = value.strip()
    return Query({name: value for name, value in given.items() if value}, path)


def wrong(name: str, why: object) -> WebProblem:
    return WebProblem(400, f"The parameter {name!r} cannot be understood: {why}.", field=name)
