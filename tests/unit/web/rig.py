# SPDX-License-Identifier: Apache-2.0
"""What tests of the web application share: a server thread, and a site that operators can log in to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import MagicMock

import pytest

from nodepool.plan.observed import Observed
from nodepool.web.changes import Access, Actions, Fields, Wish
from nodepool.web.logins import Tokens
from nodepool.web.server import ListenAddress, WebServer
from nodepool.web.snapshot import SnapshotMaker, WebSnapshot
from tests.support.web_site import GivenSnapshots, WebSite
from tests.support.web_tokens import authenticator, operator_rule

SECONDS: Final = 45.0
#: What a page sends that asks for its live part alone.
PART: Final = {"HX-Request": "true"}
HOLD: Final = "/api/v1/nodes/0000000001/hold"
BASE: Final = "http://nodepool.example:8005"
ORIGIN: Final = {"Origin": BASE}


def set_constants(monkeypatch: pytest.MonkeyPatch, user: Any, **values: Any) -> None:
    """Other limits and times for who uses them: constants of a module are no arguments."""
    for name, value in values.items():
        monkeypatch.setattr(sys.modules[user.__module__], name, value)


@contextmanager
def serving(make: Callable[[], Any] | WebSite | None = None) -> Iterator[WebServer]:
    """A thread that serves; at the end it is stopped, and has ended."""
    site = make or WebSite()
    thread = WebServer(ListenAddress("127.0.0.1", 0), site.make_app if isinstance(site, WebSite) else site, 100)
    thread.start()
    try:
        assert thread.listening.wait(SECONDS)
        yield thread
    finally:
        thread.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()


class NotedActions(Actions):
    """What was asked for of nodes; all else goes to a ZooKeeper that takes everything."""

    def __init__(self, snapshots: SnapshotMaker) -> None:
        super().__init__(MagicMock(), snapshots)
        self.held: list[tuple[str, str, str]] = []
        self.deleted: list[str] = []

    def hold(self, path: Fields, _body: Fields, wish: Wish) -> Fields:
        self.held.append((path["id"], wish.operator, wish.reason))
        return {"id": path["id"], "state": "hold"}

    def delete(self, path: Fields, _body: Fields, _wish: Wish) -> Fields:
        self.deleted.append(path["id"])
        return {"id": path["id"], "state": "deleting"}


class GuardedSite(WebSite):
    """A site with logins: of one authenticator, or as ``access`` says."""

    def __init__(self, snapshot: WebSnapshot | None = None, access: Access | None = None, **more: Any) -> None:
        snapshot = snapshot or WebSnapshot(0, Observed(1_000.0))
        self.actions = NotedActions(GivenSnapshots(snapshot))
        tokens = Tokens([authenticator()], [operator_rule()])
        self.access = access or Access(tokens, self.actions, **more)
        super().__init__(snapshot, access=self.access)

    def hold(self, **headers: str) -> int:
        """Status of an attempt to hold a node."""
        return self.client.post(HOLD, json={"reason": "why"}, headers=headers).status_code

    def log_in(self, of: str) -> None:
        """As the form of the page does."""
        answer = self.client.post("/login", data={"token": of, "next": "nodes"}, headers=ORIGIN)
        assert (answer.status_code, answer.headers["location"]) == (303, "./nodes")


def bearer(of: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {of}"}
