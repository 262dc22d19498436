# SPDX-License-Identifier: Apache-2.0
"""Who may do what (rules WP-84 to WP-92): tokens in headers and cookies, origins, and logins that are required."""

from __future__ import annotations

import logging
from typing import Any, cast
from urllib.parse import urljoin

import pytest
from starlette.testclient import TestClient

from nodepool.web.app import make_app
from nodepool.web.changes import Access, Actions
from nodepool.web.logins import COOKIE
from nodepool.web.pages.frame import NAVIGATION
from nodepool.web.site import Site
from nodepool.web.tokens import Tokens
from tests.support.web_records import full
from tests.support.web_site import WebSite
from tests.support.web_tokens import authenticator, operator_rule, token, viewer_token

PART = {"HX-Request": "true"}
#: Pages with buttons for operators are among them.
PAGES = (*(path for path, _ in NAVIGATION), "nodes/0000000001", "providers/cloud-1", "requests/200-0000000001")
HOLD = "/api/v1/nodes/0000000001/hold"
ORIGIN = {"Origin": "http://nodepool.example:8005"}


class NotedActions:
    """What was asked for."""

    def __init__(self) -> None:
        self.held: list[tuple[str, str, str]] = []
        self.deleted: list[str] = []

    def hold(self, node_id: str, wish: Any, *, when_free: bool) -> bool:
        self.held.append((node_id, wish.operator, wish.reason))
        return not when_free

    def delete(self, node_id: str, _wish: Any, *, when_free: bool) -> bool:
        self.deleted.append(node_id)
        return not when_free


class GuardedSite(WebSite):
    """With one authenticator."""

    def __init__(self, *, require_login: bool = False, origins: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.actions = NotedActions()
        access = Access(
            Tokens([authenticator()], [operator_rule()]), cast("Actions", self.actions), require_login, origins
        )
        self.site = Site(self.daemon, self.snapshots, "1.2.3", access=access)
        self.client = TestClient(make_app(self.site), base_url="http://nodepool.example:8005", follow_redirects=False)

    def hold(self, **headers: str) -> int:
        """Status of an attempt to hold a node."""
        return self.client.post(HOLD, json={"reason": "why"}, headers=headers).status_code

    def log_in(self, of: str) -> None:
        """As the form of the page does."""
        answer = self.client.post("/login", data={"token": of, "next": "nodes"}, headers=ORIGIN)
        assert (answer.status_code, answer.headers["location"]) == (303, "./nodes")


def bearer(of: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {of}"}


def test_without_authenticators_nothing_can_be_changed() -> None:
    """WP-91: there are no such addresses."""
    client = WebSite().client
    assert client.post(HOLD, json={"reason": "why"}, headers=bearer(token())).status_code in (404, 405)
    assert client.get("/login").status_code == 404


def test_operator_with_a_token() -> None:
    """WP-84: without a cookie, the origin is of no account."""
    site = GuardedSite()
    assert site.hold(**bearer(token())) == 200
    assert site.hold(**bearer(token()), Origin="http://evil.example") == 200
    assert site.actions.held[0] == ("0000000001", "alice (web)", "why")


def test_others() -> None:
    """WP-84: 401 asks for a token, 403 says that this one is not enough."""
    site = GuardedSite()
    answer = site.client.post(HOLD, json={"reason": "why"}, headers=ORIGIN)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    refused = site.client.post(HOLD, json={"reason": "why"}, headers=bearer("x.y.z"))
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
    viewer = site.client.post(HOLD, json={"reason": "why"}, headers=bearer(viewer_token()))
    assert viewer.status_code == 403
    assert "webapp.auth.operators" in viewer.json()["detail"]
    assert site.actions.held == []


def test_session(caplog: pytest.LogCaptureFixture) -> None:
    """WP-85: the token goes into a cookie that scripts cannot read, and is never logged."""
    site, secret = GuardedSite(), token()
    with caplog.at_level(logging.DEBUG):
        answer = site.client.post("/login", data={"token": secret, "next": "nodes"}, headers=ORIGIN)
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=lax" in cookie.lower()
        assert site.hold(**ORIGIN) == 200
        assert "alice (operator)" in site.client.get("/nodes").text
    assert "Login of alice (operator)" in caplog.text
    assert secret not in caplog.text
    assert site.client.post("/logout", headers=ORIGIN).status_code == 303
    assert COOKIE not in site.client.cookies
    assert site.hold(**ORIGIN) == 401


def test_secure_cookie() -> None:
    """WP-85: with HTTPS, also before a proxy, it is never sent without."""
    site = GuardedSite(origins=("https://nodepool.example",))
    answer = site.client.post("/login", data={"token": token()}, headers={"Origin": "https://nodepool.example"})
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("of", ["nonsense", "", "<script>alert(1)</script>"])
def test_login_is_refused(of: str) -> None:
    site = GuardedSite()
    answer = site.client.post("/login", data={"token": of}, headers=ORIGIN)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "\\\\evil.example", "/\\evil.example"])
