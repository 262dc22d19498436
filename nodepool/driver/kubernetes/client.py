# SPDX-License-Identifier: Apache-2.0
"""Calls to the API of a cluster, as JSON.

First the client, then paths of the API and calls that several parts make, then errors.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlencode

from nodepool import fast_json
from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    LoginRefused,
    NotFoundByProxy,
    one_line,
    retry_after,
)
from nodepool.driver.framework.http.rest_calls import PROXY, RestApi, RestCalls
from nodepool.driver.framework.rate import BucketSize
from nodepool.driver.kubernetes.connection import READ_SECONDS, ClusterConnection
from nodepool.exceptions import LaunchError, RuntimeConfigurationException

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer

#: Objects in one answer of a list.
PAGE: Final = 500
#: More pages than any list can have.
MAX_PAGES: Final = 1000
#: The status of a version, or of a page, that the API has forgotten.
EXPIRED: Final = 410
#: So long the API keeps a watch open.
WATCH_SECONDS: Final = 240
#: Of a watch, taken at a time.
_PIECE_BYTES: Final = 1 << 16
#: The class of all calls: priority and fairness of the API counts those of one account together.
_CLASS: Final = "api"

Object = dict[str, Any]


class KubeApi(RestApi):
    """What the API answers, see `error_of`."""

    def seconds_left_alone(self, kind: str, answer: HttpAnswer) -> float | None:
        # As for client-go: an error of the server with ``Retry-After``.
        return retry_after(answer.headers) if answer.status >= 500 else None

    def error(self, head: str, answer: HttpAnswer) -> Exception:
        return error_of(head, answer.status, answer.content)


class KubeClient(RestCalls):
    """Calls of one provider; they block. Thread-safe.

    What the API answers sets the pace (CM-5). A call that it puts off is made again later.

    Raises what `nodepool.driver.kubernetes.client` makes of answers, and `CloudAway` when there is none.
    """

    #: One that hangs is noticed in time: its callers ask again.
    read_attempts: ClassVar[int] = 1

    def __init__(self, connection: ClusterConnection) -> None:
        super().__init__(connection.provider, connection, KubeApi(), connection, {}, BucketSize(1, 0))
        self.connection = connection
        self._lock = threading.Lock()
        #: Open streams, to be broken off by `close`.
        self._streams: set[Any] = set()

    def _data(self, answer: HttpAnswer, what: str) -> Any:
        # A redirection is not followed: nothing was done.
        if answer.status >= 300:
            raise error_of(self._head(what), answer.status, answer.content)
        return super()._data(answer, what)

    def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, Any] | None = None,
        permit: Callable[[], None] = lambda: None,
    ) -> Any:
        """One call; returns the object in the answer, {} = there is none.

        :param permit: asked when its turn has come, each time; raises an error if the call is not to be made any more.
        """
        what = f"{method} {path}"
        given: dict[str, Any] = {"body": body, "query": query, "seconds": READ_SECONDS, "permit": permit}
        found = self.call(_CLASS, method, path, what, **given).data
        if found is not None and not isinstance(found, dict):
            raise CloudAway(f"{self._head(what)}: the answer is no object")
        return found or {}

    def get(self, path: str) -> Object:
        """One object, with its metadata. Raises CloudNotFound."""
        found: Object = self.ask("GET", path)
        if not _is_object(found):
            raise CloudAway(f"{self._head(f'GET {path}')}: the answer has no metadata")
        return found

    def list(self, path: str, selector: str = "", fields: str = "") -> tuple[list[Object], str]:
        """All objects of a kind, in pages, and the version at which they were so.

        :param selector: of labels; ``fields``: of fields.
        """
        found: list[Object] = []
        head = self._head(f"GET {path}")
        query: dict[str, Any] = {"limit": PAGE, **_selected(selector, fields)}
        for _ in range(MAX_PAGES):
            try:
                answer = self.ask("GET", path, query=query)
            except CloudRefused as error:
                if error.status != EXPIRED or "continue" not in query:
                    raise
                # The pages before are too old by now: all at once, as client-go's pager does it.
                found, query = [], _selected(selector, fields)
                continue
            items = answer.get("items")
            # A list without any may say so with null, but what is no list does not say that there is nothing.
            if "items" not in answer or not isinstance(items, list | None) or not all(map(_is_object, items or ())):
                raise CloudAway(f"{head}: the answer is no list of objects")
            meta = answer.get("metadata") or {}
            found += items or []
            if not meta.get("continue"):
                return found, str(meta.get("resourceVersion") or "")
            query["continue"] = meta["continue"]
        raise CloudAway(f"{head}: the list has no end")

    def watch(self, path: str, version: str, selector: str = "", fields: str = "") -> Iterator[Object]:
        """Events of a kind since a version, as they come; ends after some minutes. Blocks between them."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
            "resourceVersion": version,
            **_selected(selector, fields),
        }
        response, head = self._open(path, query), self._head(f"WATCH {path}")
        with self._lock:
            self._streams.add(response)
        try:
            if self.stopped.is_set():
                # `close` did not know this stream yet.
                raise CloudAway(f"{head}: the provider was stopped", maybe_done=False)
            yield from self._events(response, head)
        finally:
            with self._lock:
                self._streams.discard(response)
            response.close()

    def _open(self, path: str, query: Mapping[str, Any]) -> Any:
        """Begin a watch; the response of urllib3."""
        from nodepool.driver.framework.http.plain_http import NoAnswer

        what = f"WATCH {path}"
        turn = self._turn(_CLASS, what)
        headers = self.connection.headers()
        try:
            response = self.connection.stream(f"{path}?{urlencode(query)}", headers)
        except NoAnswer as error:
            raise CloudAway(f"{self._head(what)}: {error}", maybe_done=error.maybe_done) from error
        if response.status == 429:
            turn.throttled(retry_after(response.headers))
        if response.status == 401:
            self.connection.refused(headers)
        if response.status >= 300:
            raise error_of(self._head(what), response.status, response.read())
        return response

    def _events(self, response: Any, head: str) -> Iterator[Object]:
        from urllib3.exceptions import HTTPError

        rest = b""
        try:
            for piece in response.stream(_PIECE_BYTES):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _event(line)
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # AttributeError: urllib3 lost its file when the stream was closed by another thread.
            raise CloudAway(f"{head}: {one_line(f'{type(error).__name__}: {error}')}") from None

    def close(self) -> None:
        """Break off watches; later ones fail."""
        super().close()
        with self._lock:
            streams = list(self._streams)
        for response in streams:
            sock = getattr(getattr(response, "connection", None), "sock", None)
            # The other side may be faster.
            with contextlib.suppress(OSError):
                if sock is not None:
                    sock.shutdown(socket.SHUT_RDWR)


