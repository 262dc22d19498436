# SPDX-License-Identifier: Apache-2.0
"""`PlainHttp`: one HTTP call. It has an answer that is bounded in size and time, or it says that there was none.

Redirects are not followed, cookies are not kept, and a netrc file is not read. Proxies and certificate authorities are
those of the environment (``HTTPS_PROXY``, ``NO_PROXY``, ``REQUESTS_CA_BUNDLE``). Certificates are always verified.

The time-out of urllib3 is for each read of the socket, so that a server that sends a byte now and then would keep a
thread for ever. Here an answer, from the first byte of its head to the last of its body, has `ANSWER_TIMES` times as
long. First the calls, then connections of urllib3: their TLS, and the bounds, also for libraries that call requests.

Imported when a provider is made, because requests takes long to import.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import logging
import os
import socket
import ssl
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import requests
import urllib3 as u3
from requests.adapters import HTTPAdapter
from requests.exceptions import ContentDecodingError
from requests.utils import (
    DEFAULT_CA_BUNDLE_PATH,
    get_auth_from_url,
    get_environ_proxies,
    prepend_scheme_if_needed,
    select_proxy,
)
from urllib3 import exceptions as u
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.ssl_ import ALPN_PROTOCOLS, create_urllib3_context, resolve_cert_reqs
from urllib3.util.ssl_match_hostname import CertificateError

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import no_answer, one_line, without_login
from nodepool.driver.framework.http.rest_calls import DEFAULT_SECONDS, READS, HttpCalls
from nodepool.driver.framework.http.rest_calls import Body as Body
from nodepool.driver.framework.http.rest_calls import HttpAnswer as HttpAnswer
from nodepool.driver.framework.http.rest_calls import NoAnswer as NoAnswer
from nodepool.guard import OnError
from nodepool.version import release_string


def was_closed(error: BaseException) -> bool:
    """Was a connection closed or reset before an answer began? Clouds close what is idle, maybe just when it is used.

    :param error: of urllib3 or requests, which may stand for other errors.
    """
    while error.args and isinstance(error.args[-1], Exception):
        error = error.args[-1]
    return isinstance(error, ConnectionError)


class NoTls(u.SSLError):
    """There is no connection: nothing was sent. urllib3 has SSLError also for an answer that breaks off."""


#: Errors of a call that never left this machine. ValueError: of a URL or header that is none.
_NOT_SENT: Final = (u.NewConnectionError, u.ConnectTimeoutError, NoTls, u.ProxyError, ValueError)
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
        # What Python says of a header that is none has the header, and so the token.
        said = (
            "" if isinstance(error, ValueError) and not isinstance(error, u.HTTPError) else f": {one_line(str(error))}"
        )
        cause = f"no answer from {_place(url)}: {type(error).__name__}{said}"
        text = no_answer(without_login(str(error)), _address(url)) or cause
        raise NoAnswer(text, not isinstance(error, _NOT_SENT)) from error


def exchange(
    connections: Any, method: str, url: str, headers: Mapping[str, str], body: Body, seconds: float | u3.Timeout
) -> HttpAnswer:
    """One call of urllib3. Blocks; raises its errors. Redirects are not followed.

    One that only reads is sent again if it was sent over a kept connection that the server had closed (O-19).

    :param connections: a pool, or a manager of pools, with the classes of `POOLS`.
    :param url: of a pool: path and query.
    :param seconds: for each wait.
    """
    lines = {"Accept-Encoding": "gzip", **headers}
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
        #: Scheme and host -> connections to it; or the manager of a proxy.
        self._places: dict[tuple[str, str], Any] = {}

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
        lines = {**self._usual, **headers}
        with answered(url):
            if "@" in url and any(login := get_auth_from_url(url)):
                lines.update(u3.make_headers(basic_auth=":".join(login)))
            return exchange(*self._way(url, method), lines, body, seconds)

    def _way(self, url: str, method: str) -> tuple[Any, str, str]:
        """The connections, the method, and how the URL is sent.

        What the environment says of a host is asked for at the first call to it.
        """
        scheme, netloc, path, query, _ = urllib.parse.urlsplit(url)
        connections = self._places.get((scheme, netloc))
        if connections is None:
            if not scheme or not netloc:
                raise u.LocationValueError(f"{_place(url)} is no address of a server")
            proxy = select_proxy(url, get_environ_proxies(url))
            if proxy is None:
                connections = self._adapter.poolmanager.connection_from_url(url)
            else:
                proxy = prepend_scheme_if_needed(proxy, "http")
                connections = self._adapter.proxy_manager_for(proxy, **self._options)
            self._places[scheme, netloc] = connections
        # A manager has to find the connections to a host behind its proxy.
        to_host = isinstance(connections, HTTPConnectionPool)
        return connections, method, urllib.parse.urlunsplit(("", "", path or "/", query, "")) if to_host else url


def _place(url: str) -> str:
    return without_login(url).partition("?")[0]


def _address(url: str) -> str | None:
    """Host and port; None = it has none."""
    try:
        place = urllib.parse.urlsplit(url)
        return f"{place.hostname}:{place.port or {'http': 80, 'https': 443}[place.scheme]}"
    except (KeyError, ValueError):
        return None


# `TrustingConnection`: connections with TLS that read the certificates of authorities once.
#
# urllib3 reads the file of authorities anew for each connection. That of the usual authorities has some 140 of them. To
# read it takes 30 ms of CPU, ten times as long as the handshake, and each connection keeps a copy.

#: What a context depends on, too. A connection for which one of them is set gets one of its own.
_OWN: Final = (
    "ssl_context",
    "ca_cert_dir",
    "ca_cert_data",
    "cert_file",
    "ssl_version",
    "ssl_minimum_version",
    "ssl_maximum_version",
    "assert_hostname",
    "assert_fingerprint",
)


@functools.lru_cache(maxsize=8)
def _context(authorities: str, _changed: tuple[int, ...]) -> ssl.SSLContext:
    """As urllib3 makes it for a connection that names nothing but authorities."""
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    context.load_verify_locations(authorities)
    # urllib3 sets this for each connection. OpenSSL would free what another thread is about to copy.
    context.set_alpn_protocols(ALPN_PROTOCOLS)
    vars(context)["set_alpn_protocols"] = lambda _protocols: None
    return context


def _shared(authorities: str) -> ssl.SSLContext:
    """Raises SSLError of urllib3."""
    try:
        read = os.stat(authorities)
        changed = (read.st_dev, read.st_ino, read.st_mtime_ns, read.st_ctime_ns, read.st_size)
        return _context(authorities, changed)
    except OSError as error:
        raise u.SSLError(error) from error


class TrustingConnection(HTTPSConnection):
    """A connection of urllib3. Those that trust the same file of authorities share what was read."""

    def connect(self) -> None:
        """See urllib3; blocks. A file that has changed is read again.

        :raises NoTls: nothing was sent.
        :raises ConnectTimeoutError: also of the handshake: nothing was sent.
        """
        authorities = self.ca_certs
        try:
            if authorities is None or not self._is_usual():
                super().connect()
                return
            # It is set for the time of the call only: urllib3 reads the file in any case if it knows its name.
            self.ssl_context, self.ca_certs = _shared(authorities), None
            try:
                super().connect()
            finally:
                self.ssl_context, self.ca_certs = None, authorities
        except (ssl.SSLError, u.SSLError, CertificateError) as error:
            raise NoTls(error) from error
        except TimeoutError as error:
            raise u.ConnectTimeoutError(self, f"the TLS handshake timed out: {error}") from error

    def _is_usual(self) -> bool:
        """Are certificates verified, by the authorities and the name of the host, and by nothing else?

        Else urllib3 changes the context: the others would be verified as little. A proxy that is spoken to by TLS has
        the settings of the connection, too.
        """
        by_tls = self.proxy is not None and self.proxy.scheme == "https"
        verified = resolve_cert_reqs(self.cert_reqs) == ssl.CERT_REQUIRED
        return verified and not by_tls and all(getattr(self, name) is None for name in _OWN)


#: Longest answer that is read, in bytes: a page of 1000 servers has about 3 MB.
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
#: Longest time for one answer, in time-outs of one read.
ANSWER_TIMES: Final = 2.0
#: What it is a multiple of when a call has no time-out, in seconds.
_NO_TIMEOUT_SECONDS: Final = 60.0
#: Of an answer that is unpacked, at a time.
CHUNK_BYTES: Final = 64 * 1024


class AnswerTooLong(ContentDecodingError):
    """More than any list can have."""


class _BoundedReader(io.RawIOBase):
    """The stream of one answer. Raises TimeoutError and AnswerTooLong."""

    def __init__(self, raw: io.RawIOBase, sock: Any) -> None:
        self._raw = raw
        self._sock = sock
        self._limit = MAX_ANSWER_BYTES
        self._left = self._limit
        self._seconds = ANSWER_TIMES * (sock.gettimeout() or _NO_TIMEOUT_SECONDS)
        self._deadline = monotonic() + self._seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError(f"the answer takes more than {self._seconds:g} s")
        if left < (self._sock.gettimeout() or _NO_TIMEOUT_SECONDS):
            self._sock.settimeout(left)
        count = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise AnswerTooLong(f"the answer has more than {self._limit >> 20} MiB")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        # Nothing is in the buffer yet.
        self.fp = io.BufferedReader(_BoundedReader(self.fp.detach(), sock))


class _HttpConnection(HTTPConnection):
    response_class = _Response


class _HttpsConnection(TrustingConnection):
    response_class = _Response


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


#: Classes of pools by the scheme of the URL, for ``PoolManager.pool_classes_by_scheme``.
POOLS: Final = {"http": _HttpPool, "https": _HttpsPool}


def bounded(headers: Mapping[str, str], pieces: Iterable[bytes]) -> bytes:
    """The content of an answer, of which pieces are read and unpacked one by one. Raises AnswerTooLong."""
    # Several kinds of compression within each other make a piece enormous.
    if "," in headers.get("Content-Encoding", ""):
        raise AnswerTooLong("the answer is compressed more than once")
    found, left = [], MAX_ANSWER_BYTES
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise AnswerTooLong(f"the answer has more than {MAX_ANSWER_BYTES >> 20} MiB")
        found.append(piece)
    return b"".join(found)


class BoundedAdapter(HTTPAdapter):
    """Reads each answer completely before it returns, ``stream`` or not.

    An answer says in ``kept`` over which connections the next calls to its host can go; None = over a proxy. A subclass
    may have another adapter of requests as its second base class.
    """

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        # A SOCKS proxy needs connections of its own kind; its answers are bounded in size only.
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = POOLS
        return manager

    def send(self, request: Any, *arguments: Any, **options: Any) -> Any:
        """What only reads is sent again if a kept connection was closed (O-19). Raises `requests.RequestException`."""
        try:
            response: Any = super().send(request, *arguments, **options)
        except requests.ConnectionError as error:
            if request.method not in READS or not was_closed(error):
                raise
            response = super().send(request, *arguments, **options)
        with OnError(lambda _: response.close()):
            # Where requests keeps what was read; `content` and `json` look there.
            response._content = bounded(response.headers, response.iter_content(CHUNK_BYTES))
        response.kept = None
        if not select_proxy(request.url, options.get("proxies")):
            tls = {name: options[name] for name in ("verify", "cert") if name in options}
            response.kept = self.get_connection_with_tls_context(request, **tls)
        return response


def mount(
    session: requests.Session,
    connections: int,
    adapter_class: type[BoundedAdapter] = BoundedAdapter,
    settings: Sequence[str] = (),
) -> None:
    """Bound all answers to a session, and keep logins of a netrc file out of it; once a session.

    :param connections: to one host that are kept.
    :param settings: attributes of what was mounted before that are given to the new adapters.
    """
    made: dict[int, BoundedAdapter] = {}
    for prefix, old in list(session.adapters.items()):
        if isinstance(old, BoundedAdapter):
            continue
        if id(old) not in made:
            kept = {name: getattr(old, name) for name in settings if hasattr(old, name)}
            made[id(old)] = adapter_class(pool_connections=connections, pool_maxsize=connections, **kept)
        session.mount(prefix, made[id(old)])
        old.close()
    session.auth = log_in_as_told


def log_in_as_told(request: Any) -> Any:
    """For ``auth`` of a session: without any, requests looks for a netrc file at each call.

    A password from there is not meant for a cloud. One in the address itself is sent, as without this: a proxy before
    the cloud may ask for it.
    """
    if "@" in request.url:
        found = get_auth_from_url(request.url)
        return requests.auth.HTTPBasicAuth(*found)(request) if any(found) else request
    return request
