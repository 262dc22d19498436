# SPDX-License-Identifier: Apache-2.0
"""Runs a service until a signal ends it: signals, readiness, watchdog, bounded shutdown (reference/commands 4)."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Final, Protocol

from nodepool.clock import monotonic, monotonic_microseconds
from nodepool.cmd import debugging
from nodepool.cmd.app import Stopped
from nodepool.cmd.debugging import DebugTools
from nodepool.cmd.stop_signals import STOP_SIGNALS, stop_handler
from nodepool.guard import Guard

DUMP_SIGNAL: Final = signal.SIGUSR2

#: How long an orderly stop may take, in seconds. systemd waits 90 s by default before it kills.
STOP_SECONDS: Final = 30.0
_TICK_SECONDS: Final = 1.0

log = logging.getLogger("nodepool.cmd.service_runner")
#: The thread that stops the service ends a moment after the service; it is waited for no longer than this, in seconds.
_STOPPER_SECONDS: Final = 1.0


class DaemonService(Protocol):
    """What a daemon does, e.g. `nodepool.launcher.supervisor.NodePool`."""

    @property
    def ready(self) -> threading.Event:
        """Set once the service does its work."""

    @property
    def last_loop(self) -> float:
        """Monotonic seconds of the last turn of the main loop."""

    def start(self) -> None:
        """Begin; an exception ends the daemon."""

    def run(self) -> None:
        """Block until `stop`."""

    def stop(self) -> None:
        """End in order. May block."""


def _log_end_of_thread(args: threading.ExceptHookArgs) -> None:
    name = "?" if args.thread is None else args.thread.name
    log.error("Thread %s ended by an error", name, exc_info=args.exc_value)


def early_stop() -> contextlib.AbstractContextManager[None]:
    """Inside, a signal that stops a daemon ends it by `Stopped`, until a `ServiceRunner` takes the signals over.

    Much is imported before that. For the main thread.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(signal.Signals(number).name)

    return stop_handler(stop)


