# SPDX-License-Identifier: Apache-2.0
"""What clients send: forms of our pages and JSON objects, both small."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect

from nodepool.web.problem import ApiProblem

if TYPE_CHECKING:
    from starlette.requests import Request

#: A token of an OpenID Connect provider with many groups, or a reason, fits in.
MOST_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 100
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"


async def read_body(request: Request) -> dict[str, Any]:
    """The fields of a form, which are texts, or the members of a JSON object.

    :raises ApiProblem: it is neither, or too long.
    """
    kind = _kind(request)
    body = await _read(request)
    if kind == FORM:
        try:
            return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
        except ValueError:
            raise ApiProblem(HTTPStatus.BAD_REQUEST, f"At most {MOST_FIELDS} fields are read.") from None
    if kind not in (JSON, ""):
        raise ApiProblem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"The body must be {JSON} or {FORM}.")
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise ApiProblem(HTTPStatus.BAD_REQUEST, f"The body is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise ApiProblem(HTTPStatus.BAD_REQUEST, "The body must be a JSON object.")
    return found


def is_form(request: Request) -> bool:
    """Does a form of a page send it?"""
    return _kind(request) == FORM


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _read(request: Request) -> bytes:
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_BYTES:
                raise ApiProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {MOST_BYTES} bytes are read.")
    except ClientDisconnect:
        raise ApiProblem(HTTPStatus.BAD_REQUEST, "The body is not complete.") from None
    return body
