# SPDX-License-Identifier: Apache-2.0
"""Who sends a request, and may that user do what it asks for (rules WP-80 to WP-89)?

First the middleware that decides it (`Logins`), then whose a bearer token is (`Tokens`). The tokens are those of Zuul:
signed with a shared secret (HS256, as ``zuul create-auth-token`` makes them), with a key of the issuer (RS256), or by
an OpenID Connect provider. Then the calls to such providers. Last `BrowserLogin`, with which a browser logs in there:
authorization code flow with PKCE (RFC 6749, 7636). What must come back with the answer of the provider stands in a
cookie of the browser, so that any ``nodepool-web`` behind a load balancer can go on. That is the only place that
imports the extra ``web-login``.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import jwt
import requests
import urllib3
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nodepool.clock import monotonic, wall_time
from nodepool.config.webapp import HS256, OPENID_CONNECT, Authenticator, OperatorRule, wrong_provider_address
from nodepool.web.answers import WebProblem, http_error, own_address, place_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


log = logging.getLogger("nodepool.web.auth")

#: Of the session in a browser. It holds the token.
COOKIE: Final = "nodepool_session"
#: Key of the ASGI scope with the `User`; None = there is no login.
USER: Final = "nodepool.user"
#: Methods that change nothing.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: Shown to everybody even if a login is required: what load balancers ask, and the login itself.
OPEN_PATHS: Final = ("/health/", "/ready", "/login", "/static/")
#: Log in and out: no login is needed for them.
SESSION_PATHS: Final = ("/login", "/logout")
_BEARER: Final = "bearer "


class Logins:
    """Middleware. It puts the user into the scope, and answers requests itself that are not allowed.

    :param verify: finds who a token is of; raises BadTokenError.
    :param require_login: who has not logged in sees nothing but `OPEN_PATHS`.
    :param has_pages: False = there is no page to log in, only tokens in a header.
    :param origins: addresses of these pages as browsers see them, beside that of the request.
    :param refused: makes the answer to a request that is not allowed.
    """

    def __init__(
        self,
        app: ASGIApp,
        verify: Callable[[str], Awaitable[User]],
        *,
        require_login: bool = False,
        has_pages: bool = True,
        origins: Sequence[str] = (),
        refused: Callable[[Request, Exception], Awaitable[Response]] = http_error,
    ) -> None:
        self._app = app
        self._verify = verify
        self._refused = refused
        self._require_login = require_login
        self._has_pages = has_pages
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        answer: ASGIApp = self._app
        try:
            answer = await self._allowed(request) or answer
        except WebProblem as problem:
            answer = await self._refused(request, problem)
        await answer(scope, receive, self._marked(request, send))

    def _marked(self, request: Request, send: Send) -> Send:
        """A note to caches on the way: an answer is only for those with the same login."""
        if path_of(request).startswith(OPEN_PATHS):
            return send

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.add_vary_header("Authorization, Cookie")
                if self._require_login:
                    headers["Cache-Control"] = headers.get("Cache-Control", "no-cache").replace("public", "private")
            await send(message)

        return send_marked

    async def _allowed(self, request: Request) -> Response | None:
        """The way to log in, or None. Puts the user into the scope. Raises WebProblem: the request is not allowed."""
        request.scope[USER] = None
        token, in_cookie = _token(request)
        if token:
            try:
                request.scope[USER] = await self._verify(token)
            except BadTokenError as error:
                if not in_cookie:
                    raise _unauthorized(f"The token is not accepted: {error}", 'Bearer error="invalid_token"') from None
        path = path_of(request)
        if request.method not in SAFE_METHODS:
            self._check_change(request, path, in_cookie=in_cookie or not token)
        elif self._require_login and request.scope[USER] is None and not path.startswith(OPEN_PATHS):
            pages = self._has_pages and not path.startswith("/api/")
            if not pages or "text/html" not in request.headers.get("accept", ""):
                raise _unauthorized("A token is needed (webapp.auth.require-login).")
            target = f"login?next={quote(place_of(request), safe='')}"
            return RedirectResponse(own_address(request, target), HTTPStatus.SEE_OTHER)
        return None

    def _check_change(self, request: Request, path: str, *, in_cookie: bool) -> None:
        """:param in_cookie: the browser sends the login by itself, also if another site's page asks it to."""
        if in_cookie and not self._same_origin(request):
            raise WebProblem(
                HTTPStatus.FORBIDDEN,
                "This request comes from a page of another origin. Behind a proxy, webapp.origins names the addresses "
                "of these pages.",
            )
        if path in SESSION_PATHS:
            return
        user: User | None = request.scope[USER]
        if user is None:
            raise _unauthorized("Changes need a token of an operator.")
        if not user.operator:
            text = f"{user.name} is no operator: webapp.auth.operators says who is one."
            raise WebProblem(HTTPStatus.FORBIDDEN, text)

    def _same_origin(self, request: Request) -> bool:
        """Does a browser say that a page of ours sends it? Browsers do, with each request that changes something."""
        site = request.headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            return False
        origin = request.headers.get("origin", "").lower()
        if not origin:
            return site is not None
        return origin in self._origins or origin.partition("://")[2] == request.headers.get("host", "").lower() != ""


def path_of(request: Request) -> str:
    """The path below the place where a proxy has put these pages."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", "")) or "/"


def user_of(request: Request) -> User | None:
    """Who has logged in; None = there is no login, or logins are not configured."""
    user: User | None = request.scope.get(USER)
    return user


def is_operator(request: Request) -> bool:
    """Has an operator logged in?"""
    user = user_of(request)
    return user is not None and user.operator


def _token(request: Request) -> tuple[str, bool]:
    """The token of a request and whether it is in a cookie. A header counts more."""
    header = request.headers.get("authorization", "")
    if header.lower().startswith(_BEARER):
        return header[len(_BEARER) :].strip(), False
    return request.cookies.get(COOKIE, ""), True


def _unauthorized(detail: str, challenge: str = "Bearer") -> WebProblem:
    return WebProblem(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": challenge})


# `Tokens`: whose is a bearer token?

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
        # Libraries name what a client has sent, and this goes into a log.
        super().__init__("".join(filter(str.isprintable, reason))[:REASON_LENGTH])


@dataclass(frozen=True)
class User:
    """Someone whose token was accepted.

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
        claimed = _unverified(token)
        known = [one for one in self._issuers if one.settings.issuer_id == claimed.get("iss")]
        if not known:
            raise BadTokenError(f"its issuer is {str(claimed.get('iss'))[:NAME_LENGTH]!r}, which is not configured")
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
    """What a token claims, unverified. Raises BadTokenError: it is none."""
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


# `BrowserLogin`: a browser logs in at an OpenID Connect provider.

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
