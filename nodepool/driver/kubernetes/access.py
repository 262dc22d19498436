# SPDX-License-Identifier: Apache-2.0
"""`ClusterAccess`: what a kubeconfig says of a cluster, and the connections that are made by it."""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from nodepool.driver.framework.fact import Fact

#: So long who we are is not asked for again: the package ``kubernetes`` works out all its settings anew each time.
IDENTITY_SECONDS: Final = 1.0
#: What ends a header line.
_LINE_ENDS: Final = ("\r", "\n")


class ApiAnswer(NamedTuple):
    """Of the API, of any status."""

    status: int
    content: bytes
    headers: Mapping[str, str]


class ClusterAccess:
    """What is needed for a call. Thread-safe.

    :param settings: the ``Configuration`` of the package ``kubernetes``.
    :param files: that it was made from.
    """

    def __init__(self, settings: Any, files: tuple[str, ...]) -> None:
        from kubernetes import client

        from nodepool.driver.framework.http.connections import POOLS

        self.settings = settings
        self.files = files
        self.host = str(settings.host).rstrip("/")
        self._identity: Fact[dict[str, str]] = Fact(self._ask_who_we_are)
        #: Pools of urllib3, with the certificates and the proxy of the cluster. Those for plain calls bound the size
        #: and the time of each answer; a stream has no bounds.
        self.streams = client.ApiClient(settings).rest_client.pool_manager
        self.calls = client.ApiClient(settings).rest_client.pool_manager
        self.calls.pool_classes_by_scheme = POOLS
        #: That of `calls` for the cluster, once it was looked up.
        self._pool: Any = None
        place = urllib.parse.urlsplit(self.host)
        self._prefix = place.path
        self._head = f"Host: {place.netloc}\r\nAccept: application/json\r\n"

    @property
    def skip_tls(self) -> bool:
        return not self.settings.verify_ssl

    def headers(self) -> dict[str, str]:
        """Who we are, if that is said by a header. A plugin may be run, which blocks."""
        return self._identity.get(IDENTITY_SECONDS)

    def _ask_who_we_are(self) -> dict[str, str]:
        found = {}
        for setting in self.settings.auth_settings().values():
            if setting.get("in") == "header" and setting.get("value"):
                found[str(setting["key"])] = str(setting["value"])
        return found

    def bearer_token(self) -> str | None:
        """The token, without the word before it; None = who we are is said by a certificate."""
        value = next((text for key, text in self.headers().items() if key.lower() == "authorization"), "")
        kind, _, token = value.partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else None

    def authority(self) -> str | None:
        """The certificate of the cluster's authority, in base64; None = the system's."""
        path = self.settings.ssl_ca_cert
        return base64.b64encode(Path(path).read_bytes()).decode() if path else None

    def exchange(self, method: str, target: str, data: bytes | None, seconds: float) -> ApiAnswer | None:
        """Make one call over a connection that is open, which costs a fraction of what urllib3 takes; blocks.

        :param target: path and query. ``data``: JSON. ``seconds``: for each wait.
        :return: None = nothing was sent, or it only reads and got no answer: there is no such connection.
        :raises OSError: there is no answer.
        """
        from nodepool.driver.framework.http import connections
        from nodepool.driver.framework.http.connections import Bounds

        headers = self.headers()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if self.settings.proxy or any(end in value for value in headers.values() for end in _LINE_ENDS):
            return None
        if data is not None:
            lines += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._head}{lines}\r\n"
        bounds = Bounds(connections.MAX_ANSWER_BYTES, connections.ANSWER_TIMES * seconds)
        found = self._kept().exchange_bytes(method, head.encode() + (data or b""), seconds, bounds)
        return None if found is None else ApiAnswer(found.status_code, found.content, found.headers)

    def _kept(self) -> Any:
        """The pool of connections for plain calls: to look it up costs urllib3 as much as a third of a call."""
        if self._pool is None:
            self._pool = self.calls.connection_from_url(self.host)
        return self._pool
