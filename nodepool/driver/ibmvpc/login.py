# SPDX-License-Identifier: Apache-2.0
"""`IbmLogin`: tokens of IBM Cloud IAM (IV-1).

https://cloud.ibm.com/apidocs/iam-identity-token-api has the calls, and https://cloud.ibm.com/apidocs/vpc-metadata those
of an instance that asks for its own identity.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.framework.http.token_login import TokenLogin, login_error
from nodepool.driver.ibmvpc import credentials as c

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer, PlainHttp

_GRANT: Final = "urn:ibm:params:oauth:grant-type:"
_METADATA_VERSION: Final = "2022-03-01"
#: How long a token of an instance is needed, and how long one is used that somebody else keeps valid.
_IDENTITY_SECONDS: Final = 300
_BEARER_SECONDS: Final = 60.0
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
_JSON: Final = {"Content-Type": "application/json", "Accept": "application/json", "Metadata-Flavor": "ibm"}


class IbmLogin(TokenLogin):
    """Credentials of one provider.

    :param path: of ``credentials-file``. It, or what stands for it, is read again for each token, so that it may be
        replaced.
    """

    def __init__(
        self, provider: str, path: str | None, http: PlainHttp, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(provider, clock)
        self._path = path
        self._http = http
        #: As read last; replaced as a whole.
        self._credentials: c.Credentials | None = None

    @property
    def credentials(self) -> c.Credentials:
        """Endpoints, and how to log in. May block; raises LoginRefused."""
        return self._credentials or self._read()

    def headers(self) -> Mapping[str, str]:
        """See `nodepool.driver.framework.http.rest_calls.RestLogin`."""
        return {} if self.credentials.kind == c.NONE else super().headers()

    def account_id(self) -> str:
        """The account that the token is for, as it says itself; "" = it does not. May block."""
        token = self.headers().get("Authorization", "").removeprefix("Bearer ")
        return account_of(token)

    def ask(self) -> tuple[str, float]:
        """See `TokenLogin`."""
        found = self._read()
        if found.kind == c.BEARER:
            return found.get("BEARER_TOKEN"), _BEARER_SECONDS
        if found.kind == c.INSTANCE:
            return self._token_in(self._of_instance(found))
        if found.kind == c.CONTAINER:
            profile = {"profile_id": found.get("IAM_PROFILE_ID"), "profile_name": found.get("IAM_PROFILE_NAME")}
            return self._token_in(self._grant(found, "cr-token", cr_token=_token_of_container(found), **profile))
        answer = self._token_in(self._grant(found, "apikey", apikey=found.get("APIKEY")))
        if found.kind != c.ASSUME:
            return answer
        return self._token_in(self._assume(found, answer[0]))

    # -- inside --

    def _read(self) -> c.Credentials:
        self._credentials = c.read_credentials(self._path, os.environ)
        return self._credentials

    def _grant(self, found: c.Credentials, grant: str, **form: str) -> Any:
        """Ask IAM. Empty values are left out."""
        headers = dict(_FORM)
        if found.get("CLIENT_ID") and found.get("CLIENT_SECRET"):
            pair = f"{found.get('CLIENT_ID')}:{found.get('CLIENT_SECRET')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        if found.get("SCOPE"):
            form["scope"] = found.get("SCOPE")
        return self._ask_iam(found, grant, form, headers)

    def _assume(self, found: c.Credentials, token: str) -> Any:
        """Take over a trusted profile."""
        form = {"access_token": token}
        if found.get("IAM_PROFILE_CRN"):
            form["profile_crn"] = found.get("IAM_PROFILE_CRN")
        elif found.get("IAM_PROFILE_ID"):
            form["profile_id"] = found.get("IAM_PROFILE_ID")
        else:
            form |= {"profile_name": found.get("IAM_PROFILE_NAME"), "account": found.get("IAM_ACCOUNT_ID")}
        return self._ask_iam(found, "assume", form, _FORM)

    def _ask_iam(self, found: c.Credentials, grant: str, form: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        given = {"grant_type": _GRANT + grant, **{name: value for name, value in form.items() if value}}
        url = f"{found.auth_url}/identity/token"
        return self._send(found, "POST", url, headers, urllib.parse.urlencode(given).encode())

    def _of_instance(self, found: c.Credentials) -> Any:
        """Ask the metadata service who this instance is, and then IAM through it."""
        # Its name begins with the service's, and so does that of the variable.
        query = {"version": found.get("VPC_IMS_VERSION") or found.get("IMS_VERSION") or _METADATA_VERSION}
        base = f"{found.auth_url}/instance_identity/v1"
        body = json.dumps({"expires_in": _IDENTITY_SECONDS}).encode()
        token, _ = self._token_in(self._send(found, "PUT", f"{base}/token", _JSON, body, query))
        names = ("id", "crn", "name")
        given = {name: found.get(f"IAM_PROFILE_{name.upper()}") for name in names}
        profile = {name: value for name, value in given.items() if value}
        body = json.dumps({"trusted_profile": profile} if profile else {}).encode()
        headers = {**_JSON, "Authorization": f"Bearer {token}"}
        return self._send(found, "POST", f"{base}/iam_token", headers, body, query)

    def _send(
        self,
        found: c.Credentials,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        from nodepool.driver.framework.http.plain_http import NoAnswer

        head = f"Provider {self.provider}: login failed"
        try:
            answer = self._http.send(method, url, headers, body, query)
        except NoAnswer as error:
            raise CloudAway(f"{head}: {error}", maybe_done=False) from error
        data = _data(answer)
        if answer.status in (200, 201):
            return data
        code, said = _error_in(data)
        text = f"{head}: {code or answer.status}: {one_line(said or f'status {answer.status}')}"
        code, metadata = code or str(answer.status), found.kind == c.INSTANCE
        raise login_error(text, answer, code, f"correct {found.source}", metadata=metadata)

    def _token_in(self, data: Any) -> tuple[str, float]:
        try:
            return str(data["access_token"]), float(data["expires_in"])
        except (KeyError, TypeError, ValueError):
            text = f"Provider {self.provider}: the answer to the login has no token"
            raise CloudAway(text, maybe_done=False) from None


def account_of(token: str) -> str:
    """The account in a token of IAM, which is a JWT; "" = there is none. It is only used to name it to IBM."""
    parts = token.split(".")
    try:
        payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return str(payload["account"]["bss"])
    except (IndexError, KeyError, TypeError, ValueError):
        return ""


def _token_of_container(found: c.Credentials) -> str:
    """What says which container this is. Blocks."""
    paths = [found.get("CR_TOKEN_FILENAME")] if found.get("CR_TOKEN_FILENAME") else list(c.TOKEN_FILES)
    for path in paths:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            continue
    text = f"the token of the container cannot be read from {', '.join(paths)}; correct VPC_CR_TOKEN_FILENAME"
    raise LoginRefused(f"{text} in {found.source}")


def _data(answer: HttpAnswer) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _error_in(data: Any) -> tuple[str, str]:
    """Code and text of an answer of IAM, or of the metadata service."""
    told = data if isinstance(data, dict) else {}
    errors = told.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        told = errors[0]
    return str(told.get("errorCode") or told.get("code") or ""), str(
        told.get("errorMessage") or told.get("message") or ""
    )