def _event(line: bytes) -> Object:
    """Of a watch. Raises ValueError: it is none."""
    found = fast_json.loads_any(line)
    about = found.get("object") if isinstance(found, dict) else None
    if not isinstance(about, dict) or not (found.get("type") in ("ERROR", "BOOKMARK") or _is_object(about)):
        raise ValueError(f"no event: {one_line(str(found))[:100]}")
    return dict(found)


def _is_object(found: Any) -> bool:
    meta = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(meta, dict) and bool(meta.get("name"))


def _selected(selector: str, fields: str) -> dict[str, str]:
    """For a query."""
    named = {"labelSelector": selector, "fieldSelector": fields}
    return {key: text for key, text in named.items() if text}


# Paths of the API, and the calls that more than one part makes.

NAMESPACES: Final = "/api/v1/namespaces"
PROJECTS: Final = "/apis/project.openshift.io/v1/projects"
PROJECT_REQUESTS: Final = "/apis/project.openshift.io/v1/projectrequests"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
CLUSTER_ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces"


def core(plural: str, place: str | None = None) -> str:
    """Path of a kind of the core group, in a namespace or (None) in all of them."""
    return f"{NAMESPACES}/{place}/{plural}" if place else f"/api/v1/{plural}"


def create(client: KubeClient, path: str, body: Object, permit: Callable[[], None] = lambda: None) -> Object | None:
    """Create an object; None = there is one of the name, or the answer does not have it. Blocks.

    :param permit: see `KubeClient.ask`.
    """
    try:
        made: Object = client.ask("POST", path, body, permit=permit)
    except CloudRefused as error:
        if exists(error):
            return None
        raise
    return made if made.get("metadata") else None


