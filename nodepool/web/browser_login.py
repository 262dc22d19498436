# SPDX-License-Identifier: Apache-2.0
"""`BrowserLogin`: a browser logs in at an OpenID Connect provider: authorization code flow with PKCE (RFC 6749, 7636).

What must come back with the answer of the provider stands in a cookie of the browser, so that any ``nodepool-web``
behind a load balancer can go on. The only place that imports the extra ``web-login``.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import requests

from nodepool.clock import monotonic
from nodepool.config.webapp import wrong_provider_address
from nodepool.web.tokens import KEYS_SECONDS, PROVIDER_SECONDS, BadTokenError, Tokens, User, discovery

if TYPE_CHECKING:
    from nodepool.config.webapp import Authenticator

#: The extra of this package.
EXTRA: Final = "web-login"
#: Longest cookie that is read.
_MOST_COOKIE: Final = 4000


def is_installed() -> bool:
    """Is the library there?"""
    return importlib.util.find_spec("authlib") is not None


class LoginFailed(Exception):
    """The provider does not let the browser in, or cannot be used. The text says why."""

    def __init__(self, text: str) -> None:
        # What a provider or a browser sends goes into a log.
        super().__init__("".join(filter(str.isprintable, text))[:300])


@dataclass(frozen=True)
class LoginState:
    """What must be the same in the answer of the provider.

    :param name: of the authenticator. :param target: the page that the browser wants.
    :param verifier: of PKCE. :param redirect: address that the provider sends the browser to.
    """

    name: str
    target: str
    redirect: str
    state: str
    nonce: str
    verifier: str

    def to_cookie(self) -> str:
        """As text that a cookie can have."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def of_cookie(cls, text: str) -> LoginState | None:
        """None = it is none."""
        try:
            found = json.loads(base64.urlsafe_b64decode(text[:_MOST_COOKIE]))
            made = cls(**found)
        except (ValueError, TypeError, RecursionError):
            return None
        return made if all(isinstance(value, str) for value in asdict(made).values()) else None


class BrowserLogin:
    """At one provider. Any thread.

    :param tokens: decides which tokens are accepted.
    """

    def __init__(self, settings: Authenticator, tokens: Tokens) -> None:
        self.name = settings.name
        self._settings = settings
        self._tokens = tokens
        #: When the provider's configuration was read, in monotonic seconds, and what it is.
        self._known: tuple[float, Mapping[str, Any]] = (0.0, {})

    def begin(self, redirect: str, target: str) -> tuple[str, LoginState]:
        """The address at the provider to send the browser to; blocks if its configuration is not known yet.

        :param redirect: absolute address that the provider sends the browser back to.
        :raises LoginFailed: the provider cannot be used.
        """
        made = LoginState(self.name, target, redirect, *(secrets.token_urlsafe(32) for _ in range(3)))
        endpoint = self._endpoint("authorization_endpoint")
        with self._session(redirect) as session:
            url, _ = session.create_authorization_url(
                endpoint, state=made.state, nonce=made.nonce, code_verifier=made.verifier
            )
        return str(url), made

    def finish(self, begun: LoginState, answer: Mapping[str, str]) -> tuple[str, User]:
        """The token that the provider gives for the answer that the browser brings, and whose it is; blocks.

        :raises LoginFailed: the answer does not belong to what was begun, or the provider refuses.
        """
        if answer.get("error"):
            raise LoginFailed(f"{self.name} says: {answer['error']} {answer.get('error_description', '')}".strip())
        if not secrets.compare_digest(answer.get("state", "").encode(), begun.state.encode()) or not answer.get("code"):
            raise LoginFailed("the answer does not belong to this login; try again")
        issuer = answer.get("iss")
        if issuer is not None and issuer != self._settings.issuer_id:
            raise LoginFailed("the answer is of another provider (RFC 9207)")
        given = self._exchange(begun, answer["code"])
        identity = given.get("id_token")
        if not isinstance(identity, str):
            raise LoginFailed(f"{self.name} gives no id_token; is the scope openid allowed?")
        try:
            claimed = self._tokens.identity(identity, self._settings).get("nonce")
        except BadTokenError as error:
            raise LoginFailed(f"the id_token of {self.name} is not accepted: {error}") from None
        if not isinstance(claimed, str) or not secrets.compare_digest(claimed.encode(), begun.nonce.encode()):
            raise LoginFailed("the id_token does not belong to this login; try again")
        return self._accepted([identity, given.get("access_token")])

    def _accepted(self, tokens: list[Any]) -> tuple[str, User]:
        """The first that is accepted. With ``audience`` of the configuration that is the access token."""
        refused = []
        for token in tokens:
            if isinstance(token, str) and token:
                try:
                    return token, self._tokens.user(token)
                except BadTokenError as error:
                    refused.append(str(error))
        raise LoginFailed(f"the tokens of {self.name} are not accepted: {'; '.join(refused)}")

    def _exchange(self, begun: LoginState, code: str) -> Mapping[str, Any]:
        from authlib.common.errors import AuthlibBaseError

        endpoint = self._endpoint("token_endpoint")
        with self._session(begun.redirect) as session:
            try:
                found = session.fetch_token(
                    endpoint,
                    timeout=PROVIDER_SECONDS,
                    allow_redirects=False,
                    code=code,
                    code_verifier=begun.verifier,
                    grant_type="authorization_code",
                )
            except (AuthlibBaseError, requests.RequestException, ValueError, KeyError, TypeError) as error:
                raise LoginFailed(f"{self.name} gives no token: {error}") from None
        return found if isinstance(found, Mapping) else {}

    def _session(self, redirect: str) -> Any:
        from authlib.integrations.requests_client import OAuth2Session

        settings = self._settings
        return OAuth2Session(
            settings.client_id,
            settings.client_secret,
            token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
            scope=settings.scope,
            redirect_uri=redirect,
            code_challenge_method="S256",
        )

    def _endpoint(self, name: str) -> str:
        """An address of the provider's configuration. Raises LoginFailed."""
        found = self._configuration().get(name)
        if not isinstance(found, str):
            raise LoginFailed(f"{self.name} has no {name} in its configuration")
        if (wrong := wrong_provider_address(found)) is not None:
            raise LoginFailed(f"{name} of {self.name}: {wrong}")
        return found

    def _configuration(self) -> Mapping[str, Any]:
        # Any client can begin a login: the provider is not asked for each of them.
        known_at, known = self._known
        if known and monotonic() - known_at < KEYS_SECONDS:
            return known
        try:
            found = discovery(self._settings.issuer_id)
        except (requests.RequestException, ValueError) as error:
            raise LoginFailed(f"{self.name} cannot be reached: {error}") from None
        if found.get("issuer") != self._settings.issuer_id:
            raise LoginFailed(f"{self.name} calls itself {found.get('issuer')!r}, and not as issuer_id says")
        self._known = monotonic(), found
        return found
