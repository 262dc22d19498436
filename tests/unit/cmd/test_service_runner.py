# SPDX-License-Identifier: Apache-2.0
"""nodepool.cmd.daemon and stack_dump: signals, readiness, watchdog, bounded stop (reference/commands 4)."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque

import pytest

from nodepool import log_names
from nodepool.cmd import daemon
from nodepool.cmd.daemon import DebugTools, Notifier, ServiceRunner
from nodepool.cmd.stop_signals import STOP_SIGNALS
from tests.support.manual_clock import ManualClock


class FakeService:
    def __init__(self) -> None:
        self.ready = threading.Event()
        self.last_loop = 0.0
        self.running = threading.Event()
        self.stopping = threading.Event()
        self.stopped = threading.Event()

    def start(self) -> None:
        self.running.set()

    def run(self) -> None:
        self.stopped.wait(60)

    def stop(self) -> None:
        self.stopping.set()
        self.stopped.set()


class StuckService(FakeService):
    def stop(self) -> None:
        self.stopping.set()
        self.stopped.wait(60)


class FakeNotifier(Notifier):
    def __init__(self, watchdog_seconds: float | None = None) -> None:
        super().__init__({})
        self.watchdog_seconds = watchdog_seconds
        self.messages: list[str] = []

    def _send(self, message: str) -> None:
        self.messages.append(message.splitlines()[0])


def when(event: threading.Event, action: object) -> threading.Thread:
    """Do something in another thread once an event is there."""

    def wait() -> None:
        assert event.wait(30)
        assert callable(action)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_thread_that_ends_by_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so: stderr of a daemon may be nowhere."""

    class Service(FakeService):
        def run(self) -> None:
            thread = threading.Thread(target=deque().popleft, name="odd")
            thread.start()
            thread.join()
            os.kill(os.getpid(), signal.SIGTERM)
            super().run()

    before = threading.excepthook
    assert ServiceRunner(Service(), FakeNotifier()).run() == 0
    assert "Thread odd ended by an error" in caplog.text
    assert threading.excepthook is before


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_stops_in_order(number: signal.Signals) -> None:
    """SIGTERM, SIGINT and SIGUSR1 stop in order with exit status 0."""
    service, notifier = FakeService(), FakeNotifier()
    helper = when(service.running, lambda: os.kill(os.getpid(), number))
    supervisor = ServiceRunner(service, notifier)
    assert supervisor.run() == 0
    helper.join()
    assert service.stopping.is_set()
    assert not supervisor.abandoned
    assert notifier.messages == ["STOPPING=1"]


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    service = FakeService()
    supervisor = ServiceRunner(service, FakeNotifier())
    supervisor.post(signal.SIGTERM)
    supervisor.run()
    assert signal.getsignal(signal.SIGTERM) is before


def test_no_thread_of_its_own_is_left() -> None:
    """J-8: what a normal stop leaves behind is worth a line in the log, so nothing of ours may be among it."""

    class Slow(FakeService):
        """Ends its own thread first, and only then the one that stops it."""

        def start(self) -> None:
            self.thread = threading.current_thread()

        def stop(self) -> None:
            super().stop()
            self.thread.join(30)

    runner = ServiceRunner(Slow(), FakeNotifier())
    runner.post(signal.SIGTERM)
    assert runner.run() == 0
    assert "Stop" not in {thread.name for thread in threading.enumerate()}


def test_second_signal_hastens() -> None:
    service = StuckService()
    supervisor = ServiceRunner(service, FakeNotifier())
    helper = when(service.stopping, lambda: supervisor.post(signal.SIGTERM))
    supervisor.post(signal.SIGTERM)
    assert supervisor.run() == 0
    assert supervisor.abandoned
    service.stopped.set()
    helper.join()


def test_service_says_what_further_signals_mean() -> None:
    """A builder ends its builds at the second one, and is given up at the third."""
    service, seen = StuckService(), []

    def on_stop_signal(number: int) -> bool:
        seen.append(number)
        if len(seen) < 3:
            supervisor.post(signal.SIGTERM)
        return len(seen) < 3

    supervisor = ServiceRunner(service, FakeNotifier(), on_stop_signal=on_stop_signal)
    supervisor.post(signal.SIGINT)
    assert supervisor.run() == 0
    assert seen == [signal.SIGINT, signal.SIGTERM, signal.SIGTERM]
    assert supervisor.abandoned
    service.stopped.set()


