# SPDX-License-Identifier: Apache-2.0
"""`GoogleLogin`: access tokens for Google's APIs, through google-auth (GC-1).

Without ``credentials-file`` the credentials are the application default credentials: the file that
``GOOGLE_APPLICATION_CREDENTIALS`` names, that of the Google Cloud CLI, or the service account of the machine that
Nodepool runs on. google-auth is imported when a token is needed.
"""

from __future__ import annotations

import calendar
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from nodepool.clock import monotonic, wall_time
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused, one_line
from nodepool.driver.framework.http.rest_calls import NOT_READY, TokenLogin, is_away, is_metadata

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer, PlainHttp

#: What the token is for. What it allows the roles of the account say.
SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
#: ``type`` in a file of credentials. Those that run a program are refused.
FILE_TYPES: Final = ("service_account", "external_account", "impersonated_service_account", "authorized_user")
_AWS_TOKEN_TYPE: Final = "urn:ietf:params:aws:token-type:aws4_request"
_CALL_SECONDS: Final = 20.0
#: Of a token that does not say when it ends.
_LIFE_SECONDS: Final = 3600.0


class GoogleLogin(TokenLogin):
    """Credentials of one provider.

    :param credentials_file: path; read again for each token, so that it may be replaced. None = the default ones.
    """

    def __init__(
        self, provider: str, credentials_file: str | None, http: PlainHttp, clock: Callable[[], float] = monotonic
    ) -> None:
        import google.auth  # noqa: F401 - a provider whose library is broken shall not start

        super().__init__(provider, clock)
        self._credentials_file = credentials_file
        self._http = http

    def ask(self) -> tuple[str, float]:
        from google.auth import exceptions

        head = f"Provider {self.provider}: login failed"
        transport = GoogleTransport(self._http)
        try:
            credentials = self._credentials(transport)
            credentials.refresh(transport)
        except exceptions.DefaultCredentialsError as error:
            advice = transport.advice or "add credentials-file to the provider, or correct it"
            text = f"{head}: {_words(error)}; {advice}"
            if transport.unanswered or transport.away:
                # A metadata server that is away looks like a machine without credentials.
                raise CloudAway(text, maybe_done=False) from None
            raise LoginRefused(text) from None
        except exceptions.GoogleAuthError as error:
            text = f"{head}: {_words(error)}"
            if transport.unanswered or transport.away or error.retryable:
                raise CloudAway("; ".join(filter(None, (text, transport.advice))), maybe_done=False) from None
            raise LoginRefused(f"{text}; correct the credentials") from None
        except (OSError, ValueError) as error:
            raise LoginRefused(f"{head}: {_words(error)}; correct credentials-file") from None
        expiry = credentials.expiry
        life = _LIFE_SECONDS if expiry is None else calendar.timegm(expiry.timetuple()) - wall_time()
        return str(credentials.token), life

    def _credentials(self, transport: GoogleTransport) -> Any:
        import google.auth

        if self._credentials_file:
            return credentials_of(self._credentials_file)
        credentials, _ = google.auth.default(scopes=SCOPES, request=transport)  # type: ignore[arg-type]
        return credentials


def credentials_of(path: str) -> Any:
    """The credentials of a file. Blocks; asks nobody.

    :raises LoginRefused: it cannot be read, or is of a type that is not supported.
    :raises ValueError: it is incomplete.
    """
    try:
        info = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise LoginRefused(
            f"{path} cannot be read: {error.strerror}; correct credentials-file or the file's mode"
        ) from None
    except (ValueError, RecursionError):
        raise LoginRefused(f"{path} is not JSON; write it with gcloud iam service-accounts keys create") from None
    kind = info.get("type") if isinstance(info, dict) else None
    if kind not in FILE_TYPES:
        raise LoginRefused(f"type in {path} is {kind!r}, not one of {', '.join(FILE_TYPES)}; use another file")
    return _made(kind, info)


def _made(kind: str, info: dict[str, Any]) -> Any:
    if kind == "service_account":
        from google.oauth2 import service_account

        return service_account.Credentials.from_service_account_info(info, scopes=SCOPES)  # type: ignore[no-untyped-call]
    if kind == "authorized_user":
        from google.oauth2 import credentials

        return credentials.Credentials.from_authorized_user_info(info, scopes=SCOPES)  # type: ignore[no-untyped-call]
    if kind == "impersonated_service_account":
        from google.auth import impersonated_credentials

        return impersonated_credentials.Credentials.from_impersonated_service_account_info(info, scopes=SCOPES)  # type: ignore[no-untyped-call]
    if (info.get("credential_source") or {}).get("executable"):
        raise LoginRefused("credential_source.executable is not supported; use a file, a URL or AWS as the source")
    if info.get("subject_token_type") == _AWS_TOKEN_TYPE:
        from google.auth import aws

        return aws.Credentials.from_info(info, scopes=SCOPES)  # type: ignore[no-untyped-call]
    from google.auth import identity_pool

    return identity_pool.Credentials.from_info(info, scopes=SCOPES)  # type: ignore[no-untyped-call]


class _Reply:
    """What google-auth uses of an answer."""

    def __init__(self, answer: HttpAnswer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.data = answer.content


class GoogleTransport:
    """A ``google.auth.transport.Request`` whose answers are bounded. For the calls of one login.

    Results: ``unanswered``, a call had no answer; ``away``, the last answer says nothing about the credentials;
    ``advice`` if it was one of a metadata service.
    """

    def __init__(self, http: PlainHttp) -> None:
        self._http = http
        self.unanswered = False
        self.away = False
        self.advice = ""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> _Reply:
        from google.auth import exceptions

        from nodepool.driver.framework.http.plain_http import NoAnswer

        try:
            answer = self._http.send(method, url, headers or {}, body, seconds=timeout or _CALL_SECONDS)
        except NoAnswer as error:
            self.unanswered = True
            raise exceptions.TransportError(str(error)) from error  # type: ignore[no-untyped-call]
        self.unanswered = False
        # The root is asked by google-auth whether this is a machine of Google.
        metadata = is_metadata(url) and urlsplit(url).path not in ("", "/")
        self.away = is_away(answer, metadata=metadata)
        self.advice = NOT_READY if self.away and metadata else ""
        return _Reply(answer)


def _words(error: Exception) -> str:
    """What google-auth says; the first argument, the others are answers of the server, maybe with secrets."""
    return one_line(str(error.args[0] if error.args else error)).rstrip(".")
