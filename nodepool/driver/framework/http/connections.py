# SPDX-License-Identifier: Apache-2.0
"""How answers of a cloud are read: bounded in size and time, and for little CPU.

The time-out of requests is for each read of the socket, so that a server that sends a byte now and then would keep a
thread for ever. Here an answer, from the first byte of its head to the last of its body, has `ANSWER_TIMES` times as
long. First connections that are kept, TLS, and the bounds, also for libraries that log in; then a session of requests
that costs less, and calls without requests. Imported when a provider is made, because requests takes long to import.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import os
import re
import ssl
import urllib.parse
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import httptools
import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.cookies import extract_cookies_to_jar
from requests.structures import CaseInsensitiveDict
from requests.utils import get_auth_from_url, get_encoding_from_headers, select_proxy
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NewConnectionError,
    SSLError,
)
from urllib3.util.ssl_ import ALPN_PROTOCOLS, create_urllib3_context, resolve_cert_reqs

from nodepool import fast_json
from nodepool.clock import monotonic
from nodepool.guard import OnError

# `KeptConnections`: calls over connections that are kept, for less.
#
# For each call requests and urllib3 prepare for redirections, retries, proxies, hooks, and answers that are read piece
# by piece; that costs more than the call. This is only the call. urllib3 still makes the connections, with TLS.

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
        if answer is None:
            return None
        # A body that breaks off leaves it open.
        with contextlib.closing(answer):
            return _answered(KeptResponse(self), request, answer, answer.read())


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
    """Raises SSLError of urllib3: nothing was sent."""
    try:
        read = os.stat(authorities)
        changed = (read.st_dev, read.st_ino, read.st_mtime_ns, read.st_ctime_ns, read.st_size)
        return _context(authorities, changed)
    except OSError as error:
        raise SSLError(error) from error


class TrustingConnection(HTTPSConnection):
    """A connection of urllib3. Those that trust the same file of authorities share what was read."""

    def connect(self) -> None:
        """See urllib3; blocks. A file that has changed is read again."""
        authorities = self.ca_certs
        if authorities is None or not self._is_usual():
            super().connect()
            return
        # It is set for the time of the call only: urllib3 reads the file in any case if it knows its name.
        self.ssl_context, self.ca_certs = _shared(authorities), None
        try:
            super().connect()
        finally:
            self.ssl_context, self.ca_certs = None, authorities

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
_CHUNK_BYTES: Final = 64 * 1024


class AnswerTooLong(OSError):
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
            raise _too_long(self._limit)
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


class _HttpPool(KeptConnections):
    ConnectionCls = _HttpConnection


class _HttpsPool(KeptConnections, HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


#: Classes of pools by the scheme of the URL, for ``PoolManager.pool_classes_by_scheme``.
POOLS: Final = {"http": _HttpPool, "https": _HttpsPool}


class BoundedAdapter(HTTPAdapter):
    """Reads each answer completely before it returns, ``stream`` or not.

    A subclass may have another adapter of requests as its second base class.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        #: Of each host and each setting of TLS. To find it anew, requests asks the disk for each call.
        #: urllib3 forgets the pool that was not used for the longest time when there are too many: its connections are
        #: closed with it, unless somebody keeps it.
        self._pools: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
        super().__init__(*arguments, **options)

    def close(self) -> None:
        super().close()
        self._pools.clear()

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
        """Raises subclasses of `requests.RequestException`."""
        response = None if arguments else self._exchange(request, **options)
        if response is None:
            response = super().send(request, *arguments, **options)
        with OnError(lambda _: response.close()):
            # One kind of compression is undone piece by piece; several within each other make a piece enormous.
            if "," in response.headers.get("Content-Encoding", ""):
                raise requests.exceptions.ContentDecodingError("the answer is compressed more than once")
            if response.raw is not None:
                _read(response)
        return response

    def _exchange(
        self, request: Any, timeout: Any = None, verify: Any = True, cert: Any = None, proxies: Any = None, **_: Any
    ) -> Any:
        """A plain call over a connection that is open; None = it is none, or there is none."""
        plain = isinstance(timeout, (int, float)) and isinstance(request.body, (str, bytes, type(None)))
        if not plain or select_proxy(request.url, proxies):
            return None
        place = urllib.parse.urlsplit(request.url)
        key = (place.scheme, place.netloc, verify, cert)
        pool: Any = self._pools.get(key)
        # One that was closed has no connections any more, and never will.
        if pool is None or pool.pool is None:
            pool = self._pools[key] = self.get_connection_with_tls_context(request, verify, cert=cert)
        return pool.exchange(request, timeout)


