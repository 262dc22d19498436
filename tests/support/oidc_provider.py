# SPDX-License-Identifier: Apache-2.0
"""An OpenID Connect provider: lets everybody in as alice, and is as strict about PKCE as real ones."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.web_tokens import claims

CLIENT: Final = "nodepool.example"
REALM: Final = "/realm"


class OidcProvider(ThreadingHTTPServer):
    """Answers in threads until it is left.

    :param secret: of the client; None = a public client.
    """

    def __init__(self, secret: str | None = None) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        #: What it signs with; the published key stays.
        self.signing_key = self.key
        self.secret = secret
        #: Changes of what it answers.
        self.configuration: dict[str, Any] = {}
        self.token_answer: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        #: Code -> what was asked for with it.
        self.codes: dict[str, dict[str, str]] = {}
        super().__init__(("127.0.0.1", 0), _Answer)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{REALM}"

    def section(self, **more: Any) -> dict[str, Any]:
        """Of the configuration."""
        secret = {} if self.secret is None else {"client_secret": self.secret}
        driver = {"name": "keycloak", "driver": "OpenIDConnect", "client_id": CLIENT, "issuer_id": self.issuer}
        return {**driver, **secret, **more}

    def allow(self, query: dict[str, str]) -> str:
        """Somebody has logged in: the address that the browser is sent to."""
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        back = urllib.parse.urlencode({"code": code, "state": query["state"], "iss": self.issuer})
        return f"{query['redirect_uri']}?{back}"

    def tokens(self, form: dict[str, str]) -> dict[str, Any]:
        """The answer to a code."""
        asked = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or asked.get("code_challenge") != challenge or asked["code_challenge_method"] != "S256":
            return {"error": "invalid_grant"}
        if form.get("redirect_uri") != asked["redirect_uri"]:
            return {"error": "invalid_grant"}
        said = claims(**{"iss": self.issuer, "aud": CLIENT, "nonce": asked["nonce"], **self.claims})
        return {"access_token": "opaque", "token_type": "Bearer", "id_token": self.signed(said), **self.token_answer}

    def signed(self, said: dict[str, Any]) -> str:
        """A token with these claims."""
        private = self.signing_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return jwt.encode(said, private, "RS256", headers={"kid": "k1"})


class _Answer(BaseHTTPRequestHandler):
    server: OidcProvider

    def do_GET(self) -> None:
        place = urllib.parse.urlsplit(self.path)
        issuer = self.server.issuer
        if place.path == f"{REALM}/authorize":
            query = dict(urllib.parse.parse_qsl(place.query))
            self.send_response(302)
            self.send_header("Location", self.server.allow(query))
            self.end_headers()
            return
        jwk = jwt.algorithms.RSAAlgorithm.to_jwk(self.server.key.public_key(), as_dict=True)
        found: dict[str, Any] = {
            f"{REALM}/.well-known/openid-configuration": {
                "issuer": issuer,
                "jwks_uri": f"{issuer}/keys",
                "authorization_endpoint": f"{issuer}/authorize",
                "token_endpoint": f"{issuer}/token",
                **self.server.configuration,
            },
            f"{REALM}/keys": {"keys": [{**jwk, "kid": "k1", "use": "sig", "alg": "RS256"}]},
        }
        self._send(found.get(place.path), 200 if place.path in found else 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = dict(urllib.parse.parse_qsl(body))
        if self.server.secret is None:
            known = form.get("client_id") == CLIENT
        else:
            login = base64.b64encode(f"{CLIENT}:{self.server.secret}".encode()).decode()
            known = self.headers.get("Authorization") == f"Basic {login}"
        answer = self.server.tokens(form) if known else {"error": "invalid_client"}
        self._send(answer, 400 if "error" in answer else 200)

    def _send(self, found: Any, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_: object) -> None:
        return
