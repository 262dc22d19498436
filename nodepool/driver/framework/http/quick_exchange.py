# SPDX-License-Identifier: Apache-2.0
"""`QuickExchange`: usual calls over connections that are kept, without requests.

For each call requests prepares what is the same for all calls to a host, which costs several times as much as the call.
Here a call is written as bytes. What is not as usual takes the way of requests, and so does the first call to a host:
it finds out what proxy, certificates and connections are for it. Imported when a provider is made.
"""

from __future__ import annotations

import re
import weakref
import zlib
from collections.abc import Mapping
from typing import Any, Final

import requests

from nodepool.driver.framework.http import bounded
from nodepool.driver.framework.http.answer_reader import Bounds, QuickAnswer
from nodepool.driver.framework.http.kept_connections import KeptConnections, KeptResponse

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
        found = _PLAIN_URL.fullmatch(response.url)
        if found is not None:
            self._pools[found[1]] = response.pool

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
        bounds = Bounds(bounded.MAX_ANSWER_BYTES, bounded.ANSWER_TIMES * seconds)
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
        content = reader.decompress(answer.content, bounded.MAX_ANSWER_BYTES)
    except zlib.error as error:
        raise Unreadable(f"the answer is not compressed as it says: {error}") from error
    if reader.unconsumed_tail:
        raise Unreadable(f"the answer has more than {bounded.MAX_ANSWER_BYTES >> 20} MiB")
    if not reader.eof:
        raise Unreadable("the compressed answer ends in the middle")
    return answer._replace(content=content)


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