def delete(client: KubeClient, path: str, uid: str | None) -> None:
    """Order the deletion of an object; what belongs to it is deleted behind its back. Blocks for the order only.

    :param uid: of the object; another one of the same name is not deleted. None = whichever it is.
    :raises CloudNotFound: it is deleted; OtherOfTheName: and there is another one.
    """
    body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    if uid:
        body["preconditions"] = {"uid": uid}
    try:
        client.ask("DELETE", path, body)
    except CloudRefused as error:
        if error.status != 409:
            raise
        if "uid" in error.said.lower() and "precondition" in error.said.lower():
            raise OtherOfTheName(str(error), 404, error.said) from None
        # It is being deleted already.


# What the API's answers mean, in the words of `nodepool.driver.framework.cloud_errors`. Pure.

ALREADY_EXISTS: Final = "AlreadyExists"
#: How the API says that a limit keeps an object out: of a ResourceQuota, of a LimitRange, of OpenShift's projects.
_QUOTA_TEXTS: Final = (
    *("exceeded quota", "failed quota", "usage per container", "usage per pod", "to limit ratio"),
    "cannot create more than",
)
#: What the API says of a path that it does not know, e.g. of a group that the cluster does not have.
_NO_SUCH_PATH: Final = "404 page not found"
#: A namespace takes nothing any more, because it was deleted by others.
_ENDING_TEXT: Final = "because it is being terminated"
#: Refused for now: something that the cluster makes by itself is not there yet. Before Kubernetes 1.24 that may also be
#: the token of an account that is there.
_NOT_YET_TEXTS: Final = ("error looking up service account", "no api token found for service account")


class OtherOfTheName(CloudNotFound):
    """The object of the call is deleted, and there is another one of its name."""


class NotYet(CloudAway):
    """The cluster has not made something yet that it makes by itself. The call had no effect."""

    def __init__(self, text: str) -> None:
        super().__init__(text, maybe_done=False)


class InvalidObject(RuntimeConfigurationException):
    """The API never takes such an object: the label is wrong."""


def status_of(body: bytes) -> tuple[str, str]:
    """Reason and message of an answer that is no success; both may be empty."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return "", one_line(body[:2000].decode("utf-8", "replace"))
    if not isinstance(found, dict):
        return "", one_line(str(found))
    return str(found.get("reason") or ""), one_line(str(found.get("message") or ""))


def error_of(head: str, status: int, body: bytes) -> LaunchError | RuntimeConfigurationException:
    """The error for an answer that is no success.

    :param head: whose call it was, and which.
    :param status: of HTTP.
    """
    reason, message = status_of(body)
    if status == 404 and not body.lstrip().startswith(b"{"):
        # Not the API's word on an object, which is a ``Status``.
        if message == _NO_SUCH_PATH:
            return CloudRefused(f"{head}: {status} {message}", status, f"{status} {message}")
        return NotFoundByProxy(f"{head}: {status} {message}; {PROXY}", maybe_done=False)
    return refusal(head, status, reason, message)


def refusal(head: str, status: int, reason: str, message: str) -> LaunchError | RuntimeConfigurationException:
    """The same, from what the answer says."""
    said = f"{status} {reason}: {message}" if reason else f"{status} {message}"
    text, lower = f"{head}: {said}", message.lower()
    if any(found in lower for found in _NOT_YET_TEXTS):
        return NotYet(text)
    if status == 401:
        return LoginRefused(f"{text}; renew the credentials of the kubeconfig", reason)
    if status == 404:
        return CloudNotFound(text, status, said, reason)
    if status == 403 and any(found in lower for found in _QUOTA_TEXTS):
        return CloudQuota(text, status, said, reason)
    if status == 403 and _ENDING_TEXT in lower:
        return CloudRefused(text, status, said, reason)
    if status == 403:
        return CloudSetup(f"{text}; {_remedy(lower)}", status, said, reason)
    if status == 429 or status >= 500:
        return CloudAway(text, maybe_done=status != 429, code=reason)
    if status in (400, 422) and reason in ("Invalid", "BadRequest"):
        return InvalidObject(text)
    return CloudRefused(text, status, said, reason)


def _remedy(lower: str) -> str:
    if "violates podsecurity" in lower:
        return "let labels of the label set pod-security.kubernetes.io/enforce, or ask for less in it"
    if "security context constraint" in lower:
        return "give the service account a security context constraint that allows it, or ask for less in the label"
    if "attempting to grant" in lower:
        return "give the launcher what it is to grant, see the documentation of the driver"
    return "give the launcher's account this right, see the documentation of the driver"


def exists(error: CloudRefused) -> bool:
    """Did a creation find an object of the name?"""
    return error.status == 409 and error.code == ALREADY_EXISTS
