# SPDX-License-Identifier: Apache-2.0
"""A browser logs in at an OpenID Connect provider (WP-102)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.testclient import TestClient

from nodepool.config.webapp import Authenticator
from nodepool.web import parts
from nodepool.web.app import make_app
from nodepool.web.browser_login import BrowserLogin, LoginFailed, LoginState, is_installed
from nodepool.web.changes import Access, Actions
from nodepool.web.logins import COOKIE
from nodepool.web.pages.all_pages import BEGUN_COOKIE
from nodepool.web.tokens import BadTokenError, Tokens
from tests.support.oidc_provider import CLIENT, OidcProvider
from tests.support.wait import DEADLINE_SECONDS
from tests.support.web_site import WebSite
from tests.support.web_tokens import authenticator, claims, operator_rule, token

BASE = "http://nodepool.example:8005"


class LoginSite(WebSite):
    """Pages where browsers log in at a provider."""

    def __init__(self, provider: OidcProvider, origins: tuple[str, ...] = (), prefix: str = "", **more: Any) -> None:
        super().__init__()
        settings = Authenticator(provider.section(**more))
        tokens = Tokens([settings], [operator_rule()])
        logins = {settings.name: BrowserLogin(settings, tokens)}
        access = Access(tokens, cast("Actions", None), origins=origins, browser_logins=logins)
        self.client = self.serve(access, prefix)

    def serve(self, access: Access, prefix: str) -> TestClient:
        from nodepool.web.site import Site

        app = make_app(Site(self.daemon, self.snapshots, "1.2.3", access=access))
        return TestClient(app, base_url=BASE, follow_redirects=False, root_path=prefix)

    def begin(self, target: str = "nodes") -> str:
        """The address at the provider."""
        answer = self.client.get("/login/at", params={"name": "keycloak", "next": target})
        assert answer.status_code == 303
        return str(answer.headers["location"])

    def log_in(self, target: str = "nodes") -> Any:
        """All of it; the last answer."""
        back = requests.get(self.begin(target), allow_redirects=False, timeout=60).headers["Location"]
        assert back.startswith(f"{BASE}/login/done?")
        return self.client.get(back.removeprefix(BASE))


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with OidcProvider() as made:
        yield made


@pytest.fixture
def site(provider: OidcProvider) -> LoginSite:
    return LoginSite(provider)


def test_login(site: LoginSite, caplog: pytest.LogCaptureFixture) -> None:
    """WP-102, WP-85: the session is that of a token; neither token nor code is logged."""
    assert (
        '<a class="button" href="./login/at?name=keycloak&amp;next=nodes">Log in at keycloak</a>'
        in site.client.get("/login?next=nodes").text
    )
    with caplog.at_level(logging.DEBUG, "nodepool"):
        answer = site.log_in()
    assert (answer.status_code, answer.headers["location"]) == (303, "../nodes")
    cookie = next(one for one in answer.headers.get_list("set-cookie") if one.startswith(COOKIE))
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "alice (operator)" in site.client.get("/nodes").text
    assert BEGUN_COOKIE not in site.client.cookies
    assert "Login of alice (operator)" in caplog.text
    assert site.client.cookies[COOKIE] not in caplog.text


def test_what_the_provider_is_asked(site: LoginSite) -> None:
    """WP-102: PKCE, a state and a nonce that nobody can guess; the address to come back to is ours."""
    asked = [{name: values[0] for name, values in parse_qs(urlsplit(site.begin()).query).items()} for _ in range(2)]
    assert asked[0]["redirect_uri"] == f"{BASE}/login/done"
    assert (asked[0]["client_id"], asked[0]["scope"], asked[0]["response_type"]) == (CLIENT, "openid profile", "code")
    assert asked[0]["code_challenge_method"] == "S256"
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[0][name]) >= 43
        assert asked[0][name] != asked[1][name]


def test_client_with_a_secret() -> None:
    with OidcProvider("s3cret") as provider:
        assert LoginSite(provider).log_in().status_code == 303
        assert LoginSite(provider, client_secret="wrong").log_in().status_code == 403


def test_behind_a_proxy(provider: OidcProvider) -> None:
    """WP-102: the browser comes back to the address that it knows, and the cookies need HTTPS as that does."""
    site = LoginSite(provider, origins=("https://other.example", "https://nodepool.example:8005/"))
    asked = parse_qs(urlsplit(site.begin()).query)
    assert asked["redirect_uri"] == ["https://nodepool.example:8005/login/done"]
    cookie = site.client.get("/login/at?name=keycloak").headers["set-cookie"]
    assert "Secure" in cookie
    assert "Path=/login" in cookie


def test_below_a_prefix(provider: OidcProvider) -> None:
    asked = parse_qs(urlsplit(LoginSite(provider, prefix="/np").begin()).query)
    assert asked["redirect_uri"] == [f"{BASE}/np/login/done"]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (lambda query: query | {"state": "another"}, 403, "does not belong"),
        (lambda query: query | {"code": "another"}, 403, "invalid_grant"),
        (lambda query: query | {"iss": "http://evil.example"}, 403, "another provider"),
        (lambda query: {"state": query["state"]}, 403, "does not belong"),
        (lambda query: {"error": "access_denied", "error_description": "<b>no</b>\n"}, 403, "access_denied &lt;b&gt;"),
    ],
)
def test_refused(site: LoginSite, change: Callable[[dict[str, str]], dict[str, str]], status: int, words: str) -> None:
    """WP-102: an answer that is not to what this browser began."""
    back = requests.get(site.begin(), allow_redirects=False, timeout=60).headers["Location"]
    query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    answer = site.client.get("/login/done", params=change(query))
    assert answer.status_code == status
    assert words in answer.text
    assert COOKIE not in site.client.cookies
    assert BEGUN_COOKIE not in site.client.cookies, "a code is good for one attempt"


def test_another_browser(provider: OidcProvider) -> None:
    """WP-102: who gets somebody to open the address of his own login does not log him in."""
    back = requests.get(LoginSite(provider).begin(), allow_redirects=False, timeout=60).headers["Location"]
    victim = LoginSite(provider)
    answer = victim.client.get(back.removeprefix(BASE))
    assert answer.status_code == 400
    assert "has begun no login" in answer.text
    victim.begin()
    assert victim.client.get(back.removeprefix(BASE)).status_code == 403


def test_token_of_another_login(site: LoginSite, provider: OidcProvider) -> None:
    """WP-102: the nonce."""
    provider.claims = {"nonce": "another"}
    assert "does not belong" in site.log_in().text
    provider.claims = {"nonce": None}
    assert site.log_in().status_code == 403


def test_audience(provider: OidcProvider) -> None:
    """WP-102: with ``audience`` the access token is the session; the id token is verified all the same."""
    site = LoginSite(provider, audience="pages")
    provider.token_answer = {"access_token": provider.signed(claims(iss=provider.issuer, aud="pages"))}
    assert site.log_in().status_code == 303
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    provider.signing_key = other
    answer = site.log_in()
    assert answer.status_code == 403
    assert "the id_token of keycloak is not accepted: Signature" in answer.text


@pytest.mark.parametrize(
    ("answer", "claims", "words"),
    [
        ({"id_token": None}, {}, "no id_token"),
        ({"id_token": "x.y.z"}, {}, "is not accepted"),
        ({"expires_in": [1]}, {}, "gives no token"),
        ({}, {"aud": "somebody"}, "udience"),
        ({}, {"exp": 1}, "expired"),
        ({}, {"groups": ["x" * 100] * 60}, "too long for a cookie"),
    ],
)
def test_bad_tokens(
    site: LoginSite, provider: OidcProvider, answer: dict[str, Any], claims: dict[str, Any], words: str
) -> None:
    """WP-80: they are checked as all are."""
    provider.token_answer, provider.claims = answer, claims
    found = site.log_in()
    assert found.status_code == 403
    assert words in found.text


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({"issuer": "http://evil.example"}, "calls itself"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "must begin with https"),
        ({"authorization_endpoint": "http://keycloak.example/authorize"}, "must begin with https"),
        ({"authorization_endpoint": None}, "no authorization_endpoint"),
    ],
)
def test_bad_configuration(site: LoginSite, provider: OidcProvider, configuration: dict[str, Any], words: str) -> None:
    provider.configuration = configuration
    answer = site.client.get("/login/at?name=keycloak")
    assert answer.status_code == 502
    assert words in answer.text


def test_provider_is_away(provider: OidcProvider) -> None:
    """WP-102: said on the page; the next attempt asks again."""
    site = LoginSite(provider)
    provider.configuration = {"issuer": "x"}
    assert site.client.get("/login/at?name=keycloak").status_code == 502
    provider.configuration = {}
    assert site.log_in().status_code == 303
    login = BrowserLogin(Authenticator(provider.section(issuer_id="http://127.0.0.1:1/x")), cast("Tokens", None))
    with pytest.raises(LoginFailed, match="cannot be reached"):
        login.begin(BASE, "")


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "\\\\evil.example"])
def test_leads_to_no_other_site(site: LoginSite, target: str) -> None:
    """WP-86"""
    assert site.log_in(target).headers["location"].startswith("../")


@pytest.mark.parametrize("text", ["", "e30=", "bm90IGpzb24=", "ä", "W10=", "eyJuYW1lIjoxfQ=="])
def test_cookie_that_is_none(text: str) -> None:
    assert LoginState.of_cookie(text) is None


def test_unknown_provider(site: LoginSite) -> None:
    assert site.client.get("/login/at?name=other").status_code == 404


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """WP-102: tokens are taken all the same; the log says what is missing."""
    assert is_installed()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    settings = Authenticator({"name": "kc", "driver": "OpenIDConnect", "client_id": "c", "issuer_id": "http://kc"})
    config = cast(Any, type("C", (), {"webapp_authenticators": [settings]}))
    with caplog.at_level(logging.INFO):
        assert parts._browser_logins(config, Tokens([settings], [])) == {}
    assert "the extra web-login is not installed" in caplog.text


def test_provider_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-102, WP-83: tokens that need no provider are checked meanwhile, however many others are sent."""
    asked, go_on = threading.Semaphore(0), threading.Event()

    def hang(_issuer: str) -> Any:
        asked.release()
        go_on.wait(DEADLINE_SECONDS)
        raise requests.ConnectionError("hung")

    monkeypatch.setattr("nodepool.web.tokens.discovery", hang)
    provider = Authenticator({"name": "kc", "driver": "OpenIDConnect", "client_id": CLIENT, "issuer_id": "http://kc"})
    access = Access(Tokens([provider, authenticator()], [operator_rule()]), cast("Actions", None))

    async def check() -> str:
        bad = [asyncio.create_task(access.user(token(iss="http://kc"))) for _ in range(5)]
        for _ in range(2):
            await asyncio.to_thread(asked.acquire)
        user = await access.user(token())
        go_on.set()
        assert all(isinstance(one, BadTokenError) for one in await asyncio.gather(*bad, return_exceptions=True))
        return user.name

    assert asyncio.run(check()) == "alice"
