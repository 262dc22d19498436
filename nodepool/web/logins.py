# SPDX-License-Identifier: Apache-2.0
"""Who sends a request, and may that user do what it asks for (reference/rules-web, WP-80 to WP-89)?

Last a limit of log lines that anybody can cause.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nodepool.clock import monotonic, wall_time
from nodepool.web.answers import own_address, place_of, problem_response
from nodepool.web.tokens import BadTokenError, User

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("nodepool.web.auth")

#: Of the session in a browser. It holds the token.
COOKIE: Final = "nodepool_session"
#: Key of the ASGI scope with the `User`; None = nobody has logged in.
USER: Final = "nodepool.user"
#: Methods that change nothing.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: Shown to everybody even if a login is required: what load balancers ask, and the login itself.
OPEN_PATHS: Final = ("/health/", "/ready", "/login", "/static/")
#: Log in and out: no login is needed for them.
SESSION_PATHS: Final = ("/login", "/logout")
#: Users whose tokens are known to be good.
MOST_KNOWN: Final = 1000
_BEARER: Final = "bearer "


class KnownUsers:
    """Whom tokens are of, so that a token is not verified for each part of a page. For one thread."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._users: dict[bytes, User] = {}

    def get(self, token: str) -> User | None:
        """The user of a token that is still good; None = not known."""
        user = self._users.get(_digest(token))
        return None if user is None or user.expires <= self._now() else user

    def put(self, token: str, user: User) -> None:
        if len(self._users) >= MOST_KNOWN:
            self._users.clear()
        self._users[_digest(token)] = user


class Logins:
    """Middleware. It puts the user into the scope, and answers requests itself that are not allowed.

    :param verify: tells who a token is of; raises BadTokenError.
    :param require_login: nobody who has not logged in sees anything but `OPEN_PATHS`.
    :param has_pages: False = there is no page to log in, only tokens in a header.
    :param origins: addresses of these pages as browsers see them, beside that of the request.
    """

    def __init__(
        self,
        app: ASGIApp,
        verify: Callable[[str], Awaitable[User]],
        *,
        require_login: bool = False,
        has_pages: bool = True,
        origins: Sequence[str] = (),
        now: Callable[[], float] = wall_time,
    ) -> None:
        self._app = app
        self._verify = verify
        self._require_login = require_login
        self._has_pages = has_pages
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._known = KnownUsers(now)
        #: Nobody can fill the log with tokens that are none.
        self._refusals = FewLines()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        answer = await self._refusal(request)
        await (self._app if answer is None else answer)(scope, receive, self._marked(request, send))

    def _marked(self, request: Request, send: Send) -> Send:
        """What is said to caches on the way: an answer is only for those with the same login."""
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

    async def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that is not allowed; None = it is. Puts the user into the scope."""
        request.scope[USER] = None
        token, in_cookie = _token(request)
        if token:
            try:
                request.scope[USER] = await self._user(token)
            except BadTokenError as error:
                if self._refusals.one_more():
                    log.info("Refused a token: %s", error)
                if not in_cookie:
                    return _unauthorized(f"The token is not accepted: {error}", "invalid_token")
        path = path_of(request)
        if request.method not in SAFE_METHODS:
            return self._refuse_change(request, path, in_cookie=in_cookie or not token)
        if self._require_login and request.scope[USER] is None and not path.startswith(OPEN_PATHS):
            return self._ask_to_log_in(request, path)
        return None

    def _ask_to_log_in(self, request: Request, path: str) -> Response:
        pages = self._has_pages and not path.startswith("/api/")
        if not pages or "text/html" not in request.headers.get("accept", ""):
            return _unauthorized("A token is needed (webapp.auth.require-login).", "")
        target = f"login?next={quote(place_of(request), safe='')}"
        return RedirectResponse(own_address(request, target), HTTPStatus.SEE_OTHER)

    async def _user(self, token: str) -> User:
        user = self._known.get(token)
        if user is None:
            # It may ask an OpenID Connect provider.
            user = await self._verify(token)
            self._known.put(token, user)
        return user

    def _refuse_change(self, request: Request, path: str, *, in_cookie: bool) -> Response | None:
        """:param in_cookie: the browser sends the login by itself, also if another site's page asks it to."""
        if in_cookie and not self._same_origin(request):
            return problem_response(
                HTTPStatus.FORBIDDEN,
                "This request comes from a page of another origin. Behind a proxy, webapp.origins names the addresses "
                "of these pages.",
            )
        if path in SESSION_PATHS:
            return None
        user: User | None = request.scope[USER]
        if user is None:
            return _unauthorized("Changes need a token of an operator.", "")
        if not user.operator:
            return problem_response(
                HTTPStatus.FORBIDDEN, f"{user.name} is no operator: webapp.auth.operators says who is one."
            )
        return None

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
    """Who has logged in; None = nobody, or logins are not configured."""
    user: User | None = request.scope.get(USER)
    return user


def _token(request: Request) -> tuple[str, bool]:
    """The token of a request and whether it is in a cookie. A header counts more."""
    header = request.headers.get("authorization", "")
    if header.lower().startswith(_BEARER):
        return header[len(_BEARER) :].strip(), False
    return request.cookies.get(COOKIE, ""), True


def _unauthorized(detail: str, error: str) -> Response:
    challenge = f'Bearer error="{error}"' if error else "Bearer"
    return problem_response(HTTPStatus.UNAUTHORIZED, detail, {"WWW-Authenticate": challenge})


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


# `FewLines`: how many lines of a kind may be logged, where any client can cause them.


class FewLines:
    """Any thread.

    :param most: lines within ``seconds``; more are not logged.
    :param clock: monotonic seconds.
    """

    def __init__(self, most: int = 30, seconds: float = 60.0, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._begun = -seconds
        self._count = 0

    def one_more(self) -> bool:
        """May a line be logged? Counts it."""
        with self._lock:
            now = self._clock()
            if now - self._begun >= self._seconds:
                self._begun, self._count = now, 0
            self._count += 1
            return self._count <= self._most
