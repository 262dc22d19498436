# SPDX-License-Identifier: Apache-2.0
"""The token endpoint of the Microsoft identity platform, and that of a machine's own identity."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from nodepool.testing.azure.resources import TENANT, base_url
from nodepool.testing.simulator.messages import Answer, Json, Request, json_answer

if TYPE_CHECKING:
    from nodepool.testing.azure.cloud import Subscription

MANAGED_PATH = "/metadata/identity/oauth2/token"
#: Where clients ask what is where.
DISCOVERY = "/v2.0/.well-known/openid-configuration"


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
            return json_answer(self._token() | {"resource": request.argument("resource"), "expires_on": "0"})
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
        asserted = form.get("client_assertion", "").count(".") == 2
        if form.get("client_secret") != self.cloud.core.knobs.client_secret and not asserted:
            return _refused("invalid_client", "AADSTS7000215: Invalid client secret provided.", 401)
        return json_answer(self._token())

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


def _refused(code: str, text: str, status: int) -> Answer:
    return json_answer({"error": code, "error_description": text, "error_codes": []}, status)
