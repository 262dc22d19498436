# SPDX-License-Identifier: Apache-2.0
"""Whose is a bearer token, and what may that user do (reference/rules-web, WP-80 to WP-84)?

The tokens are those of Zuul: signed with a shared secret (HS256, as ``zuul create-auth-token`` makes them), with a key
of the issuer (RS256), or by an OpenID Connect provider. Last the calls to such providers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import jwt
import requests
import urllib3
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from requests.adapters import HTTPAdapter

from nodepool.clock import monotonic, wall_time
from nodepool.config.webapp import HS256, OPENID_CONNECT, wrong_provider_address
from nodepool.guard import OnError

if TYPE_CHECKING:
    from nodepool.config.webapp import Authenticator, OperatorRule

log = logging.getLogger("nodepool.web.auth")

#: Longer ones are refused unread.
MOST_BYTES: Final = 16 * 1024
#: Tokens are checked in so many threads at most.
THREADS: Final = 4
#: Keys of a provider are asked for again after this time.
KEYS_SECONDS: Final = 3600
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


class KeySource(Protocol):
    """Finds the key that a token was signed with."""

    algorithms: Sequence[str]

    def key_of(self, token: str) -> Any:
        """May block for a call over the network. Raises BadTokenError."""


class FixedKey:
    """One key for all tokens."""

    def __init__(self, algorithm: str, key: str) -> None:
        self.algorithms: Sequence[str] = (algorithm,)
        self._key = key

    def key_of(self, token: str) -> str:
        """:param token: of no account."""
        return self._key


class KeyFile:
    """One key for all tokens, in a file that is read when the first token comes."""

    def __init__(self, algorithm: str, path: str) -> None:
        self.algorithms: Sequence[str] = (algorithm,)
        self._path = path
        self._key: str | None = None

    def key_of(self, token: str) -> str:
        """:param token: of no account."""
        if self._key is None:
            try:
                self._key = Path(self._path).read_text(encoding="ascii")
            except (OSError, ValueError) as error:
                raise BadTokenError(f"the public_key of its authenticator cannot be read: {error}") from None
        return self._key


class ProviderKeys:
    """Keys that an OpenID Connect provider publishes. Thread-safe.

    :param url: of the keys; None = the provider's configuration names it.
    """

    algorithms: Sequence[str] = PROVIDER_ALGORITHMS

    def __init__(self, issuer: str, url: str | None) -> None:
        self._issuer = issuer
        self._url = url
        self._client: jwt.PyJWKClient | None = None

    def key_of(self, token: str) -> Any:
        """The key whose id the token names; asked for over the network when it is not known yet."""
        try:
            return self._keys().get_signing_key_from_jwt(token).key
        except (jwt.PyJWTError, requests.RequestException, ValueError, KeyError, TypeError) as error:
            raise BadTokenError(f"the keys of {self._issuer} cannot be used: {error}") from None

    def _keys(self) -> jwt.PyJWKClient:
        client = self._client
        if client is None:
            url = self._url
            if url is None:
                url = str(discovery(self._issuer)["jwks_uri"])
            client = self._client = _KeyClient(url, lifespan=KEYS_SECONDS)
        return client


class _KeyClient(jwt.PyJWKClient):
    """Keeps the keys; asks for them as for all else of a provider."""

    def fetch_data(self) -> Any:
        found = provider_json(self.uri)
        if self.jwk_set_cache is not None:
            # Not all releases of the library do that for a subclass.
            self.jwk_set_cache.put(found)
        return found


def discovery(issuer: str) -> Mapping[str, Any]:
    """The configuration that an OpenID Connect provider publishes (OpenID Connect Discovery 1.0); blocks.

    :raises requests.RequestException: it cannot be had. ValueError: it is no JSON object.
    """
    return provider_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")


class _Issuer:
    """One authenticator of the configuration, and where its keys are."""

    def __init__(self, settings: Authenticator, keys: KeySource) -> None:
        self.settings = settings
        self.keys = keys

    def claims(self, token: str, now: float, audience: str | None = None) -> Mapping[str, Any]:
        """The claims of a token that is valid. Raises BadTokenError.

        :param audience: None = that of the configuration.
        """
        settings = self.settings
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                self.keys.key_of(token),
                algorithms=list(self.keys.algorithms),
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


class Tokens:
    """Verifies tokens. Any thread; may block for some seconds with an OpenID Connect provider that is slow.

    :param authenticators: of the configuration. :param operators: who may change something.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        operators: Sequence[OperatorRule],
        now: Callable[[], float] = wall_time,
    ) -> None:
        self._issuers = [_Issuer(one, _keys(one)) for one in authenticators]
        self._operators = operators
        self._now = now
        #: Not those of pages. For all that may ask a provider.
        self.threads = CapacityLimiter(THREADS)

    async def checked(self, token: str) -> User:
        """`user` for an event loop: in threads of its own, because an OpenID Connect provider may be slow."""
        return await run_sync(self.user, token, limiter=self.threads)

    def user(self, token: str) -> User:
        """Who a token is of. Raises BadTokenError."""
        if len(token) > MOST_BYTES or not token.isascii():
            raise BadTokenError("no JSON Web Token, or a very long one")
        try:
            said = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, RecursionError):
            raise BadTokenError("no JSON Web Token") from None
        known = [one for one in self._issuers if one.settings.issuer_id == said.get("iss")]
        if not known:
            raise BadTokenError(f"its issuer is {str(said.get('iss'))[:NAME_LENGTH]!r}, which is not configured")
        error = BadTokenError("refused")
        for issuer in known:
            try:
                claims = issuer.claims(token, self._now())
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
        return issuer.claims(token, self._now(), settings.client_id)

    def _user(self, claims: Mapping[str, Any], settings: Authenticator) -> User:
        name = claim(claims, settings.uid_claim)
        if not isinstance(name, str) or not name:
            raise BadTokenError(f"it has no claim {settings.uid_claim} (uid_claim)")
        expires = float(claims["exp"])
        if settings.max_validity_time is not None:
            expires = min(expires, float(claims["iat"]) + settings.max_validity_time)
        operator = any(_holds(rule, claims) for rule in self._operators)
        return User("".join(filter(str.isprintable, name))[:NAME_LENGTH] or "?", operator, expires)


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


