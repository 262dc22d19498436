# SPDX-License-Identifier: Apache-2.0
"""IAM's token endpoint, and the identity service that an instance of IBM has: they give tokens.

https://cloud.ibm.com/apidocs/iam-identity-token-api, https://cloud.ibm.com/apidocs/vpc-metadata
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from simulators.base.messages import Answer, ApiError, Json, Request, json_answer
from simulators.ibmvpc.core import ACCOUNT, IbmCore

PROFILE_ID: Final = "Profile-9fd84246-7df4-4667-94e4-8ecde51d5ac5"
#: What stands in the file of a container's token.
CR_TOKEN: Final = "simulated-compute-resource-token"
_GRANT: Final = "urn:ibm:params:oauth:grant-type:"
_IDENTITY: Final = {"/instance_identity/v1/token": "identity", "/identity/v1/token": "identity"}
_EXCHANGE: Final = {"/instance_identity/v1/iam_token": "exchange", "/identity/v1/iam_tokens": "exchange"}


class IamApi:
    """Gives tokens, and knows those that are valid."""

    name = "iam"

    def __init__(self, core: IbmCore) -> None:
        self.core = core
        self._ends: dict[str, float] = {}
        #: Tokens of instances, which are worth a token of IAM.
        self._identities: dict[str, float] = {}

    @staticmethod
    def serves(path: str) -> bool:
        return path == "/identity/token" or path in _IDENTITY or path in _EXCHANGE

    def operation(self, request: Request) -> str:
        if request.path == "/identity/token":
            return "token"
        return _IDENTITY.get(request.path) or _EXCHANGE[request.path]

    def serve(self, request: Request) -> Answer:
        """One token.

        :raises ApiError: why there is none.
        """
        if request.path in _IDENTITY:
            return self._identity(request)
        if request.path in _EXCHANGE:
            return self._exchange(request)
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        grant = form.get("grant_type", "").removeprefix(_GRANT)
        if grant == "apikey":
            if form.get("apikey") != self.core.knobs.api_key:
                raise ApiError(400, "Provided API key could not be found.", "BXNIM0415E")
        elif grant == "cr-token":
            if form.get("cr_token") != CR_TOKEN:
                raise ApiError(400, "The compute resource token is not valid.", "BXNIM0437E")
            self._check_profile(form)
        elif grant == "assume":
            if self._ends.get(form.get("access_token", ""), 0.0) <= self.core.now():
                raise ApiError(400, "Provided access token is not valid.", "BXNIM0408E")
            self._check_profile(form)
        else:
            raise ApiError(400, f"Unsupported grant type {grant!r}.", "BXNIM0113E")
        token, ends = self._token()
        life = int(self.core.knobs.token_seconds)
        content = {"access_token": token, "refresh_token": "not_supported", "token_type": "Bearer"}
        return json_answer(content | {"expires_in": life, "expiration": ends, "scope": "ibm openid"})

    def _check_profile(self, told: Mapping[str, Any]) -> None:
        identity = str(told.get("profile_id") or told.get("id") or told.get("profile_crn") or told.get("crn") or "")
        name = told.get("profile_name") or told.get("name")
        if not identity.endswith(PROFILE_ID) and name != self.core.knobs.profile:
            raise ApiError(400, "The selected trusted profile is not eligible for the token.", "BXNIM0426E")

    # -- the identity of an instance --

    def _identity(self, request: Request) -> Answer:
        if request.headers.get("metadata-flavor") != "ibm" or request.method != "PUT":
            raise ApiError(400, "A value such as `ibm` must be provided in the `Metadata-Flavor` header.")
        token, life = secrets.token_urlsafe(24), int(request.json().get("expires_in", 300))
        self._identities[token] = self.core.now() + life
        return json_answer({"access_token": token, **self._times(life)})

    def _exchange(self, request: Request) -> Answer:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._identities.get(given, 0.0) <= self.core.now():
            raise ApiError(401, "The instance identity token is not valid.")
        if request.body:
            self._check_profile(request.json().get("trusted_profile") or {})
        token, _ends = self._token()
        return json_answer({"access_token": token, **self._times(int(self.core.knobs.token_seconds))})

    def _times(self, life: int) -> Json:
        return {"created_at": self.core.stamp(), "expires_in": life, "expires_at": self.core.stamp(life)}

    # -- tokens --

    def valid(self, request: Request) -> bool:
        """Does a request have a token that has not ended?"""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self._ends.get(token, 0.0) > self.core.now()

    def end_all(self) -> None:
        """No token is valid any more."""
        self._ends.clear()

    def _token(self) -> tuple[str, int]:
        """A JSON Web Token whose signature nobody checks, and when it ends."""
        now = int(self.core.now())
        ends = now + int(self.core.knobs.token_seconds)
        claims = {
            "iam_id": "iam-ServiceId-0000",
            "id": "iam-ServiceId-0000",
            "account": {"valid": True, "bss": ACCOUNT, "frozen": True},
            "iat": now,
            "exp": ends,
            "iss": "https://iam.cloud.ibm.com/identity",
            "scope": "ibm openid",
        }
        parts = [_encoded(json.dumps(part).encode()) for part in ({"kid": "1", "alg": "RS256"}, claims)]
        token = ".".join([*parts, _encoded(secrets.token_bytes(16))])
        self._ends[token] = self.core.now() + self.core.knobs.token_seconds
        return token, ends

    def error(self, error: ApiError) -> Answer:
        content = {"errorCode": error.kind or "BXNIM0100E", "errorMessage": error.message, "context": {}}
        answer = json_answer(content, error.status)
        answer.headers |= error.headers
        return answer


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
