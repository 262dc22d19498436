# SPDX-License-Identifier: Apache-2.0
"""Who may do what (WP-84 to WP-92), what a change must say (WP-92 to WP-95), and which buttons there are."""

from __future__ import annotations

import html
import logging
import re
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

import pytest

from nodepool.listing.overview import explanation_text
from nodepool.plan.explain import explain
from nodepool.web.changes import MOST_SUBJECTS, of_subject, of_subjects
from nodepool.web.frame import NAVIGATION
from nodepool.web.logins import COOKIE
from tests.support.tables import rows
from tests.support.web_records import HOSTILE, full
from tests.support.web_site import WebSite
from tests.support.web_tokens import token, viewer_token
from tests.unit.web.rig import BASE, HOLD, ORIGIN, PART, GuardedSite, bearer

#: Pages with buttons for operators are among them.
PAGES = (*(path for path, _ in NAVIGATION), "nodes/0000000001", "providers/cloud-1", "requests/200-0000000001")


@pytest.fixture
def site() -> GuardedSite:
    return GuardedSite()


def test_without_authenticators_nothing_can_be_changed() -> None:
    """WP-91: there are no such addresses."""
    client = WebSite().client
    assert client.post(HOLD, json={"reason": "why"}, headers=bearer(token())).status_code in (404, 405)
    assert client.get("/login").status_code == 404


def test_tokens_in_headers(site: GuardedSite) -> None:
    """WP-84: 401 asks for a token, 403 says that this one is not enough. Without a cookie any origin will do."""
    answer = site.client.post(HOLD, json={"reason": "why"}, headers=ORIGIN)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    refused = site.client.post(HOLD, json={"reason": "why"}, headers=bearer("x.y.z"))
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
    viewer = site.client.post(HOLD, json={"reason": "why"}, headers=bearer(viewer_token()))
    assert viewer.status_code == 403
    assert "webapp.auth.operators" in viewer.json()["detail"]
    assert site.actions.held == []
    assert (site.hold(**bearer(token())), site.hold(**bearer(token()), Origin="http://evil.example")) == (200, 200)
    assert site.actions.held == [("0000000001", "alice (web)", "why")] * 2


def test_session(site: GuardedSite, caplog: pytest.LogCaptureFixture) -> None:
    """WP-85: the token goes into a cookie that scripts cannot read, and is never logged; WP-90: it ends."""
    secret = token()
    with caplog.at_level(logging.DEBUG):
        answer = site.client.post("/login", data={"token": secret, "next": "nodes"}, headers=ORIGIN)
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=lax" in cookie.lower()
        assert "Secure" not in cookie
        assert site.hold(**ORIGIN) == 200
        assert "alice</span> <small>(operator)" in site.client.get("/nodes").text
    assert "Login of alice (operator)" in caplog.text
    assert secret not in caplog.text
    assert site.client.post("/logout", headers=ORIGIN).status_code == 303
    assert COOKIE not in site.client.cookies
    assert site.hold(**ORIGIN) == 401
    site.client.cookies.set(COOKIE, token(exp=1))
    assert (site.client.get("/nodes").status_code, site.hold(**ORIGIN)) == (200, 401)


def test_behind_a_proxy() -> None:
    """WP-85, WP-87: webapp.origins names what browsers see; with HTTPS there the cookie is never sent without."""
    site = GuardedSite(origins=("https://nodepool.example/",))
    https = {"Origin": "https://nodepool.example"}
    assert "Secure" in site.client.post("/login", data={"token": token()}, headers=https).headers["set-cookie"]
    site.log_in(token())
    assert site.hold(**https) == 200


@pytest.mark.parametrize("of", ["nonsense", "", "<script>alert(1)</script>"])
def test_login_is_refused(site: GuardedSite, of: str) -> None:
    """WP-85"""
    answer = site.client.post("/login", data={"token": of}, headers=ORIGIN)
    assert (answer.status_code, "set-cookie" in answer.headers, "<script>alert" in answer.text) == (403, False, False)


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "\\\\evil.example", "/\\evil.example"])
def test_login_leads_to_no_other_site(site: GuardedSite, target: str) -> None:
    """WP-86"""
    answer = site.client.post("/login", data={"token": token(), "next": target}, headers=ORIGIN)
    page = urljoin(f"{BASE}/login", answer.headers["location"])
    assert page.startswith(f"{BASE}/")
    assert "//" not in page.removeprefix("http://")


@rows(__file__, "test_page_of_another_site")
def test_page_of_another_site(site: GuardedSite, headers: dict[str, str]) -> None:
    """WP-87: it cannot use the session of an operator; nor log anybody in or out."""
    site.log_in(token())
    assert site.hold(**headers) == 403
    assert site.client.post("/logout", headers=headers).status_code == 403
    assert site.actions.held == []


