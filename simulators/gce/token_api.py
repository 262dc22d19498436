# SPDX-License-Identifier: Apache-2.0
"""Tokens: of a service account's key, of a workload identity, and of an instance's metadata server.

https://developers.google.com/identity/protocols/oauth2/service-account (JWT bearer grant),
https://cloud.google.com/iam/docs/reference/sts/rest (exchange of a foreign token),
https://cloud.google.com/compute/docs/access/authenticate-workloads (metadata server)
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs

from nodepool.clock import wall_time
from simulators.base.messages import Answer, Json, Request, json_answer
from simulators.gce.cloud import Project
from simulators.gce.links import PROJECT, PROJECT_NUMBER, ZONES
from simulators.gce.service_key import read_assertion

TOKEN_PATH, EXCHANGE_PATH, METADATA_PATH = "/token", "/v1/token", "/computeMetadata/"
_IMPERSONATION: Final = ":generateAccessToken"
_JWT_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_SCOPES: Final = frozenset(
    f"https://www.googleapis.com/auth/{name}"
    for name in ("cloud-platform", "compute", "devstorage.full_control", "devstorage.read_write")
)
#: How far clocks may differ, in seconds; and how long an assertion may be good.
_SKEW, _LONGEST = 300, 3600
_ZONE: Final = next(iter(ZONES))


class GoogleTokenApi:
    """Gives tokens, and knows those that are valid."""

    def __init__(self, cloud: Project) -> None:
        self.cloud = cloud
        self._ends: dict[str, float] = {}

    @staticmethod
    def operation(request: Request) -> str | None:
        """``tokens.post`` or ``metadata.get``; None = it is for another service."""
        path = request.path
        if path in (TOKEN_PATH, EXCHANGE_PATH) or path.endswith(_IMPERSONATION):
            return "tokens.post"
        return "metadata.get" if path == "/" or path.startswith(METADATA_PATH) else None

    def serve(self, request: Request) -> Answer:
        """One token, or why there is none."""
        if self.operation(request) == "metadata.get":
            return self._metadata(request)
        if request.path.endswith(_IMPERSONATION):
            return self._impersonate(request)
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        grant = form.get("grant_type")
        if request.path == TOKEN_PATH and grant == _JWT_GRANT:
            return self._of_assertion(form.get("assertion", ""))
        if request.path == EXCHANGE_PATH and grant == _EXCHANGE_GRANT and form.get("subject_token"):
            issued = "urn:ietf:params:oauth:token-type:access_token"
            return json_answer(self._token() | {"issued_token_type": issued})
        return _refused("unsupported_grant_type", f"Invalid grant_type: {grant}")

    def _of_assertion(self, assertion: str) -> Answer:
        try:
            claims = read_assertion(assertion)
        except ValueError as error:
            return _refused("invalid_grant", str(error))
        fault = self._fault(claims)
        if not fault and not str(claims.get("aud", "")).endswith(TOKEN_PATH):
            fault = "Invalid JWT: Failed audience check."
        if fault:
            return _refused("invalid_grant", fault)
        if not _SCOPES & set(str(claims.get("scope", "")).split()):
            return _refused("invalid_scope", "Invalid OAuth scope or ID token audience provided.")
        return json_answer(self._token())

    def _fault(self, claims: dict[str, Any]) -> str:
        """What is wrong with claims; "" = nothing. They are made by the clock of the client, which no test moves."""
        if claims.get("iss") != self.cloud.email:
            return "Invalid grant: account not found"
        issued, end, now = claims.get("iat", 0), claims.get("exp", 0), wall_time()
        if end - issued > _LONGEST or issued > now + _SKEW or end < now - _SKEW:
            return "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
        return ""

    def _impersonate(self, request: Request) -> Answer:
        if not self.valid(request):
            return json_answer({"error": {"code": 401, "message": "Invalid token.", "status": "UNAUTHENTICATED"}}, 401)
        token = self._token()
        end = datetime.fromtimestamp(wall_time() + token["expires_in"], UTC)
        return json_answer({"accessToken": token["access_token"], "expireTime": end.strftime("%Y-%m-%dT%H:%M:%SZ")})

    def _metadata(self, request: Request) -> Answer:
        flavor = {"Metadata-Flavor": "Google"}
        if request.path != "/" and request.headers.get("metadata-flavor") != "Google":
            return Answer(403, b"Missing Metadata-Flavor:Google header.", flavor, "text/html")
        account = {"email": self.cloud.email, "aliases": ["default"], "scopes": sorted(_SCOPES)}
        name = request.path.removeprefix(f"{METADATA_PATH}v1/")
        texts = {
            "project/project-id": PROJECT,
            "project/numeric-project-id": PROJECT_NUMBER,
            "instance/zone": f"projects/{PROJECT_NUMBER}/zones/{_ZONE}",
            "instance/service-accounts/default/email": self.cloud.email,
        }
        if name in texts:
            return Answer(200, texts[name].encode(), flavor, "application/text")
        for user in ("default", self.cloud.email):
            where = f"instance/service-accounts/{user}/"
            if name == f"{where}token":
                return json_answer(self._token(), 200, Metadata_Flavor="Google")
            if name == where:
                return json_answer(account, 200, Metadata_Flavor="Google")
        return Answer(200 if request.path == "/" else 404, b"", flavor, "text/html")

    def valid(self, request: Request) -> bool:
        """Does a request have a token that has not ended, or an assertion of the account for this service?

        https://google.aip.dev/auth/4111: what the key has signed needs no exchange.
        """
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind != "Bearer":
            return False
        if self._ends.get(token, 0.0) > self.cloud.core.now():
            return True
        if token.count(".") != 2:
            return False
        try:
            claims = read_assertion(token)
        except ValueError:
            return False
        return claims.get("sub") == claims.get("iss") and not self._fault(claims)

    def end_all(self) -> None:
        """No token is valid any more."""
        self._ends.clear()

    def _token(self) -> Json:
        token = f"ya29.{secrets.token_urlsafe(24)}"
        life = self.cloud.core.knobs.token_seconds
        self._ends[token] = self.cloud.core.now() + life
        return {"access_token": token, "expires_in": int(life), "token_type": "Bearer"}


def _refused(code: str, text: str) -> Answer:
    return json_answer({"error": code, "error_description": text}, 400)
