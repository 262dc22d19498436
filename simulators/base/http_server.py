# SPDX-License-Identifier: Apache-2.0
"""A small HTTP/1.1 server: one thread, any number of connections, answers that may wait without a thread.

``http.server`` would need a thread for each connection and about a millisecond for each request; the cloud under
test would then be the bottleneck of the benchmark.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from http import HTTPStatus
from typing import Protocol

from simulators.base.http_parser import RequestParser
from simulators.base.messages import Answer, AnswerStream, BodySink, Request, SteeredSink

REASONS = {status.value: status.phrase for status in HTTPStatus}


class Application(Protocol):
    """What serves the requests. All methods are called in the server's thread and must not block."""

    def body_sink(self, request: Request) -> BodySink | None:
        """Where the body of this request goes; None keeps it in the request."""

    def delay(self, request: Request) -> float:
        """Seconds until `handle` may be called."""

    def handle(self, request: Request) -> Answer:
        """Does it. Must not raise."""


class HttpServer:
    """Serves an application on a loopback port in a thread of its own.

    :param port: 0 chooses a free one; it stays the same when the server is started again.
    """

    def __init__(self, application: Application, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host = host
        self.port = port
        self._application = application
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._serving = threading.Event()

    def start(self) -> None:
        """Binds the port and starts the thread. Returns when the port answers.

        :raises OSError: the port is taken.
        """
        listener = socket.create_server((self.host, self.port), backlog=1024)
        self.port = listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop, listener), name="cloud-simulator")
        self._thread.start()
        # `stop` may come at once, and must not meet a loop that has not begun.
        self._serving.wait()

    def stop(self) -> None:
        """Closes the port and all connections; blocks until the thread ended. Twice does nothing."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop = self._thread = None
        self._serving.clear()

    def _run(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        connections: set[_Connection] = set()
        server = loop.run_until_complete(
            loop.create_server(lambda: _Connection(self._application, loop, connections), sock=listener, backlog=1024)
        )
        loop.call_soon(self._serving.set)
        try:
            loop.run_forever()
        finally:
            # Connections that were accepted just now are not made yet. A closed server would forget them, open.
            loop.remove_reader(listener)
            loop.run_until_complete(_settled(loop))
            server.close()
            for connection in list(connections):
                connection.abort()
            loop.run_until_complete(server.wait_closed())
            # One more round: the transports close their sockets in it.
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()


async def _settled(loop: asyncio.AbstractEventLoop) -> None:
    """Waits for what the loop has begun."""
    begun = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    if begun:
        await asyncio.wait(begun)


class _Connection(asyncio.Protocol):
    """One client. Answers its requests one after the other."""

    def __init__(
        self, application: Application, loop: asyncio.AbstractEventLoop, connections: set[_Connection]
    ) -> None:
        self._application = application
        self._loop = loop
        self._connections = connections
        self._parser = RequestParser(application.body_sink)
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._stream: AnswerStream | None = None
        self._woken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        # A request that waits for its delay is served nevertheless, as a real cloud does it.
        self._transport = None
        if not self._busy and isinstance(self._parser.sink, SteeredSink):
            self._parser.sink.abandon()
        self._connections.discard(self)
        self._end_stream()

    def abort(self) -> None:
        self._end_stream()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        if not self._busy:
            self._serve_next()

    def _serve_next(self) -> None:
        try:
            request = self._parser.next_request()
        except ValueError as error:
            self._send(Answer(400, str(error).encode(), {"Connection": "close"}, "text/plain"))
            self._close()
            return
        if request is None:
            self._slow_down()
            return
        self._busy = True
        seconds = self._application.delay(request)
        if seconds > 0:
            self._timer = self._loop.call_later(seconds, self._serve, request)
        else:
            self._serve(request)

    def _slow_down(self) -> None:
        """Read no more for as long as the body's sink wants."""
        sink = self._parser.sink
        seconds = sink.pause_seconds() if isinstance(sink, SteeredSink) else 0.0
        if seconds > 0 and self._transport is not None:
            self._transport.pause_reading()
            self._timer = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _serve(self, request: Request) -> None:
        self._timer = None
        answer = self._application.handle(request)
        if answer.silence is not None:
            self._timer = self._loop.call_later(answer.silence, self._close)
            return
        unread = isinstance(request.sink, SteeredSink) and request.sink.over
        if unread:
            answer.headers["Connection"] = "close"
        if answer.stream is not None:
            self._begin_stream(answer, answer.stream)
            return
        self._send(answer, without_body=request.method == "HEAD")
        self._busy = False
        if answer.cut or unread or request.headers.get("connection", "").lower() == "close":
            self._close()
        elif self._transport is not None:
            # Soon, not now: a client that sends many requests at once must not fill the stack.
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        if not self._busy and self._transport is not None:
            self._serve_next()

    def _send(self, answer: Answer, without_body: bool = False) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        lines = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, '')}"]
        if answer.body:
            lines.append(f"Content-Type: {answer.content_type}")
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        if answer.status != 204 and "Content-Length" not in answer.headers:
            # A HEAD says that of something that it does not send.
            lines.append(f"Content-Length: {len(answer.body) + (1000 if answer.cut else 0)}")
        lines.append("\r\n")
        head = "\r\n".join(lines).encode("latin-1")
        self._transport.write(head if without_body else head + answer.body)

    def _begin_stream(self, answer: Answer, stream: AnswerStream) -> None:
        if self._transport is None or self._transport.is_closing():
            stream.close()
            return
        head = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, '')}", f"Content-Type: {answer.content_type}"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        self._transport.write(("\r\n".join(head) + "\r\nTransfer-Encoding: chunked\r\n\r\n").encode("latin-1"))
        self._stream = stream
        stream.open(self._wake)
        self._go_on_with_stream()

    def _wake(self) -> None:
        if not self._woken and self._stream is not None:
            self._woken = True
            self._loop.call_soon_threadsafe(self._go_on_with_stream)

    def _go_on_with_stream(self) -> None:
        self._woken = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        stream = self._stream
        if stream is None or self._transport is None:
            return
        data = stream.take()
        if data:
            self._transport.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        if stream.over:
            self._finish_stream(stream)
            return
        seconds = stream.wait_seconds()
        if seconds is not None:
            self._timer = self._loop.call_later(max(0.0, seconds), self._go_on_with_stream)

    def _finish_stream(self, stream: AnswerStream) -> None:
        self._end_stream()
        self._busy = False
        if stream.cut:
            self._close()
        elif self._transport is not None:
            self._transport.write(b"0\r\n\r\n")
            self._loop.call_soon(self._continue)

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
