# SPDX-License-Identifier: Apache-2.0
"""`KubeClient`: calls to the API of a cluster, as JSON."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from nodepool import fast_json
from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.framework.http.no_answer import no_answer
from nodepool.driver.kubernetes.access import ApiAnswer, ClusterAccess
from nodepool.driver.kubernetes.connection import ClusterConnection
from nodepool.driver.kubernetes.errors import error_of

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 30.0
#: Objects in one answer of a list.
PAGE: Final = 500
#: So long the API keeps a watch open.
WATCH_SECONDS: Final = 240
#: Without an event or a bookmark for so long a watch is dead. The API sends bookmarks about once a minute.
SILENCE_SECONDS: Final = 90.0

Object = dict[str, Any]


class KubeClient:
    """Calls of one provider; they block. Thread-safe.

    The package ``kubernetes`` makes the connections: a kubeconfig has authorities, client certificates, the server's
    name, a proxy, or no verification, for each cluster. Calls go over those that are open as those of
    `nodepool.driver.framework.http` do.

    Raises what `nodepool.driver.kubernetes.errors` makes of answers, and `CloudAway` when there is none.
    """

    def __init__(self, connection: ClusterConnection) -> None:
        self.connection = connection
        self.provider = connection.provider
        self._lock = threading.Lock()
        #: Open streams, to be broken off by `close`.
        self._streams: set[Any] = set()
        self._closed = False

    def call(self, method: str, path: str, body: Object | None = None, query: Mapping[str, Any] | None = None) -> Any:
        """One call; returns the answer."""
        answer: ApiAnswer = self._send(method, path, body, query, stream=False)
        try:
            return _value(answer.content)
        except (ValueError, RecursionError):
            raise CloudAway(f"{self._head(method, path)}: the answer is no JSON") from None

    def list(self, path: str, selector: str = "", fields: str = "") -> tuple[list[Object], str]:
        """All objects of a kind, in pages, and the version at which they were so.

        :param selector: of labels; ``fields``: of fields.
        """
        found: list[Object] = []
        query: dict[str, Any] = {"limit": PAGE, **_selected(selector, fields)}
        while True:
            answer = self.call("GET", path, query=query)
            meta = answer.get("metadata") or {}
            found += answer.get("items") or []
            if not meta.get("continue"):
                return found, str(meta.get("resourceVersion") or "")
            query["continue"] = meta["continue"]

    def watch(self, path: str, version: str, selector: str = "", fields: str = "") -> Iterator[Object]:
        """Events of a kind since a version, as they come; ends after some minutes. Blocks between them."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
            "resourceVersion": version,
            **_selected(selector, fields),
        }
        response = self._send("GET", path, None, query, stream=True)
        head = self._head("WATCH", path)
        with self._lock:
            self._streams.add(response)
            closed = self._closed
        try:
            if closed:
                # `close` did not know this stream yet.
                raise CloudAway(f"{head}: the provider was stopped", maybe_done=False)
            yield from self._events(response, head)
        finally:
            with self._lock:
                self._streams.discard(response)
            response.close()

    def _events(self, response: Any, head: str) -> Iterator[Object]:
        from urllib3.exceptions import HTTPError

        from nodepool.driver.kubernetes.pieces import pieces

        rest = b""
        try:
            for piece in pieces(response):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _value(line)
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # AttributeError: urllib3 lost its file when the stream was closed by another thread.
            raise CloudAway(f"{head}: {_said(error)}") from None

    def close(self) -> None:
        """Break off watches; later ones fail."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for response in streams:
            sock = getattr(getattr(response, "connection", None), "sock", None)
            if sock is not None:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # The other side was faster.
                    continue

    # -- inside --

    def _head(self, method: str, path: str) -> str:
        return f"Provider {self.provider}: {method} {path}"

    def _send(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, Any] | None,
        *,
        stream: bool,
    ) -> Any:
        """An `ApiAnswer`, or the response of urllib3 for a stream. Raises what `error_of` makes of errors."""
        head = self._head(method, path)
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else _text(body)
        refused: ClusterAccess | None = None
        response: Any
        while True:
            if self._closed:
                raise CloudAway(f"{head}: the provider was stopped", maybe_done=False)
            access = self.connection.access(refused)
            response = self._stream(access, head, target) if stream else self._call(access, head, method, target, data)
            # Refused credentials may have been replaced since they were read.
            if response.status != 401 or refused is not None:
                break
            if stream:
                response.close()
            refused = access
        if not 200 <= response.status < 300:
            content = response.read() if stream else response.content
            raise error_of(head, response.status, content)
        return response

    def _call(self, access: ClusterAccess, head: str, method: str, target: str, data: bytes | None) -> ApiAnswer:
        try:
            answer = access.exchange(method, target, data, READ_SECONDS)
        except OSError as error:
            raise CloudAway(f"{head}: {_said(error)}") from None
        if answer is None:
            # There is no open connection.
            response = self._request(access.calls, access, head, method, target, data, READ_SECONDS, stream=False)
            answer = ApiAnswer(response.status, response.data)
        return answer

    def _stream(self, access: ClusterAccess, head: str, target: str) -> Any:
        return self._request(access.streams, access, head, "GET", target, None, SILENCE_SECONDS, stream=True)

    def _request(
        self,
        pool: Any,
        access: ClusterAccess,
        head: str,
        method: str,
        target: str,
        data: bytes | None,
        seconds: float,
        stream: bool,
    ) -> Any:
        import urllib3
        from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ProxyError, SSLError

        headers = {"Accept": "application/json", **access.headers()}
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            return pool.request(
                method,
                access.host + target,
                body=data,
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds),
                preload_content=not stream,
                retries=False,
                redirect=False,
            )
        except (NewConnectionError, ConnectTimeoutError, ProxyError, SSLError) as error:
            raise CloudAway(f"{head}: {_said(error)}", maybe_done=False) from None
        except (HTTPError, OSError) as error:
            raise CloudAway(f"{head}: {_said(error)}") from None


def _selected(selector: str, fields: str) -> dict[str, str]:
    """For a query."""
    named = {"labelSelector": selector, "fieldSelector": fields}
    return {key: text for key, text in named.items() if text}


def _value(content: bytes) -> Any:
    """The value in a JSON text. Raises ValueError, RecursionError."""
    try:
        return fast_json.loads(content)
    except ValueError:
        return json.loads(content)


def _text(value: Object) -> bytes:
    """A JSON text."""
    try:
        return fast_json.dumps(value)
    except ValueError:
        return json.dumps(value).encode()


def _said(error: BaseException) -> str:
    text = one_line(f"{type(error).__name__}: {error}")
    return no_answer(text) or text
