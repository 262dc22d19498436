# SPDX-License-Identifier: Apache-2.0
"""`Frame`: makes answers of pages. A page can ask for its live part alone; see ``static/live.js`` and WP-41."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodepool.listing.times import date_and_time
from nodepool.web.logins import user_of
from nodepool.web.own_address import place_of, root_of
from nodepool.web.pages.kept_answers import KeptAnswers
from nodepool.web.pages.kept_parts import HEADERS, key_of
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
    :param may_wait: there is a mark for "when the lock of the node is free".
    :param sure: what must be confirmed by a mark before it is done; empty = nothing.
    """

    name: str
    target: str
    mode: str = ""
    needs_reason: bool = True
    may_end: bool = False
    subject: str = ""
    sure: str = ""
    may_wait: bool = False


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
    """Makes routes of pages. The constructor blocks for the file system.

    :param kept: where parts are put that are the same for everybody, see `nodepool.web.pages.kept_parts`.
    """

    def __init__(self, site: Site, files: StaticFiles, kept: KeptAnswers) -> None:
        self._site = site
        self._kept = kept
        #: Held while a part is made, so that those who ask for the same meanwhile get that one.
        self._making = threading.Lock()
        self._templates = Templates(files, site.version)

    def route(self, path: str, make: MakePage) -> Route:
        """The route of a page; ``path`` as in starlette."""

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(self._part if _is_part(request) else self._whole, request, make)

        return Route(path, answer)

    def _part(self, request: Request, make: MakePage) -> Response:
        """The live part alone. All viewers of a page ask for it at the same time: it is made for one of them."""
        key = key_of(request.scope)
        with self._making:
            snapshot = self._site.snapshots.latest()
            content = self._kept.get(key, snapshot.number)
            if content is not None:
                return _response(content, 200)
            page, status = _made(request, snapshot, make)
            content = self._render(page, request, snapshot, part=True)
            if status == 200 and not page.personal:
                self._kept.put(key, snapshot.number, content)
        return _response(content, status)

    def _whole(self, request: Request, make: MakePage) -> Response:
        snapshot = self._site.snapshots.latest()
        page, status = _made(request, snapshot, make)
        return _response(self._render(page, request, snapshot, part=False), status)

    def page(self, request: Request, page: Page, status: int) -> Response:
        """The answer with a page that is not the same for everybody. Does not block."""
        content = self._render(page, request, self._site.snapshots.latest(), part=False)
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
            logins=self._site.access is not None,
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
