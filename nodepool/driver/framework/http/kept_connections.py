# SPDX-License-Identifier: Apache-2.0
"""`KeptConnections`: calls over connections that are kept, for less.

For each call requests and urllib3 prepare for redirections, retries, proxies, hooks, and answers that are read piece by
piece; that costs more than the call. Here is only the call. urllib3 still makes the connections, with TLS. Imported
when a provider is made, because requests takes long to import.
"""

from __future__ import annotations

import contextlib
import http.client
import io
from collections.abc import Callable
from typing import Any, TypeVar

import requests
import urllib3
from requests.structures import CaseInsensitiveDict
from requests.utils import get_encoding_from_headers
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ClosedPoolError, ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError

from nodepool.driver.framework.http.answer_reader import Bounds, BrokenAnswer, QuickAnswer, read_answer
from nodepool.guard import OnError

A = TypeVar("A")

#: With one of these in its head, more is made of an answer.
_SPECIAL = ("Content-Encoding", "Set-Cookie")
#: Calls that change nothing in the cloud.
_READS = ("GET", "HEAD")


class KeptResponse(requests.Response):
    """An answer over a connection that was kept. :param pool: of the connection."""

    def __init__(self, pool: KeptConnections) -> None:
        super().__init__()
        self.pool = pool


class KeptConnections(HTTPConnectionPool):
    """For a pool of connections to one host."""

    def exchange(self, request: requests.PreparedRequest, timeout: float) -> requests.Response | None:
        """Make one call, and read its answer; blocks. None = make it over a new connection.

        Either no connection is open, and nothing was sent; or the call only reads, and the cloud closed the connection
        before it answered. Clouds close what is idle: it may be at the moment of the call (O-19).

        :param request: its body is a text, bytes, or None.
        :param timeout: seconds for each wait.
        :raises requests.RequestException: of the kinds that requests would raise.
        """
        try:
            return self._over_kept(lambda connection: self._exchange(connection, request, timeout))
        except TimeoutError as error:
            raise requests.ReadTimeout(error, request=request) from error
        except (OSError, http.client.HTTPException) as error:
            raise requests.ConnectionError(error, request=request) from error

    def exchange_bytes(
        self, method: str, message: bytes, timeout: float, bounds: Bounds, *, opens: bool = False
    ) -> QuickAnswer | None:
        """As `exchange`, for a call that is there as bytes; not for HEAD.

        :param opens: a connection is opened if none is open.
        :raises OSError: there is no answer. TimeoutError if there is none in time; an error of requests if a connection
            could not be opened.
        """

        def work(connection: Any) -> QuickAnswer | None:
            if connection.is_closed and not (opens and self._open(connection, timeout)):
                return None
            return _exchange_bytes(connection, method, message, timeout, bounds)

        return self._with_connection(work)

    def _open(self, connection: Any, timeout: float) -> bool:
        """Open a connection; False = that did not work, and requests says better why: for example, with TLS."""
        connection.timeout = timeout
        try:
            connection.connect()
        except NewConnectionError as error:
            # For urllib3 a kind of the next one. Not tried twice: to find out that a name is unknown may take long.
            raise requests.ConnectionError(MaxRetryError(self, "/", error)) from error
        except ConnectTimeoutError as error:
            raise requests.ConnectTimeout(MaxRetryError(self, "/", error)) from error
        except TimeoutError as error:
            # Of the handshake: requests would not know that nothing was sent.
            raise requests.ConnectTimeout(error) from error
        except (OSError, HTTPError):
            connection.close()
            return False
        return True

    def _over_kept(self, work: Callable[[Any], A | None]) -> A | None:
        """Work with a connection that is open; None = there is none. After an error it is closed."""
        return self._with_connection(lambda connection: None if connection.is_closed else work(connection))

    def _with_connection(self, work: Callable[[Any], A | None]) -> A | None:
        """Work with a connection, open or not; None = there can be none any more. After an error it is closed."""
        try:
            connection: Any = self._get_conn()
        except ClosedPoolError:
            # The session was closed just now.
            return None
        try:
            with OnError(lambda _: connection.close()):
                return work(connection)
        finally:
            self._put_conn(connection)

    def _exchange(self, connection: Any, request: requests.PreparedRequest, timeout: float) -> requests.Response | None:
        answer = _begin(connection, request, timeout)
        return None if answer is None else _answered(KeptResponse(self), request, answer, answer.read())


def _exchange_bytes(connection: Any, method: str, message: bytes, timeout: float, bounds: Bounds) -> QuickAnswer | None:
    sock = connection.sock
    sock.settimeout(timeout)
    try:
        # Who does not want to read it all may have answered all the same.
        with contextlib.suppress(BrokenPipeError):
            sock.sendall(message)
        answer = read_answer(sock, bounds)
    except ConnectionError as error:
        if method not in _READS or isinstance(error, BrokenAnswer):
            raise
        connection.close()
        return None
    if not answer.keep:
        connection.close()
    return answer


def _begin(connection: Any, request: requests.PreparedRequest, timeout: float) -> http.client.HTTPResponse | None:
    """Send a call, and read the head of its answer; None = it only reads, and the connection was closed."""
    connection.timeout = timeout
    connection.sock.settimeout(timeout)
    headers: Any = request.headers
    try:
        # Who does not want to read it all may have answered all the same.
        with contextlib.suppress(BrokenPipeError):
            connection.request(request.method, request.path_url, body=request.body, headers=headers)
        # That of urllib3 makes an object to be read piece by piece.
        return http.client.HTTPConnection.getresponse(connection)
    except ConnectionError:
        if request.method not in _READS:
            raise
        connection.close()
        return None


def _answered(
    response: KeptResponse, request: requests.PreparedRequest, answer: http.client.HTTPResponse, data: bytes
) -> requests.Response:
    headers = urllib3.HTTPHeaderDict(answer.headers.items())
    response.status_code = answer.status
    response.headers = CaseInsensitiveDict(headers)
    response.encoding = get_encoding_from_headers(response.headers)
    response.reason = answer.reason
    response.url = request.url or ""
    response.request = request
    if any(name in response.headers for name in _SPECIAL):
        response.raw = urllib3.HTTPResponse(
            io.BytesIO(data), headers, answer.status, preload_content=False, original_response=answer
        )
    else:
        # Where requests keeps what was read.
        response._content = data
    return response
