# SPDX-License-Identifier: Apache-2.0
"""`Frame`: makes answers of pages. A page can ask for its live part alone; see ``static/live.js`` and WP-41."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodepool.clock import monotonic
from nodepool.listing.times import date_and_time
from nodepool.web.logins import user_of
from nodepool.web.own_address import place_of, root_of
from nodepool.web.pages.kept_answers import KeptAnswers
from nodepool.web.pages.templates import Templates

if TYPE_CHECKING:
    from nodepool.web.changed_records import RecordKind
    from nodepool.web.site import Site
    from nodepool.web.snapshot import WebSnapshot
    from nodepool.web.static_files import StaticFiles

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


#: Makes a page; raises PageError. It runs in a thread and must not do I/O.
MakePage = Callable[[Request, "WebSnapshot"], Page]


class Frame:
    """Makes routes of pages. The constructor blocks for the file system."""

    def __init__(self, site: Site, files: StaticFiles) -> None:
        self._site = site
        self._kept = KeptAnswers(monotonic)
        self._templates = Templates(files, site.version)

    def route(self, path: str, make: MakePage) -> Route:
        """The route of a page; ``path`` as in starlette."""

        async def answer(request: Request) -> Response:
            # Without a thread: with many viewers nearly all answers are such.
            kept = self._kept_part(request)
            return await run_in_threadpool(self._answer, request, make) if kept is None else _response(kept, 200)

        return Route(path, answer)

    def _kept_part(self, request: Request) -> bytes | None:
        """A live part that was made for somebody else just now. Does not block."""
        number = self._site.snapshots.current() if _is_part(request) else None
        return None if number is None else self._kept.get(_key(request), number)

    def _answer(self, request: Request, make: MakePage) -> Response:
        snapshot = self._site.snapshots.latest()
        part = _is_part(request)
        key = _key(request)
        # Only parts: all viewers of a page ask for them at the same time.
        content = self._kept.get(key, snapshot.number) if part else None
        status = 200
        if content is None:
            try:
                page = make(request, snapshot)
            except PageError as problem:
                status = problem.status
                title = "Not found" if status == 404 else "Not understood"
                page = Page("error.html", title, {"text": str(problem)}, problem.kinds)
            content = self._render(page, request, snapshot, part=part)
            if part and status == 200 and not page.personal:
                self._kept.put(key, snapshot.number, content)
        return _response(content, status)

    def page(self, request: Request, page: Page, status: int) -> Response:
        """The answer with a page that is not the same for everybody. Does not block."""
        content = self._render(page, request, self._site.snapshots.latest(), part=False)
        return Response(content, status, {"Cache-Control": "no-store"}, "text/html; charset=utf-8")

    def _render(self, page: Page, request: Request, snapshot: WebSnapshot, *, part: bool) -> bytes:
        triggers = [f"changed-{kind} from:body throttle:1s" for kind in page.kinds]
        return self._templates.render(
            page.template,
            **page.values,
            frame="part.html" if part else "base.html",
            title=page.title,
            root=root_of(request),
            here=request.url.path.strip("/").partition("/")[0],
            again=f"?{request.url.query}",
            trigger=", ".join([*triggers, "changed-all from:body", "every 30s"]),
            snapshot_number=snapshot.number,
            complete=snapshot.complete,
            shown_at=date_and_time(snapshot.observed.now),
            navigation=NAVIGATION,
            user=user_of(request),
            logins=self._site.access is not None,
            actions=page.actions,
            back=place_of(request),
        )


def _is_part(request: Request) -> bool:
    """Is only the live part of the page wanted?"""
    return request.headers.get("hx-request") == "true"


def _key(request: Request) -> str:
    """What a part that is kept was asked for."""
    return f"{root_of(request)} {place_of(request)}"


def _response(content: bytes, status: int) -> Response:
    headers = {"Cache-Control": "no-cache", "Vary": "HX-Request"}
    return Response(content, status, headers, "text/html; charset=utf-8")
