# SPDX-License-Identifier: Apache-2.0
"""Answers of a cloud, bounded in size and time, whoever asks: also libraries that log in.

The time-out of requests is for each read of the socket, so that whoever sends a byte now and then would keep a thread
for ever. Here an answer, from the first byte of its head to the last of its body, has `ANSWER_TIMES` times as long.
Imported when a cloud is used, because requests takes long to import.
"""

from __future__ import annotations

import http.client
import io
import urllib.parse
import weakref
from collections.abc import Sequence
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPSConnectionPool

from nodepool.clock import monotonic
from nodepool.driver.framework.http.kept_connections import KeptConnections
from nodepool.driver.framework.http.tls_context import TrustingConnection
from nodepool.guard import OnError

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
