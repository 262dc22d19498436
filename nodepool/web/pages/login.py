# SPDX-License-Identifier: Apache-2.0
"""``/login`` and ``/logout``: a token goes into a cookie that scripts cannot read (WP-85, WP-86)."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from nodepool.clock import wall_time
from nodepool.web import bodies
from nodepool.web.few_lines import FewLines
from nodepool.web.logins import COOKIE, log, user_of
from nodepool.web.own_address import own_address
from nodepool.web.pages.frame import Frame, Page
from nodepool.web.problem import ApiProblem
from nodepool.web.tokens import BadTokenError

if TYPE_CHECKING:
    from nodepool.web.access import Access
    from nodepool.web.snapshot import WebSnapshot

#: Browsers keep no longer cookie.
MOST_COOKIE: Final = 4000


def routes(frame: Frame, access: Access) -> list[BaseRoute]:
    """The page with the form, and what its buttons do."""
    refusals = FewLines()

    async def log_in(request: Request) -> Response:
        try:
            form = await bodies.read_body(request)
        except ApiProblem as problem:
            return frame.page(request, _page(str(problem), ""), problem.status)
        token, target = str(form.get("token", "")).strip(), str(form.get("next", ""))
        try:
            user = await run_sync(access.tokens.user, token, limiter=access.threads)
            if len(token) > MOST_COOKIE:
                raise BadTokenError("it is too long for a cookie; use it with the API")
        except BadTokenError as error:
            if refusals.one_more():
                log.info("Refused a login: %s", error)
            return frame.page(request, _page(f"The token is not accepted: {error}", target), HTTPStatus.FORBIDDEN)
        log.info("Login of %s (%s)", user.name, "operator" if user.operator else "viewer")
        answer = RedirectResponse(own_address(request, target), HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            COOKIE,
            token,
            max_age=max(1, int(user.expires - wall_time())),
            path=request.scope.get("root_path", "") or "/",
            secure=_is_secure(request),
            httponly=True,
            samesite="lax",
        )
        return answer

    async def log_out(request: Request) -> Response:
        answer = RedirectResponse(own_address(request, ""), HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/", httponly=True, samesite="lax")
        return answer

    return [
        frame.route("/login", login_page),
        Route("/login", log_in, methods=["POST"]),
        Route("/logout", log_out, methods=["POST"]),
    ]


def login_page(request: Request, _snapshot: WebSnapshot) -> Page:
    """The form."""
    user = user_of(request)
    told = "" if user is None else f"You are logged in as {user.name}."
    return _page(told, request.query_params.get("next", "")[:1000])


def _page(told: str, target: str) -> Page:
    return Page("login.html", "Log in", {"told": told, "next": target}, personal=True)


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")
