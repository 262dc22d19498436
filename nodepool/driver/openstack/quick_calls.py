# SPDX-License-Identifier: Apache-2.0
"""`QuickCalls`: the calls of a launch, made as keystoneauth made the last one, without it (ADR 22).

keystoneauth and requests find out anew for each call what has not changed since the last one: the endpoint, the
versions, the headers, proxies, certificates. That costs three times as much as the call. Here a call is made with what
the last successful call of keystoneauth had, over a connection that is open, with the token that keystoneauth has by
now. What is not as usual takes the way of keystoneauth, which also logs in anew, follows redirections and repeats.

Imported when a cloud is used: requests and keystoneauth come with openstacksdk.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from keystoneauth1 import exceptions

from nodepool.clock import monotonic
from nodepool.driver.framework.http import bounded
from nodepool.driver.framework.http.answer_reader import Bounds, QuickAnswer
from nodepool.driver.framework.http.kept_connections import KeptConnections, KeptResponse
from nodepool.driver.openstack.clouds import VERSION_IN_PATH

#: So long calls are made as the last one of keystoneauth, in seconds. Then it finds everything out again.
TEMPLATE_SECONDS: Final = 60.0
#: The path of a call that means the same to every server, whoever writes it.
_PLAIN_PATH: Final = re.compile(r"(/[A-Za-z0-9_.~-]+)+")
#: Arguments that change nothing but the body.
_KNOWN: Final = frozenset({"json", "raise_exc"})
_METHODS: Final = frozenset({"GET", "POST", "PUT", "DELETE"})
#: Headers that are made for each call. Lists are long, and take the other way: here nothing is compressed.
_OF_THE_CALL: Final = frozenset({"x-auth-token", "content-type", "content-length", "accept-encoding", "host"})
#: What may stand in a line of a head.
_LINE: Final = re.compile(r"[\t\x20-\x7e]*")


class _Template(NamedTuple):
    """What is the same for all calls to an endpoint.

    :param prefix: of all paths, e.g. ``/v2.1``. ``head``: the lines of the head that do not change.
    :param until: monotonic seconds.
    """

    pool: KeptConnections
    url: str
    prefix: str
    head: bytes
    until: float


class QuickCalls:
    """Of one client. Any thread.

    :param auth_headers: the headers with the token; logs in when the token is old. May block, and raise.
    :param turns: a call is made within it.
    :param timeout: seconds for each wait.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        auth_headers: Callable[[], Mapping[str, str] | None],
        turns: AbstractContextManager[None],
        timeout: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._auth_headers = auth_headers
        self._turns = turns
        self._timeout = timeout
        self._clock = clock
        # Replaced as a whole, so that no lock is needed.
        self._template: _Template | None = None

    def learn(self, path: str, response: Any) -> None:
        """keystoneauth has made a call. :param path: as it was given, below the endpoint."""
        if not isinstance(response, KeptResponse) or not 200 <= response.status_code < 300:
            return
        if "Set-Cookie" in response.headers:
            return
        request = response.request
        place = urllib.parse.urlsplit(request.url or "")
        if not place.path.endswith(path) or not _PLAIN_PATH.fullmatch(path) or "@" in place.netloc:
            return
        prefix = place.path.removesuffix(path)
        # Without a version the service was not found properly.
        if VERSION_IN_PATH.search(prefix) is None or not _PLAIN_PATH.fullmatch(prefix):
            return
        lines = [f"Host: {place.netloc}", "Accept-Encoding: identity"]
        for name, value in request.headers.items():
            if name.lower() == "cookie":
                # A load balancer's: these change.
                return
            if name.lower() not in _OF_THE_CALL:
                lines.append(f"{_text(name)}: {_text(value)}")
        if not all(_LINE.fullmatch(line) for line in lines):
            return
        head = "\r\n".join(lines).encode()
        url = f"{place.scheme}://{place.netloc}{prefix}"
        self._template = _Template(response.pool, url, prefix, head, self._clock() + TEMPLATE_SECONDS)

    def call(self, method: str, path: str, arguments: Mapping[str, Any]) -> QuickAnswer | None:
        """Make a call, if it is a usual one; blocks. None = nothing was done that counts: keystoneauth is to make it.

        :param arguments: for the ``request`` of a keystoneauth adapter.
        :raises keystoneauth1.exceptions.ClientException: as it would raise, e.g. ConnectFailure.
        """
        template = self._template
        if (
            template is None
            or self._clock() >= template.until
            or method not in _METHODS
            or not arguments.keys() <= _KNOWN
            or arguments.get("raise_exc") is not False
            or not _PLAIN_PATH.fullmatch(path)
        ):
            return None
        message = self._message(template, method, path, arguments.get("json"))
        if message is None:
            return None
        with self._turns:
            answer = self._exchange(template, method, path, message)
        if answer is not None and (300 <= answer.status_code < 400 or answer.status_code == 401):
            # Elsewhere, or with another token. Nothing was done.
            self._template = None
            return None
        if answer is not None and "Set-Cookie" in answer.headers:
            # requests keeps cookies.
            self._template = None
        if answer is not None and "Content-Encoding" in answer.headers:
            self._template = None
            if method == "GET":
                return None
            raise exceptions.ConnectFailure(f"{template.url}{path}: the answer is compressed, which was not asked for")
        return answer

    def _message(self, template: _Template, method: str, path: str, body: Any) -> bytes | None:
        """A call as bytes; None = there is something unusual about it."""
        token = self._auth_headers()
        if token is None or token.keys() != {"X-Auth-Token"} or not _LINE.fullmatch(token["X-Auth-Token"]):
            return None
        content = b""
        lines = f"X-Auth-Token: {token['X-Auth-Token']}\r\n"
        if body is not None:
            try:
                content = json.dumps(body).encode()
            except (TypeError, ValueError):
                # keystoneauth writes more kinds of values.
                return None
            lines += "Content-Type: application/json\r\n"
        if method != "GET":
            lines += f"Content-Length: {len(content)}\r\n"
        first = f"{method} {template.prefix}{path} HTTP/1.1\r\n"
        return b"".join((first.encode(), template.head, b"\r\n", lines.encode(), b"\r\n", content))

    def _exchange(self, template: _Template, method: str, path: str, message: bytes) -> QuickAnswer | None:
        where = f"{template.url}{path}"
        try:
            bounds = Bounds(bounded.MAX_ANSWER_BYTES, bounded.ANSWER_TIMES * self._timeout)
            return template.pool.exchange_bytes(method, message, self._timeout, bounds)
        except TimeoutError as error:
            raise exceptions.ConnectTimeout(f"Request to {where} timed out") from error
        except OSError as error:
            raise exceptions.ConnectFailure(f"Unable to establish connection to {where}: {error}") from error


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
