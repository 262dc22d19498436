# SPDX-License-Identifier: Apache-2.0
"""`PlainHttp`: one HTTP call. It has an answer that is bounded in size and time, or it says that there was none.

Redirects are not followed, cookies are not kept, and a netrc file is not read. Proxies and certificate authorities are
those of the environment (``HTTPS_PROXY``, ``NO_PROXY``, ``REQUESTS_CA_BUNDLE``). Certificates are always verified.

Imported when a provider is made, because requests takes long to import.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import urllib3 as u3
from requests.utils import (
    DEFAULT_CA_BUNDLE_PATH,
    get_auth_from_url,
    get_environ_proxies,
    prepend_scheme_if_needed,
    select_proxy,
)
from urllib3 import exceptions as u
from urllib3.connection import HTTPConnection

from nodepool.driver.framework.cloud_errors import no_answer, one_line, without_login
from nodepool.driver.framework.http.connections import CHUNK_BYTES, READS, BoundedAdapter, bounded, was_closed
from nodepool.driver.framework.http.rest_calls import DEFAULT_SECONDS, HttpCalls
from nodepool.driver.framework.http.rest_calls import Body as Body
from nodepool.driver.framework.http.rest_calls import HttpAnswer as HttpAnswer
from nodepool.driver.framework.http.rest_calls import NoAnswer as NoAnswer
from nodepool.version import release_string

#: Errors of a call that never left this machine. ValueError: of a URL or header that is none.
_NOT_SENT: Final = (u.NewConnectionError, u.ConnectTimeoutError, u.SSLError, u.ProxyError, ValueError)
_KEEP_ALIVE: Final = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)]


@contextlib.contextmanager
def answered(url: str) -> Iterator[None]:
    """For a call of urllib3.

    :raises NoAnswer: in place of its errors, of those of a connection that another thread closes, and of those of a URL
        or header that is none.
    """
    try:
        yield
    except (u.HTTPError, OSError, ValueError) as error:
        cause = f"no answer from {_place(url)}: {type(error).__name__}: {one_line(str(error))}"
        text = no_answer(without_login(str(error)), _address(url)) or cause
        raise NoAnswer(text, not isinstance(error, _NOT_SENT)) from error


def exchange(
    connections: Any, method: str, url: str, headers: Mapping[str, str], body: Body, seconds: float | u3.Timeout
) -> HttpAnswer:
    """One call of urllib3. Blocks; raises its errors. Redirects are not followed.

    One that only reads is sent again if it was sent over a kept connection that the server had closed (O-19).

    :param connections: a pool, or a manager of pools, with the classes of `nodepool.driver.framework.http.connections`.
    :param url: of a pool: path and query.
    :param seconds: for each wait.
    """
    lines = u3.HTTPHeaderDict({"Accept-Encoding": "gzip"})
    lines.update(headers)
    length = None if isinstance(body, bytes) else getattr(body, "__len__", None)
    if length is not None:
        lines["Content-Length"] = str(length())
    given: dict[str, Any] = {"body": body, "headers": lines, "timeout": seconds, "retries": False, "redirect": False}
    try:
        response = connections.urlopen(method, url, **given, preload_content=False)
    except u.ProtocolError as error:
        if method not in READS or not was_closed(error):
            raise
        response = connections.urlopen(method, url, **given, preload_content=False)
    try:
        content = bounded(response.headers, response.stream(CHUNK_BYTES))
        response.release_conn()
    finally:
        # Does nothing to a connection that was given back.
        response.close()
    return HttpAnswer(response.status, response.headers, content)


class PlainHttp(HttpCalls):
    """Thread-safe; all calls block.

    :param connections: to one host that are kept; as many as there are threads.
    """

    def __init__(self, connections: int) -> None:
        # At DEBUG it writes whole addresses, and some are as good as a password.
        talkative = logging.getLogger("urllib3")
        talkative.setLevel(max(talkative.level, logging.INFO))
        self._usual = {"User-Agent": f"nodepool/{release_string()}", "Accept": "*/*"}
        # Idle connections are probed, so that a firewall does not forget them.
        sockets = [*HTTPConnection.default_socket_options, *_KEEP_ALIVE]
        trusted = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
        kind = "ca_cert_dir" if os.path.isdir(trusted) else "ca_certs"
        self._options: dict[str, Any] = {"socket_options": sockets, "cert_reqs": "CERT_REQUIRED", kind: trusted}
        self._adapter = BoundedAdapter(pool_connections=connections, pool_maxsize=connections)
        self._adapter.init_poolmanager(connections, connections, **self._options)
        #: Scheme and host -> connections to it, maybe over a proxy.
        self._managers: dict[tuple[str, str], Any] = {}

    def close(self) -> None:
        """Close the connections that are idle."""
        self._adapter.close()

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

        :param seconds: for each wait; the answer as a whole may take twice as long.
        :raises NoAnswer: there is none.
        """
        if query:
            url = f"{url}{'&' if '?' in url else '?'}{urllib.parse.urlencode(query)}"
        lines = u3.HTTPHeaderDict(self._usual)
        lines.update(headers)
        with answered(url):
            if any(login := get_auth_from_url(url)):
                lines.update(u3.make_headers(basic_auth=":".join(login)))
            return exchange(self._manager(url), method, url, lines, body, seconds)

    def _manager(self, url: str) -> Any:
        """What the environment says of a host is asked for at the first call to it."""
        place = urllib.parse.urlsplit(url)[:2]
        manager = self._managers.get(place)
        if manager is None:
            if not all(place):
                raise u.LocationValueError(f"{_place(url)} is no address of a server")
            proxy = select_proxy(url, get_environ_proxies(url))
            manager = self._adapter.poolmanager
            if proxy is not None:
                manager = self._adapter.proxy_manager_for(prepend_scheme_if_needed(proxy, "http"), **self._options)
            self._managers[place] = manager
        return manager


def _place(url: str) -> str:
    return without_login(url).partition("?")[0]


def _address(url: str) -> str | None:
    """Host and port; None = it has none."""
    try:
        place = urllib.parse.urlsplit(url)
        return f"{place.hostname}:{place.port or {'http': 80, 'https': 443}[place.scheme]}"
    except (KeyError, ValueError):
        return None
