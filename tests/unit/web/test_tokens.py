# SPDX-License-Identifier: Apache-2.0
"""Whose tokens are accepted (WP-80 to WP-84), and how a browser gets one at an OpenID Connect provider (WP-102)."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock
from urllib.parse import parse_qsl, urlsplit

import jwt
import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.testclient import TestClient

from nodepool.config.webapp import Authenticator
from nodepool.web import logins
from nodepool.web.changes import Access, Actions

# What it makes of the configuration is seen only in a daemon with a connection to ZooKeeper.
from nodepool.web.server import browser_logins
from tests.support.oidc_provider import CLIENT, OidcProvider
from tests.support.tables import rows
from tests.support.web_tokens import authenticator, claims, operator_rule, token, viewer_token
from tests.unit.web.rig import BASE, GuardedSite


def tokens(**changes: Any) -> logins.Tokens:
    return logins.Tokens([authenticator(**changes)], [operator_rule()])


def refused(found: logins.Tokens, text: str) -> str:
    with pytest.raises(logins.BadTokenError) as caught:
        found.user(text)
    return str(caught.value)


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return new_key()


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with OidcProvider() as made:
        yield made


def private_pem(key: rsa.RSAPrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


def test_operator_and_viewer() -> None:
    """WP-82: a claim makes an operator; everybody else may look."""
    operator, viewer = tokens().user(token()), tokens().user(viewer_token())
    assert (operator.name, operator.operator, viewer.name, viewer.operator) == ("alice", True, "bob", False)
    assert operator.expires > time.time()
    found = tokens(audience="pages", uid_claim="preferred_username")
    assert found.user(token(aud=["pages", "x"], preferred_username="Al\nice")).name == "Alice"
    both = logins.Tokens([authenticator(secret="b" * 32), authenticator()], [])
    assert (both.user(token()).name, both.user(token()).operator) == ("alice", False), "each of an issuer is tried"


@rows(__file__, "test_refused")
def test_refused(made: dict[str, Any], reason: str) -> None:
    """WP-80: signature, issuer, audience and time must be right; the text says which is not."""
    assert reason in refused(tokens(), token(**made))


def test_no_token() -> None:
    """WP-80: also one that says that it needs no signature, or that has very many levels."""
    unsigned = jwt.encode(claims(), None, "none")  # type: ignore[arg-type]
    deep = ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"HS256"}', b"[" * 9000, b"")
    )
    for text in ("", "no token", "a.b.c", "x" * 100_000, "\udcff.a.b", unsigned, deep):
        refused(tokens(), text)


def test_public_key_is_no_secret(key: rsa.RSAPrivateKey, tmp_path: Path) -> None:
    """WP-80: the algorithm is that of the configuration, not that of the token. The file may come later."""
    file = tmp_path / "public.pem"
    found = tokens(driver="RS256", public_key=str(file))
    assert "No such file" in refused(found, token())
    public, form = key.public_key(), serialization.PublicFormat.SubjectPublicKeyInfo
    file.write_bytes(public.public_bytes(serialization.Encoding.PEM, form))
    assert found.user(token(private_pem(key), "RS256")).name == "alice"
    refused(found, token())


def test_too_old() -> None:
    """WP-81: max_validity_time counts from the time of issue, and ends a session."""
    now = int(time.time())
    assert "max_validity_time" in refused(tokens(max_validity_time=60), token(iat=now - 100))
    assert tokens(max_validity_time=60).user(token(iat=now, exp=now + 600)).expires == now + 60


@rows(__file__, "test_claim")
def test_claim(name: str, found: object) -> None:
    """WP-82"""
    assert logins.claim({"a.b": 1, "c": {"d": 2}, "sub": "s"}, name) == found


def test_openid_connect(provider: OidcProvider) -> None:
    """WP-83: the issuer's configuration names the keys, which are asked for once; after an error again."""
    key, issuer = provider.key, provider.issuer

    def signed(issuer: str, kid: str = "k1") -> str:
        return jwt.encode(claims(iss=issuer, aud=CLIENT), private_pem(key), "RS256", headers={"kid": kid})

    found = tokens(driver="OpenIDConnect", issuer_id=issuer)
    provider.configuration = {"jwks_uri": f"{issuer}/nowhere"}
    assert "404" in refused(found, signed(issuer))
    provider.configuration = {}
    found = tokens(driver="OpenIDConnect", issuer_id=issuer)
    assert found.user(signed(issuer)).operator
    provider.configuration = {"jwks_uri": f"{issuer}/nowhere"}
    provider.key = new_key()
    assert found.user(signed(issuer)).operator
    assert "keys of" in refused(found, signed(issuer, "k2"))
    # What a client sends makes no line of the log (WP-85).
    text = refused(found, signed(issuer, f"a\nINFO Login of alice{400 * 'x'}"))
    assert "INFO Login" in text
    assert text.isprintable()
    assert len(text) <= logins.REASON_LENGTH
    provider.key = key
    assert "404" in refused(tokens(driver="OpenIDConnect", issuer_id=f"{issuer}/gone"), signed(f"{issuer}/gone"))
    by_url = tokens(driver="OpenIDConnect", issuer_id="x", keys_url=f"{issuer}/keys")
    assert by_url.user(signed("x")).name == "alice"


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "PS256", "none", "x"])
def test_algorithm_that_is_not_for_the_key(provider: OidcProvider, algorithm: str) -> None:
    """WP-80: such a token can be made without any key; it is refused as others are."""
    parts = ({"alg": algorithm, "kid": "k1"}, claims(iss=provider.issuer), "")
    made = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    refused(tokens(driver="OpenIDConnect", issuer_id=provider.issuer), made)


