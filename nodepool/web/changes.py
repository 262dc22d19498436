# SPDX-License-Identifier: Apache-2.0
"""What operators change by pages and API, as the commands do it (rules WP-91 to WP-98). Only with ``webapp.auth``.

First the changes (`Actions`), and who may change something: `nodepool.web.logins.Logins` decides. Then the buttons that
a page has, and the addresses: forms of our pages and the API use the same. Then what clients send. Last ``/login`` and
``/logout``: a token goes into a cookie that scripts cannot read (WP-85, WP-86).
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from nodepool.clock import wall_time
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.listing.table import duration
from nodepool.model import states
from nodepool.model.image import ImageSource
from nodepool.model.node import Node
from nodepool.model.record import InvalidRecord
from nodepool.model.status import MODES, Maintenance, Mode
from nodepool.plan.maintenance import UnclearSubject, find
from nodepool.plan.observed import Observed, host_name
from nodepool.web.answers import FORM, WebProblem, is_form, own_address, own_address_from, place_of
from nodepool.web.frame import Frame, Page, PageAction
from nodepool.web.logins import COOKIE, BadTokenError, BrowserLogin, LoginFailed, LoginState, Tokens, User, user_of
from nodepool.web.logins import log as auth_log
from nodepool.web.snapshot import SnapshotMaker, WebSnapshot, address
from nodepool.zk import zookeeper
from nodepool.zk.transactions import COMMAND, LockOwners
from nodepool.zk.zookeeper import ZooKeeper

log = logging.getLogger("nodepool.web.changes")

#: How long a node's lock is waited for. A page waits no longer.
LOCK_SECONDS: Final = 2.0
#: Texts in records and in the log are cut.
MOST_TEXT: Final = 500


@dataclass(frozen=True)
class Wish:
    """What an operator asks for.

    :param by: name of the user. :param reason: why; never empty.
    :param until: end of it, in seconds since the epoch; None = none.
    """

    by: str
    reason: str
    until: float | None = None

    @property
    def operator(self) -> str:
        """As records name who did it."""
        return f"{self.by} (web)"


#: Names in the path of an address, and the fields that were sent.
Fields = Mapping[str, Any]


class Actions:
    """Changes records in ZooKeeper. Any thread. Methods block for round trips; raise WebProblem, ZKConnectionError.

    Each gets the names in the path, the fields that were sent and the wish, and returns what is answered.

    :param snapshots: tell which names there are.
    :param configured: names of the images in the configuration. Must not block.
    """

    def __init__(
        self, zk: ZooKeeper, snapshots: SnapshotMaker, configured: Callable[[], Collection[str]] = frozenset
    ) -> None:
        self._zk = zk
        self._configured = configured
        self._snapshots = snapshots

    # -- nodes --

    def hold(self, path: Fields, _body: Fields, wish: Wish) -> Fields:
        """As ``nodepool hold``."""

        def change(node: Node) -> None:
            seconds = None if wish.until is None else max(1, round(wish.until - wall_time()))
            node.hold(by=wish.operator, reason=wish.reason, seconds=seconds)

        return self._change_node(path["id"], change, "hold", wish)

    def delete(self, path: Fields, _body: Fields, wish: Wish) -> Fields:
        """As ``nodepool delete``: the launcher does the rest."""
        return self._change_node(path["id"], lambda node: setattr(node, "state", states.DELETING), "delete", wish)

    def _change_node(self, node_id: str, change: Callable[[Node], None], what: str, wish: Wish) -> Fields:
        absent = WebProblem(HTTPStatus.NOT_FOUND, f"There is no node {node_id}.")
        node = self._zk.getNode(node_id)
        if node is None:
            raise absent
        try:
            zookeeper.take(self._zk, node, LOCK_SECONDS, f"{COMMAND}{wish.operator}")
            try:
                change(node)
                self._zk.storeNode(node)
            finally:
                zookeeper.give_back(self._zk, node)
        except ZKLockException:
            owner = LockOwners(self._zk.client).of_node(node_id) or "another client"
            text = f"Node {node_id} is {node.state}, and {owner} has its lock. Try again later."
            raise WebProblem(HTTPStatus.CONFLICT, text) from None
        except ZKConflict:
            if self._zk.getNode(node_id) is None:
                raise absent from None
            raise WebProblem(HTTPStatus.CONFLICT, f"Node {node_id} was changed at the same time.") from None
        self._log(wish, f"node {node_id}", what)
        return {"id": node_id, "state": node.state}

    # -- maintenance --

    def begin(self, path: Fields, body: Fields, wish: Wish) -> Fields:
        """As ``nodepool pause``, ``drain`` and ``quarantine``; answers with the record."""
        kind, name, mode = path["kind"], path["name"], str(body.get("mode", "pause"))
        allowed = [one.value for one in MODES.get(kind, ())]
        if mode not in allowed:
            raise WebProblem(HTTPStatus.BAD_REQUEST, f"mode of a {kind} must be one of: {', '.join(allowed)}.")
        try:
            subject = find(name, [kind], {kind: known_names(kind, self._snapshots.latest().observed)})
        except UnclearSubject as unclear:
            raise WebProblem(HTTPStatus.NOT_FOUND, f"{unclear}.") from None
        record = Maintenance(kind, subject.name, Mode(mode), wish.reason, wish.operator, wall_time(), wish.until)
        self._zk.maintenance.put(record)
        self._log(wish, f"{kind} {record.name}", mode)
        return {"kind": kind, "name": record.name, **record.to_dict()}

    def end(self, path: Fields, _body: Fields, wish: Wish) -> Fields:
        """As ``nodepool resume`` and ``release``."""
        kind, name = path["kind"], path["name"]
        if not self._zk.maintenance.remove(kind, name):
            raise WebProblem(HTTPStatus.NOT_FOUND, f"{kind} {name} is neither paused nor drained nor quarantined.")
        self._log(wish, f"{kind} {name}", "back in service")
        return {"kind": kind, "name": name, "mode": None}

    # -- images --

    def image(self, path: Fields, body: Fields, wish: Wish) -> Fields:
        """As ``nodepool image-build``, ``image-import``, ``image-pause`` and ``image-unpause``."""
        name, what = path["name"], path["what"]
        # The first thing that is known of an image may be an import.
        images = self._configured() if what == "import" else ()
        if name not in images and name not in self._snapshots.latest().observed.images.images:
            raise WebProblem(HTTPStatus.NOT_FOUND, f"There is no image {name}.")
        if what == "build":
            self._zk.images.request_build(name)
        elif what == "import":
            try:
                source = ImageSource.of_request(body)
            except InvalidRecord as problem:
                raise WebProblem(HTTPStatus.BAD_REQUEST, f"{problem}.") from None
            self._zk.images.request_build(name, source)
        else:
            self._zk.images.set_paused(name, what == "pause")
        self._log(wish, f"image {name}", f"import of {source.shown}" if what == "import" else what)
        return {"name": name, "what": what}

    def _log(self, wish: Wish, subject: str, what: str) -> None:
        log.info("%s: %s by %s: %s", subject, what, wish.operator, wish.reason)


def known_names(kind: str, seen: Observed) -> set[str]:
    """Names of providers, pools, labels, hosts or launchers that running launchers know."""
    if kind == "host":
        full = {host.name for status in seen.statuses for host in status.hosts}
        return full | {host_name(name) for name in full}
    if kind == "label":
        return set(seen.labels)
    pools = seen.pools.values()
    if kind == "launcher":
        return {pool.host for pool in pools}
    return {pool.provider if kind == "provider" else pool.name for pool in pools}


@dataclass(frozen=True)
class Access:
    """Of a site with ``webapp.auth.authenticators``.

    :param require_login: who has not logged in sees nothing.
    :param origins: addresses of the pages as browsers see them, beside that of the request.
    :param browser_logins: providers at which a browser can log in, by the names of their authenticators.
    """

    tokens: Tokens
    actions: Actions
    require_login: bool = False
    origins: Sequence[str] = ()
    browser_logins: Mapping[str, BrowserLogin] = field(default_factory=dict)


# Which buttons a page has for operators.

API: Final = "/api/v1"
#: Subjects of one page that have buttons. A filter of the page chooses others.
MOST_SUBJECTS: Final = 50


def of_node(node: Node) -> list[PageAction]:
    """Hold and delete, unless it goes already."""
    if node.state in (states.DELETING, states.DELETED):
        return []
    subject, delete = f"Node {node.key}", f"{API[1:]}/{address('nodes', node.key, 'delete')}"
    return [
        PageAction("Hold", f"{API[1:]}/{address('nodes', node.key, 'hold')}", may_end=True, subject=subject),
        PageAction("Delete", delete, subject=subject, sure=f"Delete node {node.key}"),
    ]


def of_subject(kind: str, name: str, seen: Observed) -> list[PageAction]:
    """What `MODES` allows for a provider, pool, label, host or launcher; or the end of what was begun."""
    if not name.isprintable() or name in ("", ".", ".."):
        # No address can name it.
        return []
    subject = f"{kind.capitalize()} {name}"
    begun = seen.maintenance_of((kind, one) for one in _names(kind, name))
    if begun:
        word = "Release" if begun[0].mode is Mode.QUARANTINE else "Resume"
        target = f"{API[1:]}/{address('maintenance', kind, begun[0].name)}/end"
        return [PageAction(word, target, needs_reason=False, subject=subject)]
    target = f"{API[1:]}/{address('maintenance', kind, name)}"
    return [
        PageAction(
            mode.value.capitalize(),
            target,
            mode=mode.value,
            may_end=True,
            subject=subject,
            sure="" if mode is Mode.PAUSE else f"{mode.value.capitalize()} {kind} {name}",
        )
        for mode in MODES[kind]
    ]


def of_row(kind: str, request: Request, seen: Observed) -> list[PageAction]:
    """Those of the subject in the row of a list that its address names (``act``)."""
    name = request.query_params.get("act", "")
    return of_subject(kind, name, seen) if name in known_names(kind, seen) else []


def of_subjects(kind: str, names: Iterable[str], seen: Observed) -> list[PageAction]:
    """Those of several subjects of one kind, each once, of at most `MOST_SUBJECTS`."""
    chosen = list(dict.fromkeys(names))[:MOST_SUBJECTS]
    return [action for name in chosen for action in of_subject(kind, name, seen)]


def _names(kind: str, name: str) -> list[str]:
    """Names by which a maintenance record may name the subject."""
    return [name, host_name(name)] if kind == "host" else [name]


def of_form(request: Request, body: Mapping[str, Any], seen: Observed) -> PageAction | None:
    """The button whose form sends a request; None = there is none any more."""
    path = request.path_params
    if "id" in path:
        node = seen.nodes.get(path["id"])
        found = [] if node is None else of_node(node)
    elif "kind" in path:
        found = of_subject(path["kind"], path["name"], seen)
    else:
        image = seen.images.images.get(path["name"])
        found = [] if image is None else of_image(image.name, paused=image.paused)
    mode, place = body.get("mode", ""), place_of(request)
    return next((action for action in found if (action.target, action.mode) == (place, mode)), None)


def of_image(name: str, *, paused: bool) -> list[PageAction]:
    """Build, and pause or unpause."""
    other = "unpause" if paused else "pause"
    target = f"{API[1:]}/{address('images', name)}"
    return [PageAction(what.capitalize(), f"{target}/{what}", subject=f"Image {name}") for what in ("build", other)]


# The addresses.

#: Changes that are made at a time.
THREADS: Final = 2
#: Modes of maintenance that must be confirmed.
_TAKE_MUCH: Final = (Mode.DRAIN.value, Mode.QUARANTINE.value)
#: One of `Actions`.
Change = Callable[[Fields, Fields, Wish], Fields]


def routes(actions: Actions, frame: Frame) -> list[BaseRoute]:
    """A route for each kind of change."""
    # Not those of pages: a change waits for locks and for ZooKeeper.
    threads = CapacityLimiter(THREADS)
    maintenance = f"{API}/maintenance/{{kind}}/{{name:path}}"

    def route(path: str, change: Change, *methods: str, reason_needed: bool = True) -> Route:
        async def changed(request: Request, body: Mapping[str, Any]) -> Response:
            """Raises WebProblem."""
            _check_path(request.path_params)
            if is_form(request) and _takes_much(path, body) and body.get("sure") != "yes":
                text = "Confirm the change: set the mark beside the button."
                raise WebProblem(HTTPStatus.BAD_REQUEST, text, field="sure")
            wish = _wish(request, body, reason_needed=reason_needed)
            try:
                done = await run_sync(change, request.path_params, body, wish, limiter=threads)
            except ZKConnectionError as error:
                text = f"ZooKeeper cannot be reached: {error}. Try again."
                raise WebProblem(HTTPStatus.SERVICE_UNAVAILABLE, text) from None
            back = body.get("back")
            if not isinstance(back, str) or not back:
                return JSONResponse(dict(done))
            if request.headers.get("hx-request") == "true":
                return Response(headers={"HX-Redirect": own_address_from(back)})
            return RedirectResponse(own_address(request, back), HTTPStatus.SEE_OTHER)

        async def answer(request: Request) -> Response:
            body: Mapping[str, Any] = {}
            try:
                body = await read_body(request)
                return await changed(request, body)
            except WebProblem as problem:
                if not is_form(request) or "text/html" not in request.headers.get("accept", ""):
                    raise
                # The form again: what was typed is still there.
                button = partial(of_form, request, body)
                return await run_sync(frame.form, request, button, body, problem, limiter=threads)

        return Route(path, answer, methods=list(methods))

    return [
        route(f"{API}/nodes/{{id}}/hold", actions.hold, "POST"),
        route(f"{API}/nodes/{{id}}/delete", actions.delete, "POST"),
        # A form can only POST: what ends with ``/end`` is for it.
        route(f"{maintenance}/end", actions.end, "POST", reason_needed=False),
        route(maintenance, actions.begin, "PUT", "POST"),
        route(maintenance, actions.end, "DELETE", reason_needed=False),
        route(f"{API}/images/{{name}}/{{what}}", actions.image, "POST"),
    ]


def _takes_much(path: str, body: Mapping[str, Any]) -> bool:
    """Does the change take nodes away, or what runs on them?

    :param path: of the route, e.g. ``/api/v1/nodes/{id}/delete``.
    """
    return path.endswith("/delete") or (path.endswith("/{name:path}") and body.get("mode") in _TAKE_MUCH)


def _check_path(given: Mapping[str, str]) -> None:
    if given.get("kind", "pool") not in MODES:
        raise WebProblem(HTTPStatus.NOT_FOUND, f"The kind must be one of: {', '.join(MODES)}.")
    if given.get("what", "build") not in ("build", "import", "pause", "unpause"):
        raise WebProblem(HTTPStatus.NOT_FOUND, "An image has: build, import, pause, unpause.")
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
        text = f"reason must be a text of at most {MOST_TEXT} characters."
        raise WebProblem(HTTPStatus.BAD_REQUEST, text, field="reason")
    reason = " ".join("".join(letter if letter.isprintable() else " " for letter in reason).split())
    if reason_needed and not reason:
        raise WebProblem(HTTPStatus.BAD_REQUEST, "reason is required: other operators see it.", field="reason")
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
        raise WebProblem(HTTPStatus.BAD_REQUEST, f"until: {error}", field="until") from None
    if isinstance(given, bool) or not math.isfinite(until) or until <= now:
        text = "until must be later than now: seconds since the epoch, or e.g. 8h."
        raise WebProblem(HTTPStatus.BAD_REQUEST, text, field="until")
    return until


# What clients send: forms of our pages and JSON objects, both small.

#: A token of an OpenID Connect provider with many groups, or a reason, fits in.
MOST_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 100
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


# ``/login`` and ``/logout``: a token goes into a cookie that scripts cannot read.

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
        values = {"text": text, "next": target, "providers": list(self._access.browser_logins)}
        return Page("Log in", values, personal=True, template="login.html")

    async def _log_in(self, request: Request) -> Response:
        try:
            form = await read_body(request)
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
        auth_log.info("Login of %s (%s)", user.name, "operator" if user.operator else "viewer")
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
