# SPDX-License-Identifier: Apache-2.0
"""Changes by HTTP: forms of our pages and the API use the same addresses. They exist only with ``webapp.auth``.

Who may use them is decided before, by `nodepool.web.logins.Logins`. Last what clients send.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from nodepool.clock import wall_time
from nodepool.listing.table import duration
from nodepool.model.maintenance import MODES, Mode
from nodepool.web.answers import WebProblem, own_address
from nodepool.web.changes import MOST_TEXT, Actions, Wish
from nodepool.web.logins import user_of
from nodepool.web.snapshot import SnapshotMaker

API: Final = "/api/v1"
#: Changes that are made at a time.
THREADS: Final = 2
#: Modes of maintenance that must be confirmed.
_TAKE_MUCH: Final = (Mode.DRAIN.value, Mode.QUARANTINE.value)
#: What a change does with the fields that were sent; blocks; returns what is answered.
Change = Callable[[Mapping[str, str], Mapping[str, Any], Wish], Mapping[str, Any]]


def routes(snapshots: SnapshotMaker, actions: Actions) -> list[BaseRoute]:
    """A route for each kind of change."""

    # Not those of pages: a change waits for locks and for ZooKeeper.
    threads = CapacityLimiter(THREADS)

    def hold(path: Mapping[str, str], _body: Mapping[str, Any], wish: Wish) -> Mapping[str, Any]:
        actions.hold(path["id"], wish)
        return {"id": path["id"], "state": "hold"}

    def delete(path: Mapping[str, str], _body: Mapping[str, Any], wish: Wish) -> Mapping[str, Any]:
        actions.delete(path["id"], wish)
        return {"id": path["id"], "state": "deleting"}

    def begin(path: Mapping[str, str], body: Mapping[str, Any], wish: Wish) -> Mapping[str, Any]:
        seen = snapshots.latest().observed
        record = actions.begin(path["kind"], path["name"], str(body.get("mode", "pause")), wish, seen)
        return {"kind": record.kind, "name": record.name, **record.to_dict()}

    def end(path: Mapping[str, str], _body: Mapping[str, Any], wish: Wish) -> Mapping[str, Any]:
        actions.end(path["kind"], path["name"], wish)
        return {"kind": path["kind"], "name": path["name"], "mode": None}

    def image(path: Mapping[str, str], _body: Mapping[str, Any], wish: Wish) -> Mapping[str, Any]:
        name, what = path["name"], path["what"]
        if name not in snapshots.latest().images.images:
            raise WebProblem(HTTPStatus.NOT_FOUND, f"There is no image {name}.")
        if what == "build":
            actions.build(name, wish)
        else:
            actions.set_paused(name, what == "pause", wish)
        return {"name": name, "what": what}

    maintenance = f"{API}/maintenance/{{kind}}/{{name:path}}"
    return [
        _route(f"{API}/nodes/{{id}}/hold", hold, threads, "POST"),
        _route(f"{API}/nodes/{{id}}/delete", delete, threads, "POST"),
        # A form can only POST: what ends with ``/end`` is for it.
        _route(f"{maintenance}/end", end, threads, "POST", reason_needed=False),
        _route(maintenance, begin, threads, "PUT", "POST"),
        _route(maintenance, end, threads, "DELETE", reason_needed=False),
        _route(f"{API}/images/{{name}}/{{what}}", image, threads, "POST"),
    ]


def _route(path: str, change: Change, threads: CapacityLimiter, *methods: str, reason_needed: bool = True) -> Route:
    async def answer(request: Request) -> Response:
        _check_path(request.path_params)
        body = await read_body(request)
        if is_form(request) and _takes_much(path, body) and body.get("sure") != "yes":
            raise WebProblem(HTTPStatus.BAD_REQUEST, "Confirm the change: set the mark beside the button.")
        wish = _wish(request, body, reason_needed=reason_needed)
        done = await run_sync(change, request.path_params, body, wish, limiter=threads)
        back = body.get("back")
        if isinstance(back, str) and back:
            return RedirectResponse(own_address(request, back), HTTPStatus.SEE_OTHER)
        return JSONResponse(dict(done))

    return Route(path, answer, methods=list(methods))


def _takes_much(path: str, body: Mapping[str, Any]) -> bool:
    """Does the change take nodes away, or what runs on them?

    :param path: of the route, e.g. ``/api/v1/nodes/{id}/delete``.
    """
    return path.endswith("/delete") or (path.endswith("/{name:path}") and body.get("mode") in _TAKE_MUCH)


def _check_path(given: Mapping[str, str]) -> None:
    if given.get("kind", "pool") not in MODES:
        raise WebProblem(HTTPStatus.NOT_FOUND, f"The kind must be one of: {', '.join(MODES)}.")
    if given.get("what", "build") not in ("build", "pause", "unpause"):
        raise WebProblem(HTTPStatus.NOT_FOUND, "An image has: build, pause, unpause.")
    if "id" in given and not (given["id"].isascii() and given["id"].isdecimal() and len(given["id"]) <= 20):
        raise WebProblem(HTTPStatus.NOT_FOUND, "The id of a node is a number.")
    name = given.get("name", "x")
    if not name.isprintable() or name in ("", ".", "..") or len(name) > MOST_TEXT:
        raise WebProblem(HTTPStatus.NOT_FOUND, "There is nothing of this name.")


def _wish(request: Request, body: Mapping[str, Any], *, reason_needed: bool) -> Wish:
    """Who asks and why. Raises WebProblem."""
    user = user_of(request)
    if user is None:
        raise WebProblem(HTTPStatus.UNAUTHORIZED, "Changes need a token of an operator.")
    reason = body.get("reason") or ""
    if not isinstance(reason, str) or len(reason) > MOST_TEXT:
        raise WebProblem(HTTPStatus.BAD_REQUEST, f"reason must be a text of at most {MOST_TEXT} characters.")
    reason = " ".join("".join(letter if letter.isprintable() else " " for letter in reason).split())
    if reason_needed and not reason:
        raise WebProblem(HTTPStatus.BAD_REQUEST, "reason is required: other operators see it.")
    return Wish(user.name, reason, _until(body.get("until"), wall_time()))


def _until(given: Any, now: float) -> float | None:
    """When a change ends.

    :param given: seconds since the epoch, a duration such as ``8h``, or nothing.
    """
    if given is None or given == "":
        return None
    try:
        until = float(given) if isinstance(given, (int, float)) else now + duration(str(given)[:50])
    except (ValueError, OverflowError) as error:
        raise WebProblem(HTTPStatus.BAD_REQUEST, f"until: {error}") from None
    if isinstance(given, bool) or not math.isfinite(until) or until <= now:
        raise WebProblem(HTTPStatus.BAD_REQUEST, "until must be later than now: seconds since the epoch, or e.g. 8h.")
    return until


# What clients send: forms of our pages and JSON objects, both small.

#: A token of an OpenID Connect provider with many groups, or a reason, fits in.
MOST_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 100
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"


async def read_body(request: Request) -> dict[str, Any]:
    """The fields of a form, which are texts, or the members of a JSON object.

    :raises WebProblem: it is neither, or too long.
    """
    kind = _kind(request)
    body = await _read(request)
    if kind == FORM:
        try:
            return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
        except ValueError:
            raise WebProblem(HTTPStatus.BAD_REQUEST, f"At most {MOST_FIELDS} fields are read.") from None
    if kind not in (JSON, ""):
        raise WebProblem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"The body must be {JSON} or {FORM}.")
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise WebProblem(HTTPStatus.BAD_REQUEST, f"The body is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise WebProblem(HTTPStatus.BAD_REQUEST, "The body must be a JSON object.")
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
                raise WebProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {MOST_BYTES} bytes are read.")
    except ClientDisconnect:
        raise WebProblem(HTTPStatus.BAD_REQUEST, "The body is not complete.") from None
    return body