class Elsewhere(BaseHTTPRequestHandler):
    """A provider that sends its clients to another address, or no object, or too much, or a byte and no more."""

    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/elsewhere" else 200)
        self.send_header("Location", "/list")
        self.send_header("Content-Length", "9" if self.path == "/part" else "2000000" if self.path == "/long" else "2")
        self.end_headers()
        self.wfile.write({"/part": b"{", "/long": b" " * 2_000_000}.get(self.path, b"[]"))

    def log_message(self, *_: object) -> None:
        return


@rows(__file__, "test_answers_of_providers")
def test_answers_of_providers(path: str, error: str, text: str) -> None:
    """WP-103: only the address is asked that the configuration names, with HTTPS; what is odd has an end."""
    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.raises(getattr(requests, error, ValueError), match=text):
                logins.provider_json(f"http://127.0.0.1:{server.server_port}{path}" if path.startswith("/") else path)
        finally:
            server.shutdown()
            thread.join()


class LoginSite(GuardedSite):
    """Pages where browsers log in at a provider."""

    def __init__(self, provider: OidcProvider, origins: tuple[str, ...] = (), prefix: str = "", **more: Any) -> None:
        settings = Authenticator(provider.section(**more))
        found = logins.Tokens([settings], [operator_rule()])
        browser = {settings.name: logins.BrowserLogin(settings, found)}
        super().__init__(
            None, Access(found, Actions(MagicMock(), MagicMock()), origins=origins, browser_logins=browser)
        )
        self.client = TestClient(self.client.app, base_url=BASE, follow_redirects=False, root_path=prefix)

    def begin(self, target: str = "nodes") -> str:
        """The address at the provider."""
        answer = self.client.get("/login/at", params={"name": "keycloak", "next": target})
        assert answer.status_code == 303
        return str(answer.headers["location"])

    def asked(self) -> dict[str, str]:
        """What the provider is asked."""
        return dict(parse_qsl(urlsplit(self.begin()).query))

    def back(self, target: str = "nodes") -> str:
        """The address that the provider sends the browser back to."""
        found = requests.get(self.begin(target), allow_redirects=False, timeout=60).headers["Location"]
        assert found.startswith(f"{BASE}/login/done?")
        return found.removeprefix(BASE)

    def finish(self, target: str = "nodes") -> Any:
        """All of a login; the last answer."""
        return self.client.get(self.back(target))

    def cookies(self) -> set[str]:
        return set(self.client.cookies)


@pytest.fixture
def site(provider: OidcProvider) -> LoginSite:
    return LoginSite(provider)


def test_login(site: LoginSite, caplog: pytest.LogCaptureFixture) -> None:
    """WP-102, WP-85, WP-86: the session is that of a token; no token is logged; it leads to no other site."""
    assert (
        '<a class="button" href="./login/at?name=keycloak&amp;next=nodes">' in site.client.get("/login?next=nodes").text
    )
    with caplog.at_level(logging.DEBUG, "nodepool"):
        answer = site.finish()
    assert (answer.status_code, answer.headers["location"]) == (303, "../nodes")
    (name,) = site.cookies()
    cookie = next(one for one in answer.headers.get_list("set-cookie") if one.startswith(name))
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "alice</span> <small>(operator)" in site.client.get("/nodes").text
    assert "Login of alice (operator)" in caplog.text
    assert site.client.cookies[name] not in caplog.text
    for target in ("https://evil.example/", "//evil.example", "\\\\evil.example"):
        assert site.finish(target).headers["location"].startswith("../")
    assert site.client.get("/login/at?name=other").status_code == 404
    with OidcProvider("s3cret") as provider:
        assert LoginSite(provider).finish().status_code == 303
        assert LoginSite(provider, client_secret="wrong").finish().status_code == 403


