# SPDX-License-Identifier: Apache-2.0
"""Whose tokens are accepted (rules WP-80 to WP-84)."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from nodepool.web.tokens import REASON_LENGTH, BadTokenError, Tokens, claim
from tests.support.web_tokens import CLIENT, authenticator, claims, operator_rule, token, viewer_token


def tokens(**changes: Any) -> Tokens:
    return Tokens([authenticator(**changes)], [operator_rule()])


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def private_pem(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def public_pem(key: rsa.RSAPrivateKey) -> str:
    public = key.public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def test_operator_and_viewer() -> None:
    """WP-82: a claim makes an operator; everybody else may look."""
    operator, viewer = tokens().user(token()), tokens().user(viewer_token())
    assert (operator.name, operator.operator) == ("alice", True)
    assert (viewer.name, viewer.operator) == ("bob", False)
    assert operator.expires > time.time()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"secret": "another secret of thirty-two characters"}, "ignature"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"iat": "1"}, "must be numbers"),
        ({"iss": "somebody"}, "issuer is 'somebody'"),
        ({"aud": "somebody else"}, "udience"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "uid_claim"),
    ],
)
def test_refused(made: dict[str, Any], reason: str) -> None:
    """WP-80: signature, issuer, audience and time must be right; the text says which is not."""
    with pytest.raises(BadTokenError, match=reason):
        tokens().user(token(**made))


@pytest.mark.parametrize("text", ["", "no token", "a.b.c", "x" * 100_000, "\udcff.a.b"])
def test_no_token(text: str) -> None:
    with pytest.raises(BadTokenError):
        tokens().user(text)


def test_unsigned() -> None:
    """WP-80: a token that says itself that it needs no signature is refused."""
    with pytest.raises(BadTokenError):
        tokens().user(jwt.encode(claims(), None, "none"))  # type: ignore[arg-type]


def test_public_key_is_no_secret(key: rsa.RSAPrivateKey, tmp_path: Path) -> None:
    """WP-80: the algorithm is that of the configuration, not that of the token."""
    file = tmp_path / "public.pem"
    file.write_text(public_pem(key))
    found = tokens(driver="RS256", public_key=str(file))
    assert found.user(token(private_pem(key), "RS256")).name == "alice"
    with pytest.raises(BadTokenError):
        found.user(token())


def test_public_key_cannot_be_read(tmp_path: Path) -> None:
    """The daemon serves; tokens are refused, with the reason, until the file is there."""
    file = tmp_path / "public.pem"
    found = tokens(driver="RS256", public_key=str(file))
    with pytest.raises(BadTokenError, match=r"public_key .* No such file"):
        found.user(token())


def test_too_old() -> None:
    """WP-81: max_validity_time counts from the time of issue, and ends a session."""
    now = int(time.time())
    with pytest.raises(BadTokenError, match="max_validity_time"):
        tokens(max_validity_time=60).user(token(iat=now - 100))
    user = tokens(max_validity_time=60).user(token(iat=now, exp=now + 600))
    assert user.expires == now + 60


def test_audience_and_user_name() -> None:
    found = tokens(audience="pages", uid_claim="preferred_username")
    assert found.user(token(aud=["pages", "x"], preferred_username="Al\nice")).name == "Alice"


def test_second_authenticator_of_one_issuer() -> None:
    """Each is tried."""
    both = Tokens([authenticator(secret="b" * 32), authenticator()], [])
    user = both.user(token())
    assert (user.name, user.operator) == ("alice", False)


@pytest.mark.parametrize(
    ("name", "found"), [("a.b", 1), ("c", {"d": 2}), ("c.d", 2), ("c.e", None), ("x.y.z", None), ("sub.x", None)]
)
def test_claim(name: str, found: object) -> None:
    assert claim({"a.b": 1, "c": {"d": 2}, "sub": "s"}, name) == found


class Provider(ThreadingHTTPServer):
    """An OpenID Connect provider: its configuration and its keys."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        jwk = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        self.keys = {"keys": [{**jwk, "kid": "k1", "use": "sig", "alg": "RS256"}]}
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/realm"


class Answer(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        found = {
            "/realm/.well-known/openid-configuration": {"jwks_uri": f"{self.server.issuer}/keys"},
            "/realm/keys": self.server.keys,
        }.get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def provider(key: rsa.RSAPrivateKey) -> Iterator[Provider]:
    with Provider(key) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def signed(key: rsa.RSAPrivateKey, issuer: str, kid: str = "k1") -> str:
    return jwt.encode(claims(iss=issuer, aud=CLIENT), private_pem(key), "RS256", headers={"kid": kid})


def test_openid_connect(provider: Provider, key: rsa.RSAPrivateKey) -> None:
    """WP-83: the issuer's configuration names the keys; they are asked for once."""
    found = tokens(driver="OpenIDConnect", issuer_id=provider.issuer)
    for _ in range(3):
        assert found.user(signed(key, provider.issuer)).operator
    assert provider.asked == ["/realm/.well-known/openid-configuration", "/realm/keys"]
    with pytest.raises(BadTokenError, match="keys of"):
        found.user(signed(key, provider.issuer, "k2"))


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "PS256", "none", "x"])
def test_algorithm_that_is_not_for_the_key(provider: Provider, algorithm: str) -> None:
    """WP-80: anybody can send such a token, without any key; it is refused as others are."""
    found = tokens(driver="OpenIDConnect", issuer_id=provider.issuer)
    parts = ({"alg": algorithm, "kid": "k1"}, claims(iss=provider.issuer), "")
    made = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    with pytest.raises(BadTokenError):
        found.user(made)


def test_deeply_nested_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-80: older releases of the library raise it."""

    def too_deep(*_: Any, **__: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr(jwt, "decode", too_deep)
    with pytest.raises(BadTokenError, match="no JSON Web Token"):
        tokens().user("a.b.c")


def test_openid_connect_is_away(provider: Provider, key: rsa.RSAPrivateKey) -> None:
    """WP-83: the token is refused; later it is asked again."""
    found = tokens(driver="OpenIDConnect", issuer_id=f"{provider.issuer}/gone")
    with pytest.raises(BadTokenError, match="404"):
        found.user(signed(key, f"{provider.issuer}/gone"))
    by_url = tokens(driver="OpenIDConnect", issuer_id="x", keys_url=f"{provider.issuer}/keys")
    assert by_url.user(signed(key, "x")).name == "alice"


def test_key_id_with_a_line_break(provider: Provider, key: rsa.RSAPrivateKey) -> None:
    """WP-85: what somebody sends makes no line of the log."""
    found = tokens(driver="OpenIDConnect", issuer_id=provider.issuer)
    with pytest.raises(BadTokenError) as refused:
        found.user(signed(key, provider.issuer, f"a\nINFO Login of alice{400 * 'x'}"))
    assert "INFO Login" in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) <= REASON_LENGTH
