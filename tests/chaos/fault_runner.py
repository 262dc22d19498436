# SPDX-License-Identifier: Apache-2.0
"""Does the faults of a schedule, each in its time and alone on its target."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from kazoo.exceptions import KazooException

from tests.chaos.events import Events, Violations
from tests.chaos.schedule import Fault

#: How long a fault waits for the one before on the same target.
LATE_SECONDS = 5.0


class FaultRunner:
    """A kind of fault ``some-kind`` is a method ``some_kind`` of one of the places, or ``_some_kind`` of a subclass.

    Such a method blocks until the fault is over, and returns what is worth a note.
    """

    def __init__(self, events: Events, violations: Violations) -> None:
        self._events = events
        self._violations = violations
        #: A fault may take longer than the schedule knows; the next one on the same target waits for it.
        self._targets: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._places: list[object] = []

    def run(self, faults: list[Fault]) -> None:
        """Blocks until all have ended."""
        threads = []
        for fault in faults:
            threading.Event().wait(max(0.0, fault.at - self._events.now()))
            thread = threading.Thread(target=self._do, args=(fault,), name=f"fault-{fault.kind}")
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
        self.put_right()

    def put_right(self) -> None:
        """After the last fault: what an operator does about what is left of them."""

    def _do(self, fault: Fault) -> None:
        if not self._targets[fault.target].acquire(timeout=LATE_SECONDS):
            # Faults that queued up would come one upon the other, and after the end of the run.
            self._events.note(f"fault {fault.kind} was left out: its target, {fault.target}, is busy")
            return
        try:
            self._do_alone(fault)
        finally:
            self._targets[fault.target].release()

    def _do_alone(self, fault: Fault) -> None:
        method = self._method(fault.kind.replace("-", "_"))
        target = "" if fault.launcher is None else f" {fault.whose} {fault.launcher}"
        amount = f" {fault.amount:g}" if fault.amount else ""
        self._events.note(f"fault {fault.kind}{target}{amount} for {fault.seconds:g} s")
        try:
            what = method(fault)
        except (OSError, KazooException) as error:
            # ZooKeeper or the cloud is away just now.
            self._events.note(f"fault {fault.kind} was not possible: {error!r}")
        except Exception as error:
            self._violations.add(f"fault {fault.kind} is wrong: {error!r}")
        else:
            self._events.note(f"end of {fault.kind}{target}{f': {what}' if what else ''}")

    def _method(self, name: str) -> Callable[[Fault], str | None]:
        found: list[Callable[[Fault], str | None]] = [
            method for place in self._places if (method := getattr(place, name, None))
        ]
        return found[0] if found else getattr(self, f"_{name}")

    def _pause(self, fault: Fault) -> None:
        threading.Event().wait(fault.seconds)