def _keys(settings: Authenticator) -> KeySource:
    if settings.driver == OPENID_CONNECT:
        return ProviderKeys(settings.issuer_id, settings.keys_url)
    if settings.driver == HS256:
        return FixedKey(HS256, settings.secret or "")
    return KeyFile(settings.driver, settings.public_key or "")


# Calls to OpenID Connect providers: HTTPS, no other address than asked, answers bounded in size and time.

#: A connection, and each read of an answer, is waited for no longer.
PROVIDER_SECONDS: Final = 5.0
#: The body of an answer takes no longer, and has no more bytes.
ANSWER_SECONDS: Final = 10.0
MOST_ANSWER_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = 8 * 1024


def provider_json(url: str) -> dict[str, Any]:
    """The JSON object at an address of a provider; blocks.

    :raises requests.RequestException: it cannot be had. ValueError: it is no JSON object.
    """
    with requests.Session() as session:
        mount(session)
        answer = session.get(url)
        answer.raise_for_status()
        found = answer.json()
    if not isinstance(found, dict):
        raise ValueError(f"{url} is no JSON object")
    return found


def mount(session: requests.Session) -> None:
    """Bound all calls of a session; once a session."""
    adapter = _ProviderAdapter()
    for prefix, old in list(session.adapters.items()):
        session.mount(prefix, adapter)
        old.close()


class _ProviderAdapter(HTTPAdapter):
    """Reads each answer completely before it returns, ``stream`` or not."""

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        """Raises subclasses of `requests.RequestException`."""
        wrong = wrong_provider_address(str(request.url))
        if wrong is not None:
            raise requests.exceptions.InvalidURL(wrong)
        response = super().send(request, *arguments, **{**options, "stream": True, "timeout": PROVIDER_SECONDS})
        with OnError(lambda _: response.close()):
            if response.is_redirect:
                raise requests.TooManyRedirects(f"{request.url} leads to another address, which is not followed")
            # Where requests keeps what was read; `content` and `json` look there.
            response._content = _read(response)
        return response


def _read(response: requests.Response) -> bytes:
    content, deadline = bytearray(), monotonic() + ANSWER_SECONDS
    while piece := _piece(response):
        content += piece
        if len(content) > MOST_ANSWER_BYTES:
            raise requests.exceptions.ContentDecodingError(f"the answer has more than {MOST_ANSWER_BYTES >> 10} KiB")
        if monotonic() > deadline:
            raise requests.Timeout(f"the answer takes more than {ANSWER_SECONDS:g} s")
    return bytes(content)


def _piece(response: requests.Response) -> bytes:
    try:
        # Not `iter_content`: it waits until a piece is full, byte by byte.
        piece: bytes = response.raw.read1(_PIECE_BYTES, decode_content=True)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise requests.ConnectionError(f"the answer is not complete: {error}") from error
    return piece