def _read(response: Any) -> None:
    chunks: list[bytes] = []
    left = MAX_ANSWER_BYTES
    for chunk in response.iter_content(_CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            raise requests.exceptions.ContentDecodingError(str(_too_long(MAX_ANSWER_BYTES)))
        chunks.append(chunk)
    # Where requests keeps what was read; `content` and `json` look there.
    response._content = b"".join(chunks)


def _too_long(limit: int) -> AnswerTooLong:
    return AnswerTooLong(f"the answer has more than {limit >> 20} MiB")


def mount(
    session: requests.Session,
    connections: int,
    adapter_class: type[BoundedAdapter] = BoundedAdapter,
    settings: Sequence[str] = (),
) -> None:
    """Bound all answers to a session; once a session.

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


# `HttpSession`: a session of requests whose calls to a cloud cost less.
#
# A call of requests looks at the whole environment for proxies, and joins the settings of the session with its own,
# each time. For the calls to one cloud nothing of that changes from one to the next. Only public names of requests are
# used, and a call that is not of the known kind takes the way of requests.

#: Arguments of an ordinary call.
_KNOWN: Final = frozenset({"allow_redirects", "headers", "params", "data", "timeout", "verify", "cert", "stream"})


def log_in_as_told(request: Any) -> Any:
    """For ``auth`` of a session: without any, requests looks for a netrc file at each call.

    A password from there is not meant for a cloud. One in the address itself is sent, as without this: a proxy before
    the cloud may ask for it.
    """
    if "@" in request.url:
        found = get_auth_from_url(request.url)
        return requests.auth.HTTPBasicAuth(*found)(request) if any(found) else request
    return request


class HttpSession(requests.Session):
    """Takes over the adapters and settings of another session.

    What the environment says of a host is asked for at the first call to it. Thread-safe as far as requests is.
    """

    def __init__(self, other: requests.Session) -> None:
        super().__init__()
        for name in ("headers", "proxies", "params", "verify", "cert", "adapters", "stream", "trust_env", "cookies"):
            setattr(self, name, getattr(other, name))
        self.auth = log_in_as_told
        #: Scheme and host -> proxies that the environment names; with ``verify`` -> what it says of certificates.
        self._of_host: dict[tuple[Any, ...], dict[str, Any]] = {}

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> dict[str, Any]:
        """See `requests.Session`."""
        if proxies or not isinstance(verify, (bool, str, type(None))):
            return super().merge_environment_settings(url, proxies, stream, verify, cert)
        place = urllib.parse.urlsplit(url)
        key = (place.scheme, place.netloc, stream, verify, cert)
        found = self._of_host.get(key)
        if found is None:
            found = self._of_host[key] = super().merge_environment_settings(url, {}, stream, verify, cert)
        # Adapters may change the proxies.
        return {**found, "proxies": dict(found["proxies"])}

    def request(self, method: Any, url: Any, *arguments: Any, **named: Any) -> requests.Response:
        """See `requests.Session`. Blocks."""
        plain = not arguments and named.get("allow_redirects") is False and named.keys() <= _KNOWN
        if not plain or self.params or len(self.cookies):
            return super().request(method, url, *arguments, **named)
        headers = CaseInsensitiveDict(self.headers)
        headers.update({name: value for name, value in (named.get("headers") or {}).items() if value is not None})
        prepared = requests.PreparedRequest()
        prepared.prepare(
            method=method.upper(),
            url=url,
            headers=headers,
            data=named.get("data"),
            params=named.get("params"),
            auth=self.auth,
        )
        settings = self.merge_environment_settings(
            prepared.url, {}, named.get("stream"), named.get("verify"), named.get("cert")
        )
        # Session.send would look for redirections and hooks, and for cookies twice.
        response = self.get_adapter(url).send(prepared, timeout=named.get("timeout"), **settings)
        if "Set-Cookie" in response.headers:
            extract_cookies_to_jar(self.cookies, prepared, response.raw)
        return response


# `QuickExchange`: usual calls over connections that are kept, without requests.
#
# For each call requests prepares what is the same for all calls to a host, which costs several times as much as the
# call. This part writes a call as bytes. What is not as usual takes the way of requests, and so does the first call to
# a host: it finds out what proxy, certificates and connections are for it.

_METHODS: Final = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH"})
#: An address that requests would send as it is: no login, no fragment, nothing to be quoted, no ``/../``.
_PLAIN_URL: Final = re.compile(
    r"(https?://[A-Za-z0-9.:\[\]-]+)(/(?:(?!/\.{1,2}(?:/|$|\?))[A-Za-z0-9._~!$&'()*+,;=:@%/?-])*)"
)
#: What may stand in a line of a head.
_LINE: Final = re.compile(r"[\t\x20-\x7e]*")
#: Of the head, made for each call.
_OF_THE_CALL: Final = frozenset({"accept-encoding", "host", "content-length", "transfer-encoding"})
_GZIP: Final = 16 + zlib.MAX_WBITS


class Unreadable(ConnectionError):
    """The answer is compressed in a way that was not asked for, or not as it says."""


class QuickExchange:
    """Of one client. Any thread.

    :param usual: headers of all calls.
    """

    def __init__(self, usual: Mapping[str, str | bytes]) -> None:
        #: Lines of the head, by name in lower case, each with its end.
        self._usual = {
            name.lower(): f"{name}: {_text(value)}\r\n"
            for name, value in usual.items()
            if name.lower() not in _OF_THE_CALL
        }
        #: By scheme and host; no lock is needed for single entries. urllib3 forgets hosts that were not used for long,
        #: such as the one of an upload, and their connections must not stay open because of this.
        self._pools: weakref.WeakValueDictionary[str, KeptConnections] = weakref.WeakValueDictionary()

    def learn(self, response: Any) -> None:
        """requests has made a call: what it used is used by the next ones, if it went over a connection of its own."""
        if not isinstance(response, KeptResponse):
            return
        self.use(response.url, response.pool)

    def use(self, url: str, pool: KeptConnections) -> None:
        """Calls to the host of a URL go over these connections, for as long as another one keeps the pool."""
        found = _PLAIN_URL.fullmatch(url)
        if found is not None:
            self._pools[found[1]] = pool

    def call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> QuickAnswer | None:
        """Make a call, if it is a usual one; blocks. None = it was not made, or only reads and has no answer.

        A connection is opened if none is open.

        :param seconds: for each wait.
        :raises requests.RequestException: of the kinds that requests would raise.
        """
        found = _PLAIN_URL.fullmatch(url) if method in _METHODS else None
        pool = self._pools.get(found[1]) if found is not None else None
        if pool is None or found is None:
            return None
        message = _message(method, found[1].partition("://")[2], found[2], {**self._usual}, headers, body)
        if message is None:
            return None
        bounds = Bounds(MAX_ANSWER_BYTES, ANSWER_TIMES * seconds)
        try:
            answer = pool.exchange_bytes(method, message, seconds, bounds, opens=True)
            return None if answer is None else _unpacked(answer)
        except requests.RequestException:
            raise
        except TimeoutError as error:
            raise requests.ReadTimeout(error) from error
        except OSError as error:
            raise requests.ConnectionError(error) from error


def _message(
    method: str, host: str, target: str, lines: dict[str, str], headers: Mapping[str, str], body: bytes | None
) -> bytes | None:
    """A call as bytes; None = there is something unusual about it.

    :param lines: of the head of all calls; it is changed.
    """
    for name, value in headers.items():
        key = name.lower()
        if key in _OF_THE_CALL or not _LINE.fullmatch(name) or not _LINE.fullmatch(value):
            return None
        lines[key] = f"{name}: {value}\r\n"
    if body is not None or method != "GET":
        lines["content-length"] = f"Content-Length: {len(body or b'')}\r\n"
    first = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: gzip\r\n"
    head = f"{first}{''.join(lines.values())}\r\n".encode()
    return head + body if body else head


def _unpacked(answer: QuickAnswer) -> QuickAnswer:
    """The answer with its content as it was before it was compressed.

    :raises Unreadable: it cannot be told.
    """
    how = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if how in ("identity", "") or not answer.content:
        return answer
    if how not in ("gzip", "x-gzip"):
        raise Unreadable(f"the answer is compressed with {how}, which was not asked for")
    reader = zlib.decompressobj(_GZIP)
    try:
        content = reader.decompress(answer.content, MAX_ANSWER_BYTES)
    except zlib.error as error:
        raise Unreadable(f"the answer is not compressed as it says: {error}") from error
    if reader.unconsumed_tail:
        raise Unreadable(f"the answer has more than {MAX_ANSWER_BYTES >> 20} MiB")
    if not reader.eof:
        raise Unreadable("the compressed answer ends in the middle")
    return answer._replace(content=content)


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


# `read_answer`: one HTTP answer from a socket, read with httptools: a tenth of what http.client costs.

_READ_BYTES: Final = 64 * 1024


class ClosedBefore(ConnectionError):
    """The connection was closed before the answer began."""


class BrokenAnswer(ConnectionError):
    """The answer ends in the middle, or is no HTTP."""


class Bounds(NamedTuple):
    """Of an answer.

    :param most_bytes: of head and body. ``most_seconds``: for the whole, from when it is waited for.
    """

    most_bytes: int
    most_seconds: float


class QuickAnswer(NamedTuple):
    """What is used of `requests.Response`.

    :param keep: may another call go over the connection?
    """

    status_code: int
    headers: CaseInsensitiveDict[str]
    content: bytes
    keep: bool

    def json(self) -> Any:
        """The value in the content. Raises ValueError, RecursionError."""
        return fast_json.loads_any(self.content)


class _Message:
    """What the parser finds. httptools calls its methods."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.parser = httptools.HttpResponseParser(self)
        self.begun = False
        self.head_done = False
        self.status = 0
        self._done = False
        #: There is more than one answer.
        self.more = False
        self.keep = False

    def on_message_begin(self) -> None:
        # It belongs to no call: nothing of it may get into this answer.
        self.more = self._done
        self.begun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._done:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if not self._done:
            self.head_done, self.status = True, self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if not self._done:
            self.body.append(data)

    def on_message_complete(self) -> None:
        if self._done:
            return
        if self.status < 200:
            # 100 or 103: the answer follows.
            self.headers.clear()
            self.head_done = False
            return
        self._done = True
        self.keep = self.parser.should_keep_alive()

    def complete(self) -> bool:
        """Is all of the answer there?"""
        return self._done

    @property
    def ends_with_the_connection(self) -> bool:
        """Has the answer no length of its own?"""
        names = {name.lower() for name, _ in self.headers}
        return self.head_done and not names & {b"content-length", b"transfer-encoding"}


def read_answer(sock: Any, bounds: Bounds) -> QuickAnswer:
    """Read one answer, but not one to HEAD; blocks.

    :param sock: its time-out is that of each read. It is changed towards the end of the whole time.
    :raises ClosedBefore: the connection was closed or reset before the first byte.
    :raises BrokenAnswer: it makes no sense, ends in the middle, or is too long.
    :raises TimeoutError: nothing came for the time-out, or it took too long.
    """
    message, left = _Message(), bounds.most_bytes
    deadline = monotonic() + bounds.most_seconds
    usual = sock.gettimeout() or bounds.most_seconds
    while not message.complete():
        data = _receive(sock, message.begun, usual, deadline)
        left -= len(data)
        if left < 0:
            raise BrokenAnswer(f"the answer has more than {bounds.most_bytes >> 20} MiB")
        if not data:
            if not message.ends_with_the_connection:
                raise BrokenAnswer("the connection was closed in the middle of the answer")
            break
        try:
            message.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # What follows an answer is of no interest, but the connection is not to be used again.
            if not message.complete():
                raise BrokenAnswer(f"the answer is no HTTP: {error}") from error
            message.more = True
    headers: CaseInsensitiveDict[str] = CaseInsensitiveDict()
    for name, value in message.headers:
        text = value.decode("latin-1")
        key = name.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    keep = message.complete() and message.keep and not message.more
    return QuickAnswer(message.status, headers, b"".join(message.body), keep)


def _receive(sock: Any, begun: bool, usual: float, deadline: float) -> bytes:
    """The next bytes; empty = the connection was closed after the answer had begun."""
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("the answer takes too long")
    if left < usual:
        sock.settimeout(left)
    try:
        data: bytes = sock.recv(_READ_BYTES)
    except ConnectionError as error:
        if begun:
            raise
        raise ClosedBefore(str(error)) from error
    if not data and not begun:
        raise ClosedBefore("the connection was closed before the answer")
    return data
