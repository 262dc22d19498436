# SPDX-License-Identifier: Apache-2.0
"""The handlers of the requests that a pool holds locked: run, polled and ended (`Handlers`)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.guard import Guard
from nodepool.launcher.pool import desk
from nodepool.model import states
from nodepool.model.reasons import REQUEST_CHANGED, Reason
from nodepool.plan.request_stage import Stage

if TYPE_CHECKING:
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.view import Pool

#: A pass at least this often while there are handlers: some wait for room, and some drivers do not call ``pw.wake()``.
POLL_SECONDS: Final = 1.0
#: The same while all of them wait for nothing but launches that wake the pool when they end.
LAUNCHES_SECONDS: Final = 10.0
#: Seconds after which a request that was given back is taken again (Q-12).
GIVEN_BACK_SECONDS: Final = 1.0


class Handlers:
    """Owned by the pool worker's thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._desk = pool.desk
        #: Factor of pauses, from 1 to 1.5. It differs between pools: pools that collided do not collide again.
        self._slowness = 1.0 + zlib.crc32(pool.launcher_id.encode()) % 256 / 512
        self.log = pool.log

    def poll(self) -> None:
        """Ask each whether its request is finished. One error affects no other (A-19).

        Requests are fulfilled together: the writes of all are sent before any answer is waited for.
        """
        with ExitStack() as ends:
            for handler in self._desk.handlers():
                # Equal to a poll, which would find that launches run.
                if handler.awaits_launches and not handler.done:
                    continue
                with self._polling(handler):
                    end = handler.begin_poll()
                    if end is not None:
                        # Called in any case.
                        ends.callback(self._end_poll, handler, end)
                    elif handler.done:
                        self._ended(handler)

    def _end_poll(self, handler: NodeRequestHandler, end: Callable[[], None]) -> None:
        with self._polling(handler):
            end()
            if handler.done:
                self._ended(handler)

    def _polling(self, handler: NodeRequestHandler) -> Guard:
        """Whatever a driver raises, the other requests go on."""
        return Guard(self.log, "Error while polling %s, trying again", handler.request, but=ZKConnectionError)

    def next_look(self, *, held: bool) -> float | None:
        """Seconds until the next pass at the latest. None = there are no handlers.

        :param held: is anything not to be served here? See `give_back_held`, which is to be called in each pass.
        """
        handlers = self._desk.handlers()
        if not handlers:
            return None
        if not held and all(handler.launching and handler.awaits_launches for handler in handlers):
            return LAUNCHES_SECONDS
        return POLL_SECONDS

    def run_unfinished(self) -> None:
        """Requests that wait for room try again, in order; each unpauses alone (Q-10)."""
        for handler in sorted(self._unfinished(), key=lambda handler: handler.request.order_key):
            self.run(handler)

    def run(self, handler: NodeRequestHandler) -> None:
        """Let a handler gather; forget it when it is done with its request."""
        self._serve(handler, handler.run)

    def give_back_unfinished(self) -> None:
        """Give back what waits for room, for a pool that goes (G-6)."""
        for handler in self._unfinished():
            self._serve(handler, handler.give_back_when_launched)

    def give_back_held(self, held: Callable[[Collection[str]], Reason | None]) -> None:
        """Give back what waits for room and is not to be served here any more (MT-6).

        :param held: why requests for some labels are not; None = they are.
        """
        for handler in self._desk.handlers():
            reason = held(handler.request.node_types)
            if reason is None:
                continue
            if handler.unfinished:
                handler.log.info("Giving the request back: %s", reason.text)
                self._serve(handler, partial(handler.give_back_when_launched, reason))
            # It may have launches all the same: they are ended first.
            if not handler.unfinished and not handler.done:
                self._serve(handler, handler.stop_waiting)

    def _serve(self, handler: NodeRequestHandler, call: Callable[[], None]) -> None:
        """Call a method of a handler. One error affects no other request. Raises ZKConnectionError."""
        # A driver may raise where the request cannot even be declined for it, e.g. in launchesComplete().
        with Guard(self.log, "Error while serving %s, trying again", handler.request, but=ZKConnectionError) as guard:
            try:
                call()
            except ZKConflict as conflict:
                self.log.warning("%s: %s", handler.request, conflict)
                return
        if guard.error is None and handler.done:
            self._ended(handler)

    def release_all(self) -> None:
        """The session was lost, and with it the right to serve (A-19, L-9). Raises ZKConnectionError: call again."""
        for handler in self._desk.handlers():
            # Forgotten only when it holds nothing any more; else the next pass goes on here.
            handler.release_locks()
            handler.move(Stage.DONE)
            self._desk.close(handler.request.key)

    def hand_over(self) -> None:
        """The launcher ends: let others serve what is not finished; nodes in launch are swept later (G-14)."""
        for handler in self._desk.handlers():
            # A driver may raise anything; the other requests need not wait for the end of the session.
            with Guard(self.log, "%s is left as it is", handler.request, but=ZKConnectionError):
                handler.hand_over()
                if handler.done:
                    # Some are fulfilled just now: metrics, traces and events tell of them as of all others.
                    self._ended(handler)

    def _unfinished(self) -> list[NodeRequestHandler]:
        return [handler for handler in self._desk.handlers() if handler.unfinished]

    def _ended(self, handler: NodeRequestHandler) -> None:
        """A handler is done with its request, whatever became of that."""
        request, reason = handler.request, handler.progress.reason
        desk.note(request)
        if request.state == states.REQUESTED and self._pool.launcher_id not in request.declined_by:
            delay = GIVEN_BACK_SECONDS * self._slowness
            self._desk.defer(request.key, reason or REQUEST_CHANGED, delay, handler.yields)
        else:
            self._desk.close(request.key)
            if self._pool.launcher_id in request.declined_by and reason is not None:
                self._pool.note_declined(request, reason)
        if request.state != states.FULFILLED:
            # What it let go of may serve others. A request that is fulfilled lets go of nothing that others could use.
            self._pool.request_changed(request.key)
