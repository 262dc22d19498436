# SPDX-License-Identifier: Apache-2.0
"""A TCP connection that fails when a test says so: cut, swallow answers, swallow questions."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress


class TcpProxy:
    """Forwards a port of ours on 127.0.0.1 to another one there. One thread does all the work.

    :param target_port: where to forward to.
    :param port: of our own; 0 = any.
    """

    def __init__(self, target_port: int, port: int = 0) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        #: False: new connections are closed at once.
        self.accepting = True
        #: Nothing that the server sends arrives any more.
        self.mute = False
        #: Nothing that the client sends arrives any more.
        self.deaf = False
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._wake, self._woken = socket.socketpair()
        self._commands: list[threading.Event | None] = []
        self._thread = threading.Thread(target=self._run, name="tcp-proxy", daemon=True)

    def start(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()

    def stop(self) -> None:
        """Closes everything and waits for the thread."""
        self._commands.append(None)
        self._wake.send(b"x")
        self._thread.join(10)
        for open_socket in (self._listener, self._wake, self._woken):
            open_socket.close()
        self._selector.close()

    def cut(self) -> None:
        """Closes all connections; returns when that is done."""
        done = threading.Event()
        self._commands.append(done)
        self._wake.send(b"x")
        assert done.wait(10)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._woken:
                    self._woken.recv(100)
                    for command in self._take_commands():
                        self._close_all()
                        if command is None:
                            return
                        command.set()
                elif ready is self._listener:
                    self._accept()
                elif ready in self._peers:
                    self._forward(ready)

    def _take_commands(self) -> list[threading.Event | None]:
        commands, self._commands = self._commands, []
        return commands

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if not self.accepting:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._target_port), timeout=5)
        except OSError:
            client.close()
            return
        self._clients.add(client)
        for one, other in ((client, server), (server, client)):
            one.settimeout(5)
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        try:
            data = source.recv(65536)
            swallowed = self.deaf if source in self._clients else self.mute
            if data and not swallowed:
                self._peers[source].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._close(source)

    def _close(self, one: socket.socket) -> None:
        for end in (one, self._peers[one]):
            self._selector.unregister(end)
            self._clients.discard(end)
            del self._peers[end]
            with suppress(OSError):
                end.close()

    def _close_all(self) -> None:
        while self._peers:
            self._close(next(iter(self._peers)))
