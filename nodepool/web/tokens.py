# SPDX-License-Identifier: Apache-2.0
"""Whose is a bearer token, and what may that user do (rules WP-80 to WP-84)?

The tokens are those of Zuul: signed with a shared secret (HS256, as ``zuul create-auth-token`` makes them), with a key
of the issuer (RS256), or by an OpenID Connect provider. Last the calls to such providers.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jwt
import requests
import urllib3
from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from nodepool.clock import monotonic, wall_time
from nodepool.config.webapp import HS256, OPENID_CONNECT, wrong_provider_address

if TYPE_CHECKING:
    from nodepool.config.webapp import Authenticator, OperatorRule

log = logging.getLogger("nodepool.web.auth")

#: Longer ones are refused unread.
MOST_BYTES: Final = 16 * 1024
#: Tokens are checked in so many threads at most, for each limiter of `Tokens`.
THREADS: Final = 2
#: Keys of a provider are asked for again after this time.
KEYS_SECONDS: Final = 3600
#: Lines about refused tokens and logins within a minute; more are not logged.
MOST_REFUSALS: Final = 30
#: Names in logs and records are cut.
NAME_LENGTH: Final = 100
REASON_LENGTH: Final = 300
#: What signs a token of an OpenID Connect provider.
PROVIDER_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "EdDSA")
#: What every token must have.
NEEDED: Final = ("exp", "iat", "iss", "aud")


class BadTokenError(Exception):
    """A token that is not accepted. The text names the reason, and nothing of the token but its claims."""

    def __init__(self, reason: str) -> None:
        # Libraries name what somebody has sent, and this goes into a log.
        super().__init__("".join(filter(str.isprintable, reason))[:REASON_LENGTH])


@dataclass(frozen=True)
class User:
    """Somebody whose token was accepted.

    :param name: for the log and for records.
    :param operator: may change something; else only look.
    :param expires: seconds since the epoch.
    """

    name: str
    operator: bool
    expires: float


class _ProviderKeys(jwt.PyJWKClient):
    """Keeps the keys that an OpenID Connect provider publishes; asks for them as for all else of a provider."""

    def fetch_data(self) -> Any:
        found = provider_json(self.uri)
        if self.jwk_set_cache is not None:
            # Not all releases of the library do that for a subclass.
            self.jwk_set_cache.put(found)
        return found


class _Issuer:
    """One authenticator of the configuration, and its keys. Any thread."""

    def __init__(self, settings: Authenticator) -> None:
        self.settings = settings
        self._provider: _ProviderKeys | None = None

    def claims(self, token: str, now: float, audience: str | None = None) -> Mapping[str, Any]:
        """The claims of a token that is valid. May block for a call over the network. Raises BadTokenError.

        :param audience: None = that of the configuration.
        """
        settings = self.settings
        algorithms = PROVIDER_ALGORITHMS if settings.driver == OPENID_CONNECT else [settings.driver]
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                self._key_of(token),
                algorithms=list(algorithms),
                audience=audience or settings.audience or settings.client_id,
                issuer=settings.issuer_id,
                leeway=settings.skew,
                options={"require": list(NEEDED)},
            )
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            # Not only errors of its own: the algorithm that a token names may not be one for the key.
            raise BadTokenError(str(error)) from None
        if not all(isinstance(claims[name], (int, float)) for name in ("iat", "exp")):
            # The library takes texts with digits, too.
            raise BadTokenError("iat and exp must be numbers")
        if settings.max_validity_time is not None and now > claims["iat"] + settings.max_validity_time + settings.skew:
            raise BadTokenError(f"issued more than {settings.max_validity_time} s ago (max_validity_time)")
        return claims

    def _key_of(self, token: str) -> Any:
        settings = self.settings
        if settings.driver == HS256:
            return settings.secret
        if settings.driver == OPENID_CONNECT:
            try:
                return self._provider_keys().get_signing_key_from_jwt(token).key
            except (jwt.PyJWTError, requests.RequestException, ValueError, KeyError, TypeError) as error:
                raise BadTokenError(f"the keys of {settings.issuer_id} cannot be used: {error}") from None
        try:
            return Path(settings.public_key or "").read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise BadTokenError(f"the public_key of its authenticator cannot be read: {error}") from None

    def _provider_keys(self) -> _ProviderKeys:
        if self._provider is None:
            url = self.settings.keys_url or str(discovery(self.settings.issuer_id)["jwks_uri"])
            self._provider = _ProviderKeys(url, lifespan=KEYS_SECONDS)
        return self._provider


class Tokens:
    """Verifies tokens. Any thread; may block for some seconds with an OpenID Connect provider that is slow.

    :param authenticators: of the configuration. :param operators: who may change something.
    """

    def __init__(self, authenticators: Sequence[Authenticator], operators: Sequence[OperatorRule]) -> None:
        self._issuers = [_Issuer(one) for one in authenticators]
        self._operators = operators
        #: Not those of pages. Tokens of a provider that hangs, and logins of anyone, hold up no other token.
        self._threads = CapacityLimiter(THREADS)
        self._provider_threads = CapacityLimiter(THREADS)
        self.login_threads = CapacityLimiter(THREADS)
        #: When the latest refusals were logged.
        self._refusals: deque[float] = deque(maxlen=MOST_REFUSALS)

    async def checked(self, token: str) -> User:
        """`user` for an event loop, in threads of its own. A refusal is logged."""
        limiter = self._provider_threads if self._may_ask_provider(token) else self._threads
        try:
            return await run_sync(self.user, token, limiter=limiter)
        except BadTokenError as error:
            self.log_refusal("token", error)
            raise

    def log_refusal(self, what: str, error: Exception) -> None:
        """Log it, unless there were many within a minute: any client can cause them."""
        now = monotonic()
        if len(self._refusals) < MOST_REFUSALS or now - self._refusals[0] >= 60.0:
            self._refusals.append(now)
            log.info("Refused a %s: %s", what, error)

    def _may_ask_provider(self, token: str) -> bool:
        """Does a token say that an OpenID Connect provider made it? Does not block."""
        try:
            issuer = _unverified(token).get("iss")
        except BadTokenError:
            return False
        return any(one.settings.issuer_id == issuer and one.settings.driver == OPENID_CONNECT for one in self._issuers)

    def user(self, token: str) -> User:
        """Who a token is of. Raises BadTokenError."""
        said = _unverified(token)
        known = [one for one in self._issuers if one.settings.issuer_id == said.get("iss")]
        if not known:
            raise BadTokenError(f"its issuer is {str(said.get('iss'))[:NAME_LENGTH]!r}, which is not configured")
        error = BadTokenError("refused")
        for issuer in known:
            try:
                claims = issuer.claims(token, wall_time())
            except BadTokenError as refused:
                error = refused
            else:
                return self._user(claims, issuer.settings)
        raise error

    def identity(self, token: str, settings: Authenticator) -> Mapping[str, Any]:
        """The claims of an id token, whose audience is always the client. Raises BadTokenError.

        :param settings: of the provider that has given it.
        """
        issuer = next(one for one in self._issuers if one.settings is settings)
        return issuer.claims(token, wall_time(), settings.client_id)

    def _user(self, claims: Mapping[str, Any], settings: Authenticator) -> User:
        name = claim(claims, settings.uid_claim)
        if not isinstance(name, str) or not name:
            raise BadTokenError(f"it has no claim {settings.uid_claim} (uid_claim)")
        expires = float(claims["exp"])
        if settings.max_validity_time is not None:
            expires = min(expires, float(claims["iat"]) + settings.max_validity_time)
        operator = any(_holds(rule, claims) for rule in self._operators)
        return User("".join(filter(str.isprintable, name))[:NAME_LENGTH] or "?", operator, expires)


def _unverified(token: str) -> Mapping[str, Any]:
    """What a token claims, whoever made it. Raises BadTokenError: it is none."""
    if len(token) > MOST_BYTES or not token.isascii():
        raise BadTokenError("no JSON Web Token, or a very long one")
    try:
        claims: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, RecursionError):
        raise BadTokenError("no JSON Web Token") from None
    return claims


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim of a token; ``a.b`` is ``b`` in ``a``, unless there is one of just that name. None = there is none."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _holds(rule: OperatorRule, claims: Mapping[str, Any]) -> bool:
    found = claim(claims, rule.claim)
    return rule.contains == found or (isinstance(found, list) and rule.contains in found)


# Calls to OpenID Connect providers: over HTTPS, and to no other address than asked.

#: A connection, and each read of an answer, is waited for no longer; the whole answer for twice as long.
PROVIDER_SECONDS: Final = 5.0
MOST_ANSWER_BYTES: Final = 1024 * 1024


def discovery(issuer: str) -> Mapping[str, Any]:
    """The configuration that a provider publishes (OpenID Connect Discovery 1.0); see `provider_json`."""
    return provider_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")


def provider_json(url: str) -> dict[str, Any]:
    """The JSON object at an address of a provider; blocks.

    :raises requests.RequestException: it cannot be had. ValueError: it is no JSON object.
    """
    if (wrong := wrong_provider_address(url)) is not None:
        raise requests.exceptions.InvalidURL(wrong)
    deadline, body = monotonic() + 2 * PROVIDER_SECONDS, b""
    with requests.get(url, timeout=PROVIDER_SECONDS, allow_redirects=False, stream=True) as answer:
        answer.raise_for_status()
        if answer.is_redirect:
            raise requests.TooManyRedirects(f"{url} leads to another address")
        try:
            # Not `iter_content`: it waits until a piece is full, byte by byte.
            while piece := answer.raw.read1(1 << 14, decode_content=True):
                body += piece
                if len(body) > MOST_ANSWER_BYTES or monotonic() > deadline:
                    raise ValueError(f"{url} answers with too much, or too slowly")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise requests.ConnectionError(f"the answer is not complete: {error}") from error
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError(f"{url} is no JSON object")
    return found
