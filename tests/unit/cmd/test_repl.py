# SPDX-License-Identifier: Apache-2.0
"""nodepool.cmd.daemon: the console of --repl."""

from __future__ import annotations

import socket
import sys

import pytest

from nodepool.cmd.app import CommandError
from nodepool.cmd.daemon import ReplServer


def test_console_answers_and_keeps_stdout_apart() -> None:
    stdout = sys.stdout
    server = ReplServer({"answer": 42}, port=0)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=30) as connection:
            stream = connection.makefile("rw", encoding="utf-8", newline="\n")
            with stream:
                stream.write("answer + 1\nprint('out')\n1 / 0\nexit()\n")
                stream.flush()
                text = stream.read()
    finally:
        server.stop()
    assert "43" in text
    assert "out" in text
    assert "ZeroDivisionError" in text
    assert sys.stdout is stdout


def test_listens_on_loopback_only() -> None:
    server = ReplServer({}, port=0)
    try:
        assert server.server_address[0] == "127.0.0.1"
    finally:
        server.server_close()


def test_port_that_somebody_has() -> None:
    """Which port, and which option."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            CommandError, match=f"--repl: .* localhost:{port}: Address already in use; leave out --repl"
        ):
            ReplServer({}, port=port)