def test_what_the_provider_is_asked(provider: OidcProvider) -> None:
    """WP-102: PKCE, a state and a nonce that cannot be guessed; it comes back to the address that the browser knows."""
    first, second = LoginSite(provider).asked(), LoginSite(provider).asked()
    assert first["redirect_uri"] == f"{BASE}/login/done"
    assert (first["client_id"], first["scope"], first["response_type"]) == (CLIENT, "openid profile", "code")
    assert first["code_challenge_method"] == "S256"
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name]) >= 43
        assert first[name] != second[name]
    assert LoginSite(provider, prefix="/np").asked()["redirect_uri"] == f"{BASE}/np/login/done"
    behind = LoginSite(provider, origins=("https://other.example", "https://nodepool.example:8005/"))
    assert behind.asked()["redirect_uri"] == "https://nodepool.example:8005/login/done"
    cookie = behind.client.get("/login/at?name=keycloak").headers["set-cookie"]
    assert "Secure" in cookie
    assert "Path=/login" in cookie


@rows(__file__, "test_answer_to_another_login")
def test_answer_to_another_login(site: LoginSite, change: dict[str, str | None], words: str) -> None:
    """WP-102: it is refused, and a code is good for one attempt."""
    query = {**dict(parse_qsl(urlsplit(site.back()).query)), **change}
    answer = site.client.get("/login/done", params={name: value for name, value in query.items() if value})
    assert answer.status_code == 403
    assert words in answer.text
    assert site.cookies() == set()


def test_another_browser(provider: OidcProvider) -> None:
    """WP-102: who makes another browser open the address of his own login does not log it in."""
    back = LoginSite(provider).back()
    victim = LoginSite(provider)
    assert victim.client.get(back).status_code == 400
    victim.begin()
    assert victim.client.get(back).status_code == 403
    for text in ("", "e30=", "bm90IGpzb24=", "ä", "W10=", "eyJuYW1lIjoxfQ=="):
        assert logins.LoginState.of_cookie(text) is None


def test_refused_logins_do_not_flood_the_log(site: LoginSite, caplog: pytest.LogCaptureFixture) -> None:
    """Any client can cause them."""
    with caplog.at_level(logging.INFO, "nodepool"):
        for _ in range(logins.MOST_REFUSALS + 5):
            assert site.client.get("/login/done").status_code == 400
    assert caplog.text.count("Refused a login: This browser has begun no login") == logins.MOST_REFUSALS


@rows(__file__, "test_bad_tokens")
def test_bad_tokens(
    site: LoginSite, provider: OidcProvider, answer: dict[str, Any], claims: dict[str, Any], words: str
) -> None:
    """WP-80, WP-102: they are checked as all are."""
    provider.token_answer, provider.claims = answer, claims
    found = site.finish()
    assert found.status_code == 403
    assert words in found.text


def test_token_that_no_cookie_can_have(site: LoginSite, provider: OidcProvider) -> None:
    """WP-85"""
    provider.claims = {"groups": ["x" * 100] * 60}
    assert "too long for a cookie" in site.finish().text


@rows(__file__, "test_bad_configuration")
def test_bad_configuration(site: LoginSite, provider: OidcProvider, configuration: dict[str, Any], words: str) -> None:
    """WP-102: the page says so; the next attempt asks again."""
    provider.configuration = configuration
    answer = site.client.get("/login/at?name=keycloak")
    assert answer.status_code == 502
    assert words in answer.text
    if "issuer" in configuration:
        provider.configuration = {}
        assert site.finish().status_code == 303


def test_provider_is_away_or_the_extra_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """WP-102: tokens are taken all the same; the log says what is missing."""
    section = {"name": "kc", "driver": "OpenIDConnect", "client_id": "c", "issuer_id": "http://127.0.0.1:1/x"}
    found = logins.Tokens([Authenticator(section)], [])
    config = cast(Any, SimpleNamespace(webapp_authenticators=[Authenticator(section)]))
    with pytest.raises(logins.LoginFailed, match="cannot be reached"):
        browser_logins(config, found)["kc"].begin(BASE, "")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with caplog.at_level(logging.INFO):
        assert browser_logins(config, found) == {}
    assert "the extra web-login is not installed" in caplog.text
