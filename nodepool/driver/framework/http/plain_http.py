# SPDX-License-Identifier: Apache-2.0
"""`PlainHttp`: one HTTP call. It has an answer that is bounded in size and time, or it says that there was none.

Redirects are not followed, cookies are not kept, and a netrc file is not read. Proxies and certificate authorities are
those of the environment (``HTTPS_PROXY``, ``NO_PROXY``, ``REQUESTS_CA_BUNDLE``). Certificates are always verified.

Imported when a provider is made, because requests takes long to import.
"""

from __future__ import annotations

import codecs
import http.cookiejar
import logging
import socket
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeGuard

import requests
from urllib3 import exceptions as u
from urllib3.connection import HTTPConnection

from nodepool import fast_json
from nodepool.driver.framework.cloud_errors import no_answer, one_line, without_login
from nodepool.driver.framework.http.connections import BoundedAdapter, HttpSession, QuickExchange, mount
from nodepool.version import release_string

#: Time-out of a call that names none, in seconds: for each wait for bytes. The whole answer has twice as long.
DEFAULT_SECONDS: Final = 60.0
#: Reasons of urllib3 for a call that never left this machine.
_NOT_SENT: Final = (u.NewConnectionError, u.ConnectTimeoutError, u.SSLError, u.ProxyError)
_KEEP_ALIVE: Final = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)]

#: A body: bytes, or pieces of one that is too long for the memory.
Body = bytes | Iterable[bytes] | None


class NoAnswer(Exception):
    """A call got no answer, or none that is HTTP.

    :param text: one line with address and cause, without logins.
    :param maybe_done: the server may have received the call and carried it out.
    """

    def __init__(self, text: str, maybe_done: bool) -> None:
        super().__init__(text)
        self.maybe_done = maybe_done


class HttpAnswer(NamedTuple):
    """An answer of any status. Names in ``headers`` ignore case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """The value in the content, without a byte order mark; None = there is no content. Raises ValueError."""
        content = self.content.removeprefix(codecs.BOM_UTF8)
        if not content:
            return None
        return fast_json.loads_any(content)

    @property
    def data(self) -> Any:
        """The same; None = it is no JSON."""
        try:
            return self.json()
        except (ValueError, RecursionError):
            return None


class _Adapter(BoundedAdapter):
    """Idle connections are probed, so that a firewall does not forget them."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        options["socket_options"] = [*HTTPConnection.default_socket_options, *_KEEP_ALIVE]
        super().init_poolmanager(*arguments, **options)


class PlainHttp:
    """Thread-safe; all calls block.

    :param connections: to one host that are kept; as many as there are threads.
    """

    def __init__(self, connections: int) -> None:
        # At DEBUG it writes whole addresses, and some are as good as a password.
        talkative = logging.getLogger("urllib3")
        talkative.setLevel(max(talkative.level, logging.INFO))
        session = requests.Session()
        session.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        session.headers["User-Agent"] = f"nodepool/{release_string()}"
        mount(session, connections, _Adapter)
        self._session = HttpSession(session)
        self._quick = QuickExchange(session.headers)

    def close(self) -> None:
        """Close the connections that are idle."""
        self._session.close()

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Body = None,
        query: Mapping[str, str] | None = None,
        seconds: float = DEFAULT_SECONDS,
    ) -> HttpAnswer:
        """Make one call.

        A call that only reads is sent again by itself if it was sent over a kept connection that the server had closed.

        :param seconds: for each wait; the answer as a whole may take twice as long.
        :raises NoAnswer: there is none.
        """
        if query:
            url = f"{url}{'&' if '?' in url else '?'}{urllib.parse.urlencode(query)}"
        try:
            answer = self._quick.call(method, url, headers, body, seconds) if _is_whole(body) else None
            if answer is not None:
                return HttpAnswer(answer.status_code, answer.headers, answer.content)
            response = self._session.request(
                method, url, headers=dict(headers), data=body, timeout=seconds, allow_redirects=False
            )
        except requests.RequestException as error:
            text = no_answer(without_login(str(error))) or f"no answer from {_host(url)}: {_cause(error)}"
            raise NoAnswer(text, not _surely_not_sent(error)) from error
        except (u.HTTPError, OSError, ValueError) as error:
            # Of a connection that another thread closes, and of a URL or header that is none.
            sent = not isinstance(error, ValueError)
            raise NoAnswer(f"no answer from {_host(url)}: {_cause(error)}", sent) from error
        self._quick.learn(response)
        return HttpAnswer(response.status_code, response.headers, response.content)


def _is_whole(body: Body) -> TypeGuard[bytes | None]:
    return body is None or isinstance(body, bytes)


def _surely_not_sent(error: requests.RequestException) -> bool:
    """Did the call never leave this machine?"""
    if isinstance(error, requests.ConnectTimeout | requests.exceptions.SSLError | requests.exceptions.ProxyError):
        return True
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.MissingSchema):
        return True
    inner = error.args[0] if error.args else None
    return isinstance(getattr(inner, "reason", inner), _NOT_SENT)


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(str(error))}"


def _host(url: str) -> str:
    return without_login(url).partition("?")[0]