class ServiceRunner:
    """Runs a service in a thread and stays free for signals in the main thread.

    :param service: what to run.
    :param notifier: informs systemd.
    :param stop_seconds: how long an orderly stop may take.
    :param on_stop_signal: called in the main thread with each signal to stop, the first one before the service's
        `stop`. Of a further one it says whether the service still ends in order; False = the daemon ends at once.
    :param drain: called in the main thread with a signal to stop that comes first. True = the service finishes what it
        does, and ends by itself; False = it is stopped now, as with a further signal.
    :param finished: did the service end because it was asked to? Else its end is an error.
    :param clock: monotonic seconds.
    :param on_loaded: called in the main thread when the service is ready, and again after each reload.
    """

    def __init__(
        self,
        service: DaemonService,
        notifier: Notifier,
        *,
        on_loaded: Callable[[], None] = lambda: None,
        on_stop_signal: Callable[[int], bool] = lambda number: False,
        drain: Callable[[int], bool] = lambda number: False,
        finished: Callable[[], bool] = lambda: False,
        stop_seconds: float = STOP_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._service = service
        self._notifier = notifier
        self._on_loaded = on_loaded
        self._on_stop_signal = on_stop_signal
        self._drain = drain
        self._finished = finished
        #: Was it told of what is loaded now?
        self._loaded_told = False
        self._stop_seconds = stop_seconds
        self._clock = clock
        # SimpleQueue.put may be called from a signal handler at any point; a lock or an Event may not.
        self._events: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._ready_sent = False
        self._last_ping = float("-inf")
        self.debug_tools = DebugTools()
        #: The service did not end in time, or was told twice: its threads may still be running.
        self.abandoned = False

    def run(self) -> int:
        """Run the service until a signal comes or it ends by itself. Call it in the main thread.

        :return: exit status: 0 after a signal, 1 when the service did not end in time.
        :raises Exception: what ended the service.
        """
        previous = {number: signal.signal(number, self._on_signal) for number in (*STOP_SIGNALS, DUMP_SIGNAL)}
        threading.excepthook, hook = _log_end_of_thread, threading.excepthook
        worker = threading.Thread(target=self._work, name="Service", daemon=True)
        try:
            worker.start()
            if self._wait_for_signal(worker):
                return self._stop(worker)
            worker.join()
            if self._error is not None:
                raise self._error
            if self._finished():
                log.info("Stopped")
                return 0
            log.error("The daemon ended unexpectedly")
            return 1
        finally:
            threading.excepthook = hook
            for number, handler in previous.items():
                signal.signal(number, handler)

    def post(self, number: int) -> None:
        """Behave as if the signal had come."""
        self._events.put(number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._events.put(number)

    def _work(self) -> None:
        try:
            self._service.start()
            self._service.run()
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error
        finally:
            self._events.put(None)

    def _wait_for_signal(self, worker: threading.Thread) -> bool:
        """Wait until a stop signal comes (True) or the service ends by itself (False)."""
        draining = False
        while True:
            event = self._next(self._tick_seconds())
            if event is not None and event in STOP_SIGNALS and not draining and self._drain(event):
                draining = True
                log.info("%s: finishing what is being served; another signal ends it now", signal.Signals(event).name)
            elif event is not None and event in STOP_SIGNALS:
                log.info("Stopping after %s", signal.Signals(event).name)
                self._on_stop_signal(event)
                return True
            if event is None and not worker.is_alive():
                return False
            self.notify()

    def _next(self, seconds: float) -> int | None:
        """The next stop signal, or None after a while. Requests for a stack dump are served here."""
        try:
            event = self._events.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if event == DUMP_SIGNAL:
            debugging.dump()
            self.debug_tools.begin()
            return None
        return event

    def _tick_seconds(self) -> float:
        watchdog = self._notifier.watchdog_seconds
        return _TICK_SECONDS if watchdog is None else min(_TICK_SECONDS, watchdog / 4)

    def on_reload(self, phase: str) -> None:
        """Tell systemd that the configuration is read again ("reloading"), and then how that ended. Does not block."""
        if not self._ready_sent:
            return
        if phase == "reloading":
            self._notifier.reloading()
        else:
            self._loaded_told = False
            self._notifier.ready(phase)

    def notify(self) -> None:
        """Tell systemd once when the service is ready, then that it lives while its main loop really turns."""
        if not self._service.ready.is_set():
            return
        if not self._ready_sent:
            self._ready_sent = True
            self._notifier.ready()
            log.info("Ready")
        if not self._loaded_told:
            self._loaded_told = True
            self._on_loaded()
        seconds, now = self._notifier.watchdog_seconds, self._clock()
        if seconds is None or now - self._last_ping < seconds / 4:
            return
        silent = now - self._service.last_loop
        if silent < seconds / 2:
            self._last_ping = now
            self._notifier.watchdog()
        else:
            log.warning("The main loop has not run for %.0f s", silent)

    def _stop(self, worker: threading.Thread) -> int:
        self._notifier.stopping()
        stopper = threading.Thread(target=self._service_stop, name="Stop", daemon=True)
        stopper.start()
        deadline = self._clock() + self._stop_seconds
        # Once the service's thread has ended there is nothing left to stop, whatever `stop` still waits for.
        while worker.is_alive():
            left = deadline - self._clock()
            if left <= 0:
                self.abandoned = True
                log.error("Not stopped within %g s, ending now. What the threads do:", self._stop_seconds)
                debugging.dump()
                return 1
            again = self._next(min(0.5, left))
            if again is not None and again in STOP_SIGNALS and not self._on_stop_signal(again):
                self.abandoned = True
                log.warning("Ending at once after another signal")
                return 0
        stopper.join(_STOPPER_SECONDS)
        if self._error is not None:
            log.error("Error while stopping", exc_info=self._error)
        log.info("Stopped")
        return 0

    def _service_stop(self) -> None:
        # The process must end all the same, and is about to.
        with Guard(log, "Error while stopping"):
            self._service.stop()
        self._events.put(None)


# Messages to systemd: sd_notify(3), the datagram protocol that needs no library.


class Notifier:
    """Informs systemd about the state of the daemon; does nothing when systemd did not start us.

    :param environment: where ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` are looked up.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        #: Seconds after which systemd kills us without a `watchdog` message; None = never.
        self.watchdog_seconds = _watchdog_seconds(environment) if self._address else None

    def ready(self, status: str = "serving") -> None:
        """The daemon is up, or has finished a reload.

        :param status: one line for ``systemctl status``.
        """
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """The daemon reads its configuration again; `ready` must follow."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_microseconds()}")

    def stopping(self) -> None:
        """The daemon is on its way out."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def watchdog(self) -> None:
        """The daemon is alive."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                # A full socket must not hold up the daemon.
                sock.setblocking(False)
                sock.sendto(message.encode(), self._address)
        except OSError as error:
            log.warning("Cannot notify systemd at %s: %s", self._address, error)


def _address(value: str) -> str:
    """The socket's address: a path, or with a leading ``@`` a name in the abstract namespace."""
    if value.startswith("@"):
        return "\0" + value[1:]
    return value if value.startswith("/") else ""


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    pid = environment.get("WATCHDOG_PID")
    if pid is not None and pid != str(os.getpid()):
        return None
    try:
        seconds = int(environment.get("WATCHDOG_USEC", "")) / 1e6
    except ValueError:
        return None
    return seconds if seconds > 0 else None
