# SPDX-License-Identifier: Apache-2.0
"""Who sends a request, and may that user do what it asks for (rules WP-80 to WP-89)?"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nodepool.web.answers import WebProblem, own_address, place_of, problem_response
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
_BEARER: Final = "bearer "


class Logins:
    """Middleware. It puts the user into the scope, and answers requests itself that are not allowed.

    :param verify: finds who a token is of; raises BadTokenError.
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
    ) -> None:
        self._app = app
        self._verify = verify
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
            answer = problem_response(problem.status_code, problem.detail, problem.headers)
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
    """Who has logged in; None = nobody, or logins are not configured."""
    user: User | None = request.scope.get(USER)
    return user


def _token(request: Request) -> tuple[str, bool]:
    """The token of a request and whether it is in a cookie. A header counts more."""
    header = request.headers.get("authorization", "")
    if header.lower().startswith(_BEARER):
        return header[len(_BEARER) :].strip(), False
    return request.cookies.get(COOKIE, ""), True


def _unauthorized(detail: str, challenge: str = "Bearer") -> WebProblem:
    return WebProblem(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": challenge})
