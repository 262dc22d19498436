# SPDX-License-Identifier: Apache-2.0
"""`TrustingConnection`: connections with TLS that read the certificates of authorities once.

urllib3 reads the file of authorities anew for each connection. That of the usual authorities has some 140 of them. To
read it takes 30 ms of CPU, ten times as long as the handshake, and each connection keeps a copy. Imported when a cloud
is used, because urllib3 takes long to import.
"""

from __future__ import annotations

import functools
import os
import ssl
from typing import Final

from urllib3.connection import HTTPSConnection
from urllib3.exceptions import SSLError
from urllib3.util.ssl_ import ALPN_PROTOCOLS, create_urllib3_context, resolve_cert_reqs

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
