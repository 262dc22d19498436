# SPDX-License-Identifier: Apache-2.0
"""`KeptConnections`: calls over connections that are open already, for less.

For each call requests and urllib3 prepare for redirections, retries, proxies, hooks, and answers that are read piece by
piece; that costs more than the call. Here is only the call. urllib3 still makes the connections, with TLS: a call for
which none is open takes the long way. Imported when a cloud is used: requests comes with openstacksdk.
"""

from __future__ import annotations

import contextlib
import http.client
import io
from typing import Any

import requests
import urllib3
from requests.structures import CaseInsensitiveDict
from requests.utils import get_encoding_from_headers
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ClosedPoolError

#: With one of these in its head, more is made of an answer.
_SPECIAL = ("Content-Encoding", "Set-Cookie")
#: Calls that change nothing in the cloud.
_READS = ("GET", "HEAD")


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
            connection: Any = self._get_conn()
        except ClosedPoolError:
            # The session was closed just now.
            return None
        try:
            if connection.is_closed:
                return None
            try:
                answer = _begin(connection, request, timeout)
                return None if answer is None else _answered(request, answer, answer.read())
            except TimeoutError as error:
                connection.close()
                raise requests.ReadTimeout(error, request=request) from error
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                raise requests.ConnectionError(error, request=request) from error
        finally:
            self._put_conn(connection)


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


def _answered(request: requests.PreparedRequest, answer: http.client.HTTPResponse, data: bytes) -> requests.Response:
    response = requests.Response()
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
