# SPDX-License-Identifier: Apache-2.0
"""Errors of the API as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

MEDIA_TYPE: Final = "application/problem+json"
#: Below this path errors have this form.
API: Final = "/api/"
#: Longest text: it may name what a client has sent.
MAX_DETAIL: Final = 1000


class ApiProblem(Exception):
    """An answer that is an error.

    :param detail: what is wrong, and what is allowed; in a sentence.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail[:MAX_DETAIL],
    }
    return Response(json.dumps(body), status, {**(headers or {}), "Cache-Control": "no-store"}, MEDIA_TYPE)


async def http_error(request: Request, error: Exception) -> Response:
    """Of what the router refuses: unknown paths and methods. In the API as a problem, elsewhere as text."""
    if not isinstance(error, HTTPException):
        raise error
    path: str = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    if not path.startswith(API):
        return PlainTextResponse(error.detail, error.status_code, error.headers)
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "There is no such resource; /api/v1/openapi.json describes those that there are."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "GET")
        detail = f"This resource has no method {request.method[:20]}; it has: {allowed}."
    return problem_response(error.status_code, detail, error.headers)
