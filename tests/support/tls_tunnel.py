# SPDX-License-Identifier: Apache-2.0
"""A proxy for HTTPS that stands for the hosts behind it: it answers CONNECT, and then speaks TLS itself."""

from __future__ import annotations

import ssl
from http.server import BaseHTTPRequestHandler


def open_tunnel(handler: BaseHTTPRequestHandler, context: ssl.SSLContext) -> str:
    """Answers a CONNECT. From then on the handler reads and writes through TLS.

    :param context: has the certificate of the hosts.
    :returns: the host that the client asked for.
    """
    host = handler.path.rpartition(":")[0]
    handler.send_response(200)
    handler.end_headers()
    handler.connection = context.wrap_socket(handler.connection, server_side=True)
    handler.rfile = handler.connection.makefile("rb")
    handler.wfile = handler.connection.makefile("wb", 0)
    return host
