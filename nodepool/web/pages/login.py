# SPDX-License-Identifier: Apache-2.0
"""``/login`` and ``/logout``: a token goes into a cookie that scripts cannot read (WP-85, WP-86)."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from nodepool.clock import wall_time
from nodepool.web import changes
from nodepool.web.answers import WebProblem, own_address
from nodepool.web.logins import COOKIE, BadTokenError, LoginFailed, LoginState, User, log, user_of
from nodepool.web.pages.frame import Frame, Page

if TYPE_CHECKING:
    from nodepool.web.changes import Access
    from nodepool.web.snapshot import WebSnapshot


#: Browsers keep no longer cookie.
MOST_COOKIE: Final = 4000
#: Of a login that has begun, until the provider sends the browser back.
BEGUN_COOKIE: Final = "nodepool_login"
BEGUN_SECONDS: Final = 600
#: Longest address of a page that a login leads to, and longest part of the answer of a provider.
MOST_TARGET: Final = 1000
MOST_ANSWER: Final = 4000


class LoginPages:
    """The page with the form, and what its buttons do."""

    def __init__(self, frame: Frame, access: Access) -> None:
        self._frame = frame
        self._access = access

    def routes(self) -> list[BaseRoute]:
        """Where they are."""
        # Links: browsers do not let a form lead to another site (Content-Security-Policy: form-action).
        links = (
            [Route("/login/at", self._begin), Route("/login/done", self._done)] if self._access.browser_logins else []
        )
        return [
            self._frame.route("/login", self._login_page),
            Route("/login", self._log_in, methods=["POST"]),
            *links,
            Route("/logout", self._log_out, methods=["POST"]),
        ]

    def _login_page(self, request: Request, _snapshot: WebSnapshot) -> Page:
        user = user_of(request)
        text = "" if user is None else f"You are logged in as {user.name}."
        return self._form(text, request.query_params.get("next", "")[:MOST_TARGET])

    def _form(self, text: str, target: str) -> Page:
        values = {"told": text, "next": target, "providers": list(self._access.browser_logins)}
        return Page("login.html", "Log in", values, personal=True)

    async def _log_in(self, request: Request) -> Response:
        try:
            form = await changes.read_body(request)
        except WebProblem as problem:
            return self._frame.page(request, self._form(problem.detail, ""), problem.status_code)
        token, target = str(form.get("token", "")).strip(), str(form.get("next", ""))
        try:
            user = await self._access.tokens.checked(token)
            if len(token) > MOST_COOKIE:
                raise BadTokenError("it is too long for a cookie; use it with the API")
        except BadTokenError as error:
            text = f"The token is not accepted: {error}"
            return self._frame.page(request, self._form(text, target), HTTPStatus.FORBIDDEN)
        return self._logged_in(request, token, user, target)

    async def _log_out(self, request: Request) -> Response:
        answer = RedirectResponse(own_address(request, ""), HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE, path=_root(request) or "/", httponly=True, samesite="lax")
        return answer

    async def _begin(self, request: Request) -> Response:
        provider = self._access.browser_logins.get(request.query_params.get("name", ""))
        target = request.query_params.get("next", "")[:MOST_TARGET]
        if provider is None:
            text = LoginFailed("There is no such provider of logins")
            return self._refused(request, text, target, HTTPStatus.NOT_FOUND)
        redirect = f"{_origin(request, self._access.origins)}{_root(request)}/login/done"
        try:
            url, begun = await run_sync(provider.begin, redirect, target, limiter=self._access.tokens.login_threads)
        except LoginFailed as error:
            return self._refused(request, error, target, HTTPStatus.BAD_GATEWAY)
        answer = RedirectResponse(url, HTTPStatus.SEE_OTHER)
        self._set_cookie(request, answer, BEGUN_COOKIE, begun.to_cookie(), BEGUN_SECONDS, f"{_root(request)}/login")
        return answer

    async def _done(self, request: Request) -> Response:
        begun = LoginState.of_cookie(request.cookies.get(BEGUN_COOKIE, ""))
        provider = None if begun is None else self._access.browser_logins.get(begun.name)
        if begun is None or provider is None:
            text = LoginFailed("This browser has begun no login, or too long ago; try again")
            return self._refused(request, text, "", HTTPStatus.BAD_REQUEST)
        given = {name: value[:MOST_ANSWER] for name, value in request.query_params.items()}
        try:
            token, user = await run_sync(provider.finish, begun, given, limiter=self._access.tokens.login_threads)
            if len(token) > MOST_COOKIE:
                raise LoginFailed("the token is too long for a cookie; let the provider put fewer claims into it")
        except LoginFailed as error:
            answer = self._refused(request, error, begun.target, HTTPStatus.FORBIDDEN)
        else:
            answer = self._logged_in(request, token, user, begun.target)
        answer.delete_cookie(BEGUN_COOKIE, path=f"{_root(request)}/login", httponly=True, samesite="lax")
        return answer

    def _logged_in(self, request: Request, token: str, user: User, target: str) -> Response:
        log.info("Login of %s (%s)", user.name, "operator" if user.operator else "viewer")
        answer = RedirectResponse(own_address(request, target), HTTPStatus.SEE_OTHER)
        seconds = max(1, int(user.expires - wall_time()))
        self._set_cookie(request, answer, COOKIE, token, seconds, _root(request) or "/")
        return answer

    def _set_cookie(self, request: Request, answer: Response, name: str, value: str, seconds: int, path: str) -> None:
        # Does the browser use HTTPS? A link sends no ``Origin``.
        origin = request.headers.get("origin") or _origin(request, self._access.origins)
        secure = request.url.scheme == "https" or origin.startswith("https:")
        answer.set_cookie(name, value, seconds, path=path, secure=secure, httponly=True, samesite="lax")

    def _refused(self, request: Request, error: Exception, target: str, status: HTTPStatus) -> Response:
        self._access.tokens.log_refusal("login", error)
        return self._frame.page(request, self._form(f"{error}.", target), status)


def _root(request: Request) -> str:
    """The path below which a proxy has put these pages; empty = none."""
    path: str = request.scope.get("root_path", "")
    return path


def _origin(request: Request, origins: Sequence[str]) -> str:
    """The address of these pages as the browser sees them: of ``webapp.origins`` the one that it asks for."""
    host = request.headers.get("host", "")
    for origin in origins:
        if origin.partition("://")[2].rstrip("/").lower() == host.lower():
            return origin.rstrip("/")
    return origins[0].rstrip("/") if origins else f"{request.url.scheme}://{host}"