def test_login_leads_to_no_other_site(target: str) -> None:
    """WP-86"""
    answer = GuardedSite().client.post("/login", data={"token": token(), "next": target}, headers=ORIGIN)
    page = urljoin("http://nodepool.example:8005/login", answer.headers["location"])
    assert page.startswith("http://nodepool.example:8005/")
    assert "//" not in page.removeprefix("http://")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "null", "Host": ""},
        {"Origin": "http://["},
        {},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://nodepool.example:8005"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_page_of_another_site(headers: dict[str, str]) -> None:
    """WP-87: it cannot use the session of an operator; nor log somebody in or out."""
    site = GuardedSite()
    site.log_in(token())
    assert site.hold(**headers) == 403
    assert site.client.post("/logout", headers=headers).status_code == 403
    assert site.actions.held == []


def test_behind_a_proxy() -> None:
    """WP-87: webapp.origins names what browsers see."""
    site = GuardedSite(origins=("https://nodepool.example/",))
    site.log_in(token())
    assert site.hold(Origin="https://nodepool.example") == 200


def test_expired_session() -> None:
    """WP-90: one who looks at an open site goes on; changes ask for a token."""
    site = GuardedSite()
    site.client.cookies.set(COOKIE, token(exp=1))
    assert site.client.get("/nodes").status_code == 200
    assert site.hold(**ORIGIN) == 401


def test_login_is_required() -> None:
    """WP-88: browsers get the form, programs 401; what load balancers ask for is open."""
    site = GuardedSite(require_login=True)
    page = site.client.get("/nodes?state=hold", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "./login?next=nodes%3Fstate%3Dhold")
    for path in ("/node-list", "/api/v1/events/stream", "/metrics"):
        assert site.client.get(path).status_code == 401
    for path in ("/health/live", "/health/ready", "/ready", "/login"):
        assert site.client.get(path).status_code == 200
    site.log_in(viewer_token())
    assert site.client.get("/nodes").status_code == 200
    released = site.client.get("/node-list").headers
    assert (released["cache-control"], released["vary"]) == ("max-age=1, private", "Authorization, Cookie")


def test_page_of_a_user_is_not_kept_for_others() -> None:
    """WP-89: not even its live part."""
    site = GuardedSite()
    site.log_in(token())
    assert "alice" in site.client.get("/login", headers={"HX-Request": "true"}).text
    site.client.cookies.clear()
    assert "alice" not in site.client.get("/login", headers={"HX-Request": "true"}).text


def test_viewers_get_no_buttons() -> None:
    """WP-89"""
    site = GuardedSite()
    site.log_in(viewer_token())
    assert "bob (viewer)" in site.client.get("/").text
    assert 'class="action"' not in site.client.get("/").text


def test_parts_that_are_kept_tell_nothing_of_a_login() -> None:
    """WP-89: live parts are made once for all viewers, so that none may have what one of them sees by a login."""
    site = GuardedSite()
    site.snapshots.snapshot = full()
    for path in PAGES:
        operator = site.client.get(f"/{path}", headers={**PART, **bearer(token())})
        assert operator.status_code == 200
        # Whoever comes next gets what was kept; what nobody kept says the same.
        for headers in (PART, {**PART, **bearer(viewer_token())}):
            assert site.client.get(f"/{path}", headers=headers).content == operator.content
        fresh = GuardedSite()
        fresh.snapshots.snapshot = site.snapshots.snapshot
        assert fresh.client.get(f"/{path}", headers=PART).content == operator.content
        assert b"<form" not in operator.content


def test_parts_that_are_kept_need_the_login() -> None:
    """WP-88: what was made for somebody with a login is given to nobody without one."""
    site = GuardedSite(require_login=True)
    site.snapshots.snapshot = full()
    for path in PAGES:
        assert site.client.get(f"/{path}", headers={**PART, **bearer(token())}).status_code == 200
        refused = site.client.get(f"/{path}", headers=PART)
        assert (refused.status_code, b'id="live"' in refused.content) == (401, False)


def test_refusals_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """WP-66: whoever sends tokens that are none."""
    site = GuardedSite()
    with caplog.at_level(logging.INFO, "nodepool.web.auth"):
        for number in range(50):
            assert site.client.get("/nodes", headers=bearer(f"none{number}")).status_code == 401
    assert 1 <= len(caplog.records) <= 30