def test_login_is_required() -> None:
    """WP-88: browsers get the form, programs 401; what load balancers ask for is open."""
    site = GuardedSite(full(), require_login=True)
    page = site.client.get("/nodes?state=hold", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "./login?next=nodes%3Fstate%3Dhold")
    for path in ("/node-list", "/api/v1/events/stream", "/metrics"):
        assert site.client.get(path).status_code == 401
    for path in ("/health/live", "/health/ready", "/ready", "/login"):
        assert site.client.get(path).status_code == 200
    for path in PAGES:
        # A part that was made for a user with a login is kept, and not given to others.
        assert site.client.get(f"/{path}", headers={**PART, **bearer(token())}).status_code == 200
        refused = site.client.get(f"/{path}", headers=PART)
        assert (refused.status_code, b'id="live"' in refused.content) == (401, False)
    site.log_in(viewer_token())
    assert site.client.get("/nodes").status_code == 200
    released = site.client.get("/node-list").headers
    assert (released["cache-control"], released["vary"]) == ("max-age=1, private", "Authorization, Cookie")


def test_what_is_kept_has_nothing_of_a_login(site: GuardedSite) -> None:
    """WP-89: live parts are made once for all viewers; pages of users are not kept for others."""
    site.snapshots.snapshot = full()
    for path in PAGES:
        operator = site.client.get(f"/{path}", headers={**PART, **bearer(token())})
        assert operator.status_code == 200
        # The next one gets what was kept; a part that was not kept is the same.
        for headers in (PART, {**PART, **bearer(viewer_token())}):
            assert site.client.get(f"/{path}", headers=headers).content == operator.content
        assert GuardedSite(full()).client.get(f"/{path}", headers=PART).content == operator.content
        assert b"<form" not in operator.content
    site.log_in(viewer_token())
    page = site.client.get("/").text
    assert ("bob</span> <small>(viewer)" in page, 'class="action"' in page) == (True, False)
    assert "bob" in site.client.get("/login", headers=PART).text
    site.client.cookies.clear()
    assert "bob" not in site.client.get("/login", headers=PART).text


@rows(__file__, "test_change_that_is_refused")
def test_change_that_is_refused(site: GuardedSite, sent: dict[str, Any], status: int, words: str) -> None:
    """WP-92: with what is allowed; nothing was done."""
    answer = site.client.post(HOLD, **{**sent, "headers": {**bearer(token()), **sent.get("headers", {})}})
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert site.actions.held == []


@pytest.mark.parametrize(
    ("content", "status"), [(b"[" * 60_000, 400), (b"x" * 100_000, 413), (b'{"reason": "%s"}' % (b"x" * 1000), 400)]
)
def test_body_that_is_too_much(site: GuardedSite, content: bytes, status: int) -> None:
    """WP-92"""
    assert site.client.post(HOLD, content=content, headers=bearer(token())).status_code == status


@rows(__file__, "test_unknown")
def test_unknown(site: GuardedSite, method: str, path: str) -> None:
    """WP-93"""
    answer = site.client.request(method, path, json={"reason": "r"}, headers=bearer(token()))
    assert answer.status_code in (404, 405) if method == "PUT" else answer.status_code == 404
    assert site.actions.held == []


def test_forms(site: GuardedSite) -> None:
    """WP-94: a page sends the same fields, with where to go then, never to another site; WP-92: texts are one line."""
    for back, location in (("nodes/1?x=y", "nodes/1?x=y"), ("//evil.example", "evil.example")):
        answer = site.client.post(HOLD, data={"reason": "a\nb\x1b[31m  c", "back": back}, headers=bearer(token()))
        assert (answer.status_code, answer.headers["location"]) == (303, f"../../../../{location}")
    assert site.actions.held[0][2] == "a b [31m c"


@rows(__file__, "test_form_that_is_refused")
def test_form_that_is_refused(path: str, sent: dict[str, str], status: int, words: str, wrong: str) -> None:
    """WP-106: a browser gets the form again, as a page or in place of it, with what was typed and the wrong field."""
    site = GuardedSite(full())
    site.log_in(token())
    address, form, browser = f"/api/v1/{path}", {**sent, "back": "hosts?q=a/b"}, {**ORIGIN, "Accept": "text/html"}
    page = site.client.post(address, data=form, headers=browser)
    part = site.client.post(address, data=form, headers={**browser, **PART})
    # The part stands on the page of "back".
    for answer, root in ((page, "../" * (address.count("/") - 1)), (part, "./")):
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
        assert words in html.unescape(answer.text)
        marked = re.findall(r'<input[^>]*(name="[^"]*" value="[^"]*")[^>]* aria-invalid="true"', answer.text)
        assert marked == ([wrong] if wrong else [])
        assert (f'<form method="post" action="{root}{address[1:]}" class="action"' in answer.text) == bool(wrong)
        assert (f'name="reason" value="{sent["reason"]}"' in answer.text) == bool(wrong)
    assert f'<a href="{"../" * (address.count("/") - 1)}hosts?q=a/b">Back</a>' in page.text
    assert (site.actions.held, site.actions.deleted) == ([], [])


