# SPDX-License-Identifier: Apache-2.0
"""A web application with what a test puts into it, behind a port of this host: for browsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from nodepool.web.server import MOST_OF_PAGES, ListenAddress, WebServer
from tests.support.ports import free_ports
from tests.support.web_site import WebSite

if TYPE_CHECKING:
    from nodepool.web.snapshot import RecordKind, WebSnapshot

SECONDS: Final = 30.0


class ServedSite:
    """`WebSite` with a server. It may stop and start again: its address stays.

    :param snapshot: what it shows.
    :param settings: further arguments of `nodepool.web.app.make_app`.
    """

    def __init__(self, snapshot: WebSnapshot, **settings: Any) -> None:
        self._site = WebSite(snapshot, **settings)
        self._port = free_ports(1)[0]
        self._server: WebServer | None = None

    @property
    def url(self) -> str:
        """Without a slash at the end."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it listens."""
        self._server = WebServer(ListenAddress("127.0.0.1", self._port), self._site.make_app, MOST_OF_PAGES)
        self._server.start()
        assert self._server.listening.wait(SECONDS)

    def stop(self) -> None:
        """Returns when the thread has ended. It may have been stopped before."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
            server.join(SECONDS)
            assert not server.is_alive()

    def show(self, snapshot: WebSnapshot, kind: RecordKind, *ids: str) -> None:
        """Show something else from now on, and tell the viewers which records of a kind have changed."""
        self._site.snapshots.snapshot = snapshot
        self._site.snapshots.changed = {kind: frozenset(ids)}
