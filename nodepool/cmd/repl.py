# SPDX-License-Identifier: Apache-2.0
"""``--repl``: a Python console inside the running daemon, on localhost:3000.

There is no authentication: whoever can connect can do everything the daemon can. For debugging only.
"""

from __future__ import annotations

import code
import io
import logging
import socketserver
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final, TextIO

from nodepool.cmd.app import CommandError

HOST: Final = "localhost"
PORT: Final = 3000

log = logging.getLogger("nodepool.cmd.repl")


class _ThreadOutput(io.TextIOBase):
    """Stands in for ``sys.stdout``: what a console's thread prints goes to its own connection."""

    def __init__(self, default: TextIO) -> None:
        self.default = default
        self.local = threading.local()

    def write(self, text: str) -> int:
        stream: TextIO = getattr(self.local, "stream", self.default)
        return stream.write(text)

    def flush(self) -> None:
        getattr(self.local, "stream", self.default).flush()


class _Console(code.InteractiveConsole):
    def __init__(self, names: dict[str, Any], source: TextIO, output: TextIO) -> None:
        super().__init__(names)
        self._source = source
        self._output = output

    def raw_input(self, prompt: str = "") -> str:
        self.write(prompt)
        line = self._source.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")

    def write(self, data: str) -> None:
        self._output.write(data)
        self._output.flush()


def _leave() -> None:
    """``exit()`` of a console. Python's own would close the daemon's stdin."""
    raise SystemExit


class _Handler(socketserver.BaseRequestHandler):
    server: ReplServer

    def handle(self) -> None:
        # One file for each direction: writing to one for both would drop what was read ahead.
        with (
            self.request.makefile("r", encoding="utf-8", errors="replace") as source,
            self.request.makefile("w", encoding="utf-8", errors="replace") as output,
        ):
            self.server.output.local.stream = output
            names = {**self.server.names, "exit": _leave, "quit": _leave}
            try:
                _Console(names, source, output).interact(exitmsg="")
            except SystemExit:
                log.info("A console was closed")
            except OSError as error:
                log.info("A console's connection ended: %s", error)


class ReplServer(socketserver.ThreadingTCPServer):
    """Serves consoles until `stop`.

    :param names: what a console starts with.
    :param port: TCP port on localhost; 0 = any free one.
    :raises CommandError: somebody else has the port.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, names: Mapping[str, Any], port: int = PORT) -> None:
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise CommandError(
                f"--repl: the console cannot listen on {HOST}:{port}: {error.strerror}; "
                "leave out --repl, or end what has the port, e.g. another daemon with --repl"
            ) from error
        self.names = names
        self.output = _ThreadOutput(sys.stdout)
        self._thread = threading.Thread(target=self.serve_forever, name="Repl", daemon=True)

    def start(self) -> None:
        """Serve in a thread of its own. Does not block."""
        log.warning("An unauthenticated Python console listens on %s:%s", *self.server_address[:2])
        sys.stdout = self.output
        self._thread.start()

    def stop(self) -> None:
        """Accept no more connections; open ones end with the process."""
        self.shutdown()
        self.server_close()
        self._thread.join()
        sys.stdout = self.output.default