def test_stop_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A service that does not stop is left behind, and the log says what it was doing."""
    service = StuckService()
    supervisor = ServiceRunner(service, FakeNotifier(), stop_seconds=0.01)
    supervisor.post(signal.SIGTERM)
    with caplog.at_level(logging.DEBUG, "nodepool"):
        assert supervisor.run() == 1
    assert supervisor.abandoned
    assert any(record.name == log_names.STACK_DUMP for record in caplog.records)
    service.stopped.set()


def test_error_at_start_is_raised() -> None:
    class Broken(FakeService):
        def start(self) -> None:
            raise ValueError("bad configuration")

    with pytest.raises(ValueError, match="bad configuration"):
        ServiceRunner(Broken(), FakeNotifier()).run()


def test_end_without_signal_is_a_failure() -> None:
    service = FakeService()
    service.stopped.set()
    assert ServiceRunner(service, FakeNotifier()).run() == 1


def test_dump_signal_writes_stacks(caplog: pytest.LogCaptureFixture) -> None:
    """SIGUSR2: every thread's stack at DEBUG to nodepool.stack_dump; the daemon goes on."""
    service = FakeService()
    supervisor = ServiceRunner(service, FakeNotifier())
    asked: list[str] = []
    supervisor.debug_tools = DebugTools(lambda package: asked.append(package))

    def both() -> None:
        # Python calls handlers of pending signals in the order of their numbers.
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGTERM)

    helper = when(service.running, both)
    with caplog.at_level(logging.DEBUG, log_names.STACK_DUMP):
        assert supervisor.run() == 0
    helper.join()
    supervisor.debug_tools.join()
    assert asked == ["yappi", "objgraph"]
    (record,) = [record for record in caplog.records if record.name == log_names.STACK_DUMP]
    assert record.levelno == logging.DEBUG
    assert "MainThread" in record.getMessage()
    assert "stacks" in record.getMessage()


def test_dump_appears_whatever_the_level(caplog: pytest.LogCaptureFixture) -> None:
    """An operator who asks for the stacks gets them although the logger is set to a higher level."""
    with caplog.at_level(logging.WARNING, log_names.STACK_DUMP):
        daemon.dump()
    assert caplog.records[0].levelno == logging.WARNING


def test_ready_is_told_once() -> None:
    service, notifier = FakeService(), FakeNotifier()
    called: list[bool] = []
    supervisor = ServiceRunner(service, notifier, on_loaded=lambda: called.append(True))
    supervisor.notify()
    assert (notifier.messages, called) == ([], [])
    service.ready.set()
    supervisor.notify()
    supervisor.notify()
    assert (notifier.messages, called) == (["READY=1"], [True])
    supervisor.on_reload("reloading")
    supervisor.notify()
    assert called == [True]
    supervisor.on_reload("reloaded")
    supervisor.notify()
    assert called == [True, True]


def test_watchdog_follows_the_main_loop() -> None:
    """The watchdog is only fed while the main loop turns."""
    service, notifier, clock = FakeService(), FakeNotifier(watchdog_seconds=40.0), ManualClock()
    supervisor = ServiceRunner(service, notifier, clock=clock)
    service.ready.set()
    service.last_loop = clock.now
    supervisor.notify()
    assert notifier.messages == ["READY=1", "WATCHDOG=1"]
    clock.now += 5
    supervisor.notify()
    assert len(notifier.messages) == 2, "not more often than needed"
    clock.now += 10
    supervisor.notify()
    assert len(notifier.messages) == 3
    clock.now += 10
    supervisor.notify()
    assert len(notifier.messages) == 3, "the main loop stands still"
    service.last_loop = clock.now
    supervisor.notify()
    assert len(notifier.messages) == 4


def test_reload_is_told_once_ready() -> None:
    """systemd sees RELOADING, then READY again with the outcome; before the first READY nothing."""
    service, notifier = FakeService(), FakeNotifier()
    supervisor = ServiceRunner(service, notifier)
    supervisor.on_reload("reloading")
    assert notifier.messages == []
    service.ready.set()
    supervisor.notify()
    supervisor.on_reload("reloading")
    supervisor.on_reload("serving")
    assert notifier.messages == ["READY=1", "RELOADING=1", "READY=1"]


class Drained(FakeService):
    """Finishes what it does when it is told to, and then ends by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.draining = threading.Event()

    def drain(self, number: int) -> bool:
        self.draining.set()
        return number == signal.SIGTERM

    def finished(self) -> bool:
        return self.stopped.is_set() and not self.stopping.is_set()


def drained(service: Drained, notifier: FakeNotifier) -> ServiceRunner:
    return ServiceRunner(service, notifier, drain=service.drain, finished=service.finished)


def test_drained_after_a_signal() -> None:
    """MT-8: SIGTERM lets the service finish; then it ends by itself, with status 0."""
    service, notifier = Drained(), FakeNotifier()
    helpers = [
        when(service.running, lambda: os.kill(os.getpid(), signal.SIGTERM)),
        when(service.draining, service.stopped.set),
    ]
    assert drained(service, notifier).run() == 0
    for helper in helpers:
        helper.join()
    assert not service.stopping.is_set()


def test_second_signal_ends_a_drain() -> None:
    """MT-8: in order, as without it."""
    service, notifier = Drained(), FakeNotifier()
    helpers = [
        when(service.running, lambda: os.kill(os.getpid(), signal.SIGTERM)),
        when(service.draining, lambda: os.kill(os.getpid(), signal.SIGTERM)),
    ]
    assert drained(service, notifier).run() == 0
    for helper in helpers:
        helper.join()
    assert service.stopping.is_set()


def test_service_that_has_nothing_to_finish() -> None:
    """MT-8: the signal ends it at once, e.g. SIGINT, or before it serves."""
    service = Drained()
    helper = when(service.running, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert drained(service, FakeNotifier()).run() == 0
    helper.join()
    assert service.draining.is_set()
    assert service.stopping.is_set()


def test_service_that_finished_by_itself() -> None:
    """MT-8: as a maintenance record says; only an end that nobody asked for is an error."""
    service = Drained()
    helper = when(service.running, service.stopped.set)
    assert drained(service, FakeNotifier()).run() == 0
    helper.join()
