# SPDX-License-Identifier: Apache-2.0
"""The deletion of one server, in steps: its floating IP first (O-5), then the server, until it is really gone.

::

    start -> [floating] -> deleting -> waiting -> complete
                              ^           |
                              +-----------+        (the cloud swallowed it: once more, each time a little later)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.openstack.errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.openstack.views import ERROR
from nodepool.driver.statemachine import StateMachine

if TYPE_CHECKING:
    from nodepool.driver.openstack.cloud import OpenStackCloud
    from nodepool.driver.statemachine.adapter import Log

SAFETY_SECONDS: Final = 5.0
#: After how long a deletion that shows no effect is sent again; doubled each time.
FIRST_RESEND_SECONDS: Final = 2.0
LONGEST_RESEND_SECONDS: Final = 60.0
#: The same for one that the cloud has begun.
BEGUN_RESEND_SECONDS: Final = 60.0
#: When to look again for a list that is new enough to say so.
UNLISTED_SECONDS: Final = 1.0
#: Between two attempts after an error.
FIRST_ERROR_SECONDS: Final = 0.5
LONGEST_ERROR_SECONDS: Final = 30.0
#: A cloud that does not answer so many times in a row is away: the framework must know.
AWAY_ANSWERS: Final = 4


class DeleteMachine(StateMachine):
    """See the module. A moment's trouble of the cloud is sat out; then it is an error, and the framework tries again.

    :param external_id: of the server; None = there is nothing to delete.
    """

    FLOATING: ClassVar[str] = "floating"
    DELETING: ClassVar[str] = "deleting"
    WAITING: ClassVar[str] = "waiting"
    COMPLETE: ClassVar[str] = "complete"

    def __init__(
        self, cloud: OpenStackCloud, external_id: str | None, log: Log, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__()
        self._cloud = cloud
        self.external_id = external_id
        self._log = log
        self._clock = clock
        self._job: Future[Any] | None = None
        self._waiter: Any = None
        self._resend_seconds = FIRST_RESEND_SECONDS
        self._error_seconds = FIRST_ERROR_SECONDS
        self._errors = 0
        #: When the last deletion was accepted, and when to send the next.
        self._accepted_at = float("-inf")
        self._resend_at = float("inf")
        self._not_before = float("-inf")

    def advance(self) -> None:
        self.next_advance_seconds = SAFETY_SECONDS
        if self._waiter is not None:
            self._cloud.inventory.touch(self._waiter)
        steps: dict[str, Callable[[], bool]] = {
            self.START: self._start,
            self.FLOATING: self._floating,
            self.DELETING: self._deleting,
            self.WAITING: self._waiting,
        }
        try:
            while self.state in steps and steps[self.state]():
                continue
        except Exception:
            # Whatever ended it, the list of servers must not go on for this one.
            self._end_wait(False)
            raise

    # -- steps: True = look at the new state at once, False = wait --

    def _start(self) -> bool:
        if not self.external_id:
            return self._gone()
        if self._cloud.inventory.is_gone(self.external_id):
            return self._gone()
        server_id, server = self.external_id, self._cloud.inventory.get(self.external_id)
        if self._cloud.floating.may_have(server_id, server):
            self._submit(lambda: self._cloud.floating.release(server_id, server))
            return self._go(self.FLOATING)
        return self._send()

    def _floating(self) -> bool:
        if self._job is None:
            return self._wait_until(self._not_before) and self._again()
        if not self._job.done():
            return False
        try:
            self._result()
        except CloudAway as error:
            return self._error(error)
        except CloudRefused as error:
            self._log.warning("The floating IP of server %s could not be removed: %s", self.external_id, error)
        return self._send()

    def _again(self) -> bool:
        self.state = self.START
        return True

    def _send(self) -> bool:
        server_id = self.external_id
        assert server_id is not None
        if self._waiter is None:
            self._waiter = self._cloud.inventory.wait_for("delete", lambda: self.wake(), server_id)
        self._submit(lambda: self._cloud.delete_server(server_id))
        return self._go(self.DELETING)

    def _deleting(self) -> bool:
        if self._job is None:
            return self._wait_until(self._not_before) and self._send()
        if not self._job.done():
            return False
        try:
            self._result()
        except CloudNotFound:
            return self._gone()
        except CloudRefused as error:
            if error.status != 409:
                raise
            # Another operation on the server is under way.
            return self._error(error)
        except CloudAway as error:
            return self._error(error)
        now = self._clock()
        self._error_seconds = FIRST_ERROR_SECONDS
        self._errors = 0
        self._accepted_at = now
        self._resend_at = now + self._resend_seconds
        return self._go(self.WAITING)

    def _waiting(self) -> bool:
        server_id = self.external_id
        assert server_id is not None
        inventory = self._cloud.inventory
        if inventory.is_gone(server_id):
            return self._gone()
        if self._job is not None:
            return self._confirmed()
        server = inventory.get(server_id)
        now = self._clock()
        if server is None:
            if inventory.absence_is_certain(self._accepted_at):
                # Lists can overlook a server: only its own answer counts.
                self._submit(lambda: self._cloud.api.server(server_id))
            else:
                # The list that makes it certain may have no news of this server.
                self.next_advance_seconds = UNLISTED_SECONDS
            return False
        begun = server.deleting and server.status != ERROR
        due = max(self._resend_at, self._accepted_at + BEGUN_RESEND_SECONDS) if begun else self._resend_at
        if now < due:
            return self._wait_until(due)
        if inventory.listed_at <= self._accepted_at:
            # A list that was begun before the deletion was accepted, or none: what it shows is no reason to repeat it.
            self.next_advance_seconds = UNLISTED_SECONDS
            return False
        self._resend_seconds = min(LONGEST_RESEND_SECONDS, 2 * self._resend_seconds)
        self._log.warning("Server %s is still there (%s), deleting it once more", server_id, server.status)
        return self._send()

    def _confirmed(self) -> bool:
        """The server itself was asked for, because it is in no list."""
        assert self._job is not None
        if not self._job.done():
            return False
        try:
            server = self._result()
        except CloudNotFound:
            return self._gone()
        except (CloudAway, CloudRefused) as error:
            self._log.debug("Server %s: %s", self.external_id, error)
            server = None
        if server is not None and server.gone:
            return self._gone()
        if self._clock() >= self._resend_at and not (server is not None and server.deleting):
            self._resend_seconds = min(LONGEST_RESEND_SECONDS, 2 * self._resend_seconds)
            return self._send()
        # Ask again after the next complete list.
        self._accepted_at = self._clock()
        return False

    def _gone(self) -> bool:
        if self.external_id:
            self._cloud.inventory.set_gone(self.external_id)
            self._cloud.claims.deleted(self.external_id)
        self._end_wait(True)
        self._go(self.COMPLETE)
        self.complete = True
        return False

    # -- helpers --

    def _error(self, error: Exception) -> bool:
        self._errors += 1
        if isinstance(error, CloudAway) and self._errors >= AWAY_ANSWERS:
            raise error
        self._log.warning("Server %s: %s; tried again in %g s", self.external_id, error, self._error_seconds)
        self._not_before = self._clock() + self._error_seconds
        self._error_seconds = min(LONGEST_ERROR_SECONDS, 2 * self._error_seconds)
        return self._wait_until(self._not_before)

    def _wait_until(self, when: float) -> bool:
        """True = it is time; else the framework comes back then."""
        left = when - self._clock()
        if left <= 0:
            return True
        self.next_advance_seconds = min(SAFETY_SECONDS, left)
        return False

    def _go(self, state: str) -> bool:
        self.state = state
        return True

    def _submit(self, call: Callable[[], Any]) -> None:
        self._job = self._cloud.others.submit(call)
        self._job.add_done_callback(lambda _: self.wake())

    def _result(self) -> Any:
        assert self._job is not None
        job, self._job = self._job, None
        return job.result()

    def _end_wait(self, happened: bool) -> None:
        if self._waiter is not None:
            self._cloud.inventory.done(self._waiter, happened)
            self._waiter = None