def test_form_that_is_accepted(site: GuardedSite) -> None:
    """WP-106, WP-86: with JavaScript the page is told where to go: to an address of this site."""
    for back, location in (("nodes/1?x=y", "../nodes/1?x=y"), ("//evil.example", "./evil.example")):
        answer = site.client.post(HOLD, data={"reason": "why", "back": back}, headers={**PART, **bearer(token())})
        assert (answer.status_code, answer.headers["hx-redirect"]) == (200, location)


def test_form_without_a_session(site: GuardedSite) -> None:
    """WP-106: the session has ended, or the form stands on another site: a page says so, or a line in the form."""
    for headers, status in ((ORIGIN, 401), ({"Origin": "http://evil.example"}, 403)):
        accept = {**headers, "Accept": "text/html"}
        page = site.client.post(HOLD, data={"reason": "why"}, headers=accept)
        part = site.client.post(HOLD, data={"reason": "why"}, headers={**accept, **PART})
        assert (page.status_code, part.status_code, "<nav" in page.text) == (status, status, True)
        assert (part.headers["hx-reswap"], part.text[:16]) == ("afterbegin", '<p class="wrong"')
        assert "application/problem+json" in site.client.post(HOLD, json={}, headers=accept).headers["content-type"]


@rows(__file__, "test_confirmation")
def test_confirmation(site: GuardedSite, path: str, sent: dict[str, dict[str, str]], status: int) -> None:
    """WP-98: the server looks, whatever a browser does."""
    ((kind, fields),) = sent.items()
    whole: dict[str, Any] = {kind: {"reason": "why", **fields}}
    answer = site.client.post(f"/api/v1/{path}", **whole, headers=bearer(token()))
    assert answer.status_code == status
    assert len(site.actions.deleted) == (path.endswith("delete") and status != 400)
    assert status != 400 or "Confirm" in answer.text


def targets(path: str, of: str, mark: str = "") -> list[str]:
    """Forms of a page."""
    answer = GuardedSite(full(mark)).client.get(path, headers=bearer(of))
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    return list(dict.fromkeys(re.findall(r'action="[./]*api/v1/([^"]*)"', answer.text)))


@rows(__file__, "test_buttons")
def test_buttons(path: str, expected: list[str]) -> None:
    """WP-97: of what the page shows; none but operators have them (WP-89)."""
    assert targets(path, token()) == expected
    assert targets(path, viewer_token()) == []


SEEN = full().observed


@rows(__file__, "test_modes")
def test_modes(kind: str, names: list[str]) -> None:
    """WP-97, WP-98: what cannot be taken back at once must be confirmed. Each subject has its buttons once."""
    actions = of_subject(kind, "x", SEEN)
    assert [action.name for action in actions] == names
    assert all(bool(action.sure) == (action.name != "Pause") and action.needs_reason for action in actions)
    subjects = [f"l{number}" for number in range(2 * MOST_SUBJECTS)]
    assert len(of_subjects(kind, [*subjects, *subjects], SEEN)) == MOST_SUBJECTS * len(names)
    assert of_subjects(kind, ["l1", "l1"], SEEN) == of_subject(kind, "l1", SEEN)


@pytest.mark.parametrize("number", [1, 99])
def test_consoles(number: int) -> None:
    """WP-89, L-16: operators see the end of a node's console, also of a node that is deleted; no one else does."""
    node, small = f"{number:010}", full()
    statuses = [replace(small.observed.statuses[0], consoles={node: f"Kernel panic {HOSTILE}"})]
    seen = replace(small.observed, statuses=statuses)
    site = GuardedSite(replace(small, observed=seen))
    tags = set()
    for headers, shown in (({}, False), (bearer(viewer_token()), False), (bearer(token()), True)):
        answer = site.client.get(f"/api/v1/nodes/{node}/explain", headers=headers)
        assert ("Kernel panic" in str(answer.json()["console"])) == shown
        tags.add(answer.headers["etag"])
        page = site.client.get(f"/nodes/{node}", headers=headers).text
        # There is no history of a deleted one here.
        assert ("<pre>Kernel panic &lt;script&gt;" in page) == (shown and number == 1)
        assert "Kernel panic" not in site.client.get(f"/nodes/{node}", headers={**headers, **PART}).text
    assert len(tags) == 2
    for address in ("/api/v1/providers", "/api/v1/providers/cloud-1", "/api/v1/pools", "/providers/cloud-1"):
        assert "console" not in site.client.get(address, headers=bearer(token())).text.replace("console-log", "")
    assert "End of its console:\n  Kernel panic" in explanation_text(explain(node, "node", seen), 1.0)
