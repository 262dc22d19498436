# SPDX-License-Identifier: Apache-2.0
"""The token endpoint of the Microsoft identity platform, and that of a machine's own identity."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from nodepool.clock import wall_time
from simulators.azure.resources import TENANT, base_url
from simulators.base.messages import Answer, Json, Request, json_answer

if TYPE_CHECKING:
    from simulators.azure.cloud import Subscription

MANAGED_PATH = "/metadata/identity/oauth2/token"
#: Where clients ask what is where.
DISCOVERY = "/v2.0/.well-known/openid-configuration"
#: An assertion is valid for ten minutes at most.
_LONGEST_SECONDS: Final = 600


class TokenApi:
    """Gives tokens, and knows those that are valid."""

    def __init__(self, cloud: Subscription) -> None:
        self.cloud = cloud
        self._ends: dict[str, float] = {}

    @staticmethod
    def serves(request: Request) -> bool:
        return request.path == MANAGED_PATH or request.path.endswith(("/oauth2/v2.0/token", DISCOVERY))

    def serve(self, request: Request) -> Answer:
        """One token, or why there is none."""
        if request.path == MANAGED_PATH:
            if request.headers.get("metadata") != "true":
                return _refused("invalid_request", "Required metadata header not specified", 400)
            # Numbers are texts there.
            told = {name: str(value) for name, value in self._token().items()}
            return json_answer(told | {"resource": request.argument("resource"), "expires_on": "0"})
        if request.path.endswith(DISCOVERY):
            return self._discovery(request)
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        if request.path.split("/")[1].lower() != TENANT:
            return _refused("invalid_request", f"AADSTS90002: Tenant '{request.path.split('/')[1]}' not found.", 400)
        if form.get("client_id") != self.cloud.core.knobs.client_id:
            text = (
                f"AADSTS700016: Application with identifier '{form.get('client_id')}' was not found in the directory."
            )
            return _refused("unauthorized_client", text, 400)
        if not str(form.get("scope", "")).endswith("/.default"):
            return _refused("invalid_scope", "AADSTS70011: The provided value for 'scope' is not valid.", 400)
        if "client_assertion" in form:
            if problem := self._problem_of(request, form):
                return _refused("invalid_client", problem, 401)
        elif form.get("client_secret") != self.cloud.core.knobs.client_secret:
            return _refused("invalid_client", "AADSTS7000215: Invalid client secret provided.", 401)
        return json_answer(self._token())

    def _problem_of(self, request: Request, form: Mapping[str, str]) -> str:
        """What is wrong with a client assertion; "" = nothing.

        https://learn.microsoft.com/entra/identity-platform/certificate-credentials has the form of those that the
        client signs. Tokens of other identity providers are taken as they are.
        """
        try:
            head, claims, signature = form["client_assertion"].split(".")
            told, claimed = json.loads(_decoded(head)), json.loads(_decoded(claims))
            client = self.cloud.core.knobs.client_id
            if claimed.get("iss") != client:
                return ""
            certificate = x509.load_pem_x509_certificate(self.cloud.core.knobs.certificate.encode())
            # Older clients, azure-identity among them, sign in the second way. Nothing else is documented.
            new = told.get("alg") == "PS256" and _decoded(told["x5t#S256"]) == certificate.fingerprint(hashes.SHA256())
            old = told.get("alg") == "RS256" and _decoded(told["x5t"]) == certificate.fingerprint(hashes.SHA1())
            if not new and not old:
                return (
                    "AADSTS700027: The certificate with identifier used to sign the client assertion is not registered."
                )
            key = certificate.public_key()
            assert isinstance(key, rsa.RSAPublicKey)
            pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
            how = pss if new else padding.PKCS1v15()
            key.verify(_decoded(signature), f"{head}.{claims}".encode(), how, hashes.SHA256())
            if (claimed["aud"], claimed["sub"]) != (f"{base_url(request)}{request.path}", client) or not claimed["jti"]:
                return "AADSTS700023: Client assertion audience claim does not match Realm issuer."
            # Microsoft's own client says when it was made.
            begin = claimed.get("nbf") or claimed["iat"]
            if not begin <= wall_time() < claimed["exp"] <= begin + _LONGEST_SECONDS:
                return "AADSTS700024: Client assertion is not within its valid time range."
        except InvalidSignature:
            return "AADSTS700027: Client assertion failed signature validation."
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return f"AADSTS50027: Invalid JWT token: {error}"
        return ""

    @staticmethod
    def _discovery(request: Request) -> Answer:
        tenant = f"{base_url(request)}/{request.path.split('/')[1]}"
        return json_answer(
            {
                "issuer": f"{tenant}/v2.0",
                "token_endpoint": f"{tenant}/oauth2/v2.0/token",
                "authorization_endpoint": f"{tenant}/oauth2/v2.0/authorize",
            }
        )

    def valid(self, request: Request) -> bool:
        """Does a request have a token that has not ended?"""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return kind == "Bearer" and self._ends.get(token, 0.0) > self.cloud.core.now()

    def end_all(self) -> None:
        """No token is valid any more."""
        self._ends.clear()

    def _token(self) -> Json:
        token = secrets.token_urlsafe(24)
        life = self.cloud.core.knobs.token_seconds
        self._ends[token] = self.cloud.core.now() + life
        return {"token_type": "Bearer", "expires_in": int(life), "ext_expires_in": int(life), "access_token": token}


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _refused(code: str, text: str, status: int) -> Answer:
    return json_answer({"error": code, "error_description": text, "error_codes": []}, status)
