# SPDX-License-Identifier: Apache-2.0
"""`Simulator`: a simulated cloud on a loopback port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from simulators.base.core import SimulationCore
from simulators.base.http_server import Application, HttpServer

T = TypeVar("T")
S = TypeVar("S", bound="Simulator[Any]")


class Simulator(Generic[T]):
    """A cloud with memory. Use it as a context manager, or call `start` and `stop`.

    :param cloud: its contents.
    :param core: its settings, lock and clock.
    :param port: 0 chooses a free one.
    """

    def __init__(self, cloud: T, core: SimulationCore[Any], application: Application, port: int = 0) -> None:
        self._cloud = cloud
        self._core = core
        self._server = HttpServer(application, port=port)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self._server.host}:{self._server.port}"

    def start(self) -> None:
        """Begins to answer. After `stop` it is the same cloud at the same address.

        :raises OSError: the port is taken.
        """
        self._server.start()

    def stop(self) -> None:
        """Closes the port and all connections; blocks until the thread ended. The cloud keeps what is in it."""
        self._server.stop()

    def __enter__(self: S) -> S:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @contextmanager
    def cloud(self) -> Iterator[T]:
        """The cloud's present state, to look at or to change; no request is served meanwhile."""
        with self._core.lock:
            self._core.run_due()
            yield self._cloud

    def change(self, **changes: object) -> None:
        """Changes settings, named and written as in `SimulatorSettings.update`.

        :raises ValueError: an unknown name or a bad value.
        """
        with self.cloud():
            self._core.knobs.update(changes)
