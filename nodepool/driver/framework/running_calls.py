# SPDX-License-Identifier: Apache-2.0
"""`RunningCalls`: calls of drivers that have not returned yet, and which of them are late.

There is hardly a hard bound on calls of drivers. A thread cannot be ended from outside, and who goes on without the
answer of a call has a driver that still works in the background with a node or request that may be somebody else's by
then. So `Provider.idle`, ``stop`` and ``join`` only, after which nobody needs the provider any more, are abandoned.
A call of another hook is logged while it hangs, again and again.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.model.node import Node

#: After so many seconds a call that is late is logged; then once an hour.
TOLD_SECONDS: Final = (1.0, 10.0, 60.0, 600.0, 3600.0)


class TimeBound(NamedTuple):
    """How long a call of a hook may take.

    :param blocks: may it block?
    :param late_seconds: after these it is late.
    :param text: for the documentation: what follows then.
    """

    blocks: bool
    late_seconds: float
    text: str


#: The thread that calls serves others, too.
AT_ONCE: Final = TimeBound(False, 1.0, "1 s: logged; others wait for the thread")
#: The thread of the pool: it may ask ZooKeeper, or wait for a first answer of the cloud.
OF_THE_POOL: Final = TimeBound(True, 1.0, "1 s: logged; the pool waits")
#: Such a call, but one that the launcher can do without.
GIVEN_UP: Final = TimeBound(True, 10.0, "10 s: abandoned; it has a thread of its own")
#: Such a call, but one that nothing else waits for.
OF_THE_START: Final = TimeBound(True, 60.0, "60 s: logged; it has a thread of its own, and nothing waits for it")
#: The driver asks its cloud, or may do so.
OF_THE_CLOUD: Final = TimeBound(True, 60.0, "60 s: logged; the time limits of the driver end it")
#: The cloud works for long.
LONG: Final = TimeBound(True, 600.0, "600 s: logged; the time limits of the driver end it")


class LateCall(NamedTuple):
    """A call that is late.

    :param about: ids that it was called with, or for.
    :param seconds: since its begin.
    :param thread: name of the thread that is in it.
    :param blocks: may the hook block?
    :param tell: is it time to tell of it (again)?
    """

    provider: str
    hook: str
    about: str
    seconds: float
    thread: str
    blocks: bool
    tell: bool


#: Hook, provider, time of the begin, bound, object, arguments, thread.
_Running = tuple[str, str, float, TimeBound, Any, tuple[Any, ...], int]


class RunningCalls:
    """All of this process. Any thread; each call is one entry, written and removed without a lock.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._running: dict[int, _Running] = {}
        #: Number of a call -> the last of `TOLD_SECONDS` that was told. For the thread that looks.
        self._told: dict[int, float] = {}

    def begin(self, hook: str, provider: str, begun: float, bound: TimeBound, owner: Any, args: tuple[Any, ...]) -> int:
        """A call begins in this thread; returns its number, for `end`."""
        number = next(self._numbers)
        self._running[number] = (hook, provider, begun, bound, owner, args, threading.get_ident())
        return number

    def end(self, number: int) -> None:
        """It is over."""
        del self._running[number]

    def of_provider(self, provider: str) -> dict[str, float]:
        """Hook -> seconds since the oldest of its calls began. Any thread; does not block."""
        now = self._clock()
        found: dict[str, float] = {}
        for hook, of_provider, begun, *_ in list(self._running.values()):
            if of_provider == provider:
                found[hook] = max(found.get(hook, 0.0), now - begun)
        return found

    def late(self) -> list[LateCall]:
        """All calls that are late, the oldest first. For one thread; does not block."""
        now = self._clock()
        running = {
            number: call for number, call in list(self._running.items()) if now - call[2] >= call[3].late_seconds
        }
        self._told = {number: told for number, told in self._told.items() if number in running}
        names = {thread.ident: thread.name for thread in threading.enumerate()} if running else {}
        found = []
        for number, (hook, provider, begun, bound, owner, args, thread) in sorted(running.items()):
            seconds = now - begun
            step = _step(seconds, bound.late_seconds)
            tell = step > self._told.get(number, -1.0)
            self._told[number] = step
            name = names.get(thread, "")
            found.append(LateCall(provider, hook, about(owner, args), seconds, name, bound.blocks, tell))
        return found


def _step(seconds: float, late_seconds: float) -> float:
    """The last time at which a call was due to be logged."""
    longest = TOLD_SECONDS[-1]
    if seconds >= longest:
        return seconds // longest * longest
    return max([late_seconds, *(step for step in TOLD_SECONDS if step <= seconds)])


def about(owner: Any, args: tuple[Any, ...]) -> str:
    """What a call is about, for the log: ids and nodes in its arguments, the request of a handler, the instance."""
    told = [str(arg) for arg in args if isinstance(arg, str | Node)]
    # Nothing of a driver is called: it hangs, perhaps.
    state = getattr(owner, "__dict__", {})
    request_id = getattr(state.get("request"), "id", None)
    if request_id is not None:
        told.append(f"request {request_id}")
    if state.get("external_id") is not None:
        told.append(f"instance {state['external_id']}")
    return ", ".join(told)
