# SPDX-License-Identifier: Apache-2.0
"""A TCP link that fails when a test says so: reset, silent, slow, deaf or mute."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from random import Random

#: What waits on a slow or silent link, in pieces of at most 64 KiB; more stays with the sender.
PIECES = 64
BACKLOG = 128
#: Between two tries to reach a target that refuses.
PAUSE_SECONDS = 0.02


class TcpProxy:
    """Forwards a port of ours on 127.0.0.1 to another one there. One thread does all the work.

    :param target_port: where to forward to.
    :param port: of our own; 0 = any.
    :param seed: of the delays of a slow link.
    :param patience: seconds for which a target that refuses is tried again, before the connection is closed. A relay
        has accepted it already and cannot refuse it. For clients that take a refusal for a target that will listen in a
        moment, but the end of a connection for the end of the target.
    """

    def __init__(self, target_port: int, port: int = 0, seed: str = "", patience: float = 0.0) -> None:
        self._target_port = target_port
        self._patience = patience
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        #: False: new connections are closed at once.
        self._accepting = True
        #: Nothing that the server sends arrives any more.
        self.mute = False
        #: Nothing that the client sends arrives any more.
        self.deaf = False
        #: Pieces that did not arrive because of that.
        self.swallowed = 0
        #: Least and greatest time that a piece of data takes, each way. The order stays.
        self.delay_seconds = (0.0, 0.0)
        self._random = Random(f"link {seed}")
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        #: Cleared while the link is silent.
        self._passing = asyncio.Event()
        self._passing.set()
        self._filler: socket.socket | None = None
        self._filler_port = 0
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)

    def start(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
        self._thread.start()

    def stop(self) -> None:
        """Closes everything and waits for the thread."""
        if self._thread.is_alive():
            self.cut()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
        self._loop.close()
        self._listener.close()
        if self._filler is not None:
            self._filler.close()

    def cut(self) -> None:
        """Closes all connections; returns when that is done."""
        asyncio.run_coroutine_threadsafe(self._close_all(), self._loop).result(10)

    def take_down(self) -> None:
        """Closes all connections, and from now on each new one at once."""
        self._accepting = False
        self.cut()

    def bring_up(self) -> None:
        """Ends `take_down`."""
        self._accepting = True

    def silence(self) -> None:
        """Nothing comes through, as if each packet were dropped: no data, no end of a connection, no new one.

        What was sent meanwhile arrives after `resume`, as TCP sends it again.
        """
        asyncio.run_coroutine_threadsafe(self._silence(), self._loop).result(10)

    def resume(self) -> None:
        """Ends `silence`."""
        asyncio.run_coroutine_threadsafe(self._resume(), self._loop).result(10)

    async def _silence(self) -> None:
        self._passing.clear()
        self._loop.remove_reader(self._listener)
        # The kernel drops the first packet of a connection to a full backlog, and this one is full with one connection.
        self._listener.listen(0)
        self._filler = socket.socket()
        self._filler.setblocking(False)
        self._filler.connect_ex(("127.0.0.1", self.port))
        self._filler_port = self._filler.getsockname()[1]

    async def _resume(self) -> None:
        if self._filler is not None:
            self._filler.close()
            self._filler = None
        self._listener.listen(BACKLOG)
        self._loop.add_reader(self._listener, self._accept)
        self._passing.set()

    async def _close_all(self) -> None:
        for task in self._connections:
            task.cancel()
        while self._connections:
            await asyncio.wait(self._connections)

    def _accept(self) -> None:
        try:
            client, (_, port) = self._listener.accept()
        except OSError:
            # It has gone again.
            return
        if port == self._filler_port:
            self._filler_port = 0
            client.close()
            return
        if not self._accepting:
            client.close()
            return
        task = self._loop.create_task(self._serve(client))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # It may be cancelled before it begins.
        task.add_done_callback(lambda _: client.close())

    async def _serve(self, client: socket.socket) -> None:
        """Forwards both ways until either side ends."""
        with ExitStack() as opened, suppress(OSError, asyncio.CancelledError):
            opened.callback(client.close)
            near_reader, near = await asyncio.open_connection(sock=client)
            opened.callback(near.transport.abort)
            far_reader, far = await self._connect()
            opened.callback(far.transport.abort)
            for end in (near, far):
                # `drain` waits until the kernel has all: what is in the transport when one side ends would be lost.
                end.transport.set_write_buffer_limits(high=0)
            pumps = [
                self._loop.create_task(self._pump(near_reader, far, lambda: self.deaf)),
                self._loop.create_task(self._pump(far_reader, near, lambda: self.mute)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """:raises OSError: the target refuses for too long."""
        deadline = self._loop.time() + self._patience
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", self._target_port)
            except ConnectionRefusedError:
                if self._loop.time() >= deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, swallowed: Callable[[], bool]
    ) -> None:
        """Forwards one way until the end of it."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES)
        reading = self._loop.create_task(self._read(reader, pieces))
        try:
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(due - self._loop.time())
                await self._passing.wait()
                if not data:
                    return
                if swallowed():
                    self.swallowed += 1
                else:
                    writer.write(data)
                    await writer.drain()
        finally:
            reading.cancel()

    async def _read(self, reader: asyncio.StreamReader, pieces: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Each piece of data with the time at which it shall arrive; empty = the end."""
        due, data = 0.0, b"x"
        while data:
            try:
                data = await reader.read(65536)
            except OSError:
                data = b""
            due = max(due, self._loop.time() + self._random.uniform(*self.delay_seconds))
            await pieces.put((due, data))
