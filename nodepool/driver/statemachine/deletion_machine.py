# SPDX-License-Identifier: Apache-2.0
"""`DeletionMachine`: the deletion of one instance of an `InstanceCloud`, in steps, until it is really gone.

::

    start -> [preparing] -> deleting -> waiting -> [clearing] -> complete
                               ^           |
                               +-----------+        (it had no effect: once more, each time a little later)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import NotFoundByProxy
from nodepool.driver.statemachine.adapter import Log
from nodepool.driver.statemachine.instance_cloud import InstanceCloud
from nodepool.driver.statemachine.inventory import R
from nodepool.driver.statemachine.inventory_machine import InventoryMachine, Step, cloud_is_away
from nodepool.exceptions import LaunchError, NotFound
from nodepool.plan.backoff import Backoff

#: After how long a deletion that shows no effect is sent again.
RESEND: Final = Backoff(2.0, 60.0)
#: The same for one that the cloud has begun.
BEGUN_RESEND_SECONDS: Final = 60.0
#: When to look again for a list that is new enough to say so.
UNLISTED_SECONDS: Final = 1.0
#: Between two attempts after an error.
RETRY: Final = Backoff(0.5, 30.0)
#: A cloud that does not answer so many times in a row is away: the framework must know.
AWAY_ANSWERS: Final = 4
#: A proxy may have its own page for each 404 of the cloud. An instance that so many complete lists in a row lack, each
#: after such a page, is gone.
PROXY_ANSWERS: Final = 4


class DeletionMachine(InventoryMachine[R]):
    """A short error of the cloud is waited out; a longer one is an error, and the framework tries again.

    :param external_id: of the instance; None = there is nothing to delete.
    """

    PREPARING: ClassVar[str] = "preparing"
    DELETING: ClassVar[str] = "deleting"
    WAITING: ClassVar[str] = "waiting"
    CLEARING: ClassVar[str] = "clearing"

    resends: ClassVar[bool] = True

    def __init__(
        self, cloud: InstanceCloud[R], external_id: str | None, log: Log, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(cloud, log, clock)
        self.external_id = self.record_id = external_id
        #: Deletions that were accepted.
        self._accepted = 0
        #: Errors in a row.
        self._errors = 0
        #: Deletions that were answered, by the cloud or by a proxy.
        self._answers = 0
        #: Answers 404 of a proxy about the instance, since a list has shown it.
        self._by_proxy = 0
        #: Has a list shown the instance?
        self._shown = False
        #: When the last deletion was answered, and when to send the next.
        self._accepted_at = float("-inf")
        self._resend_at = float("inf")
        self._not_before = float("-inf")
        #: When the first deletion was sent: the instance is older than that.
        self._first_sent_at: float | None = None

    # -- what the driver says --

    def before(self, record: R | None) -> Callable[[], Any] | None:
        """What must go before the instance, as a call that blocks; None = nothing.

        :param record: the instance as last seen.
        """
        return None

    def after(self) -> Callable[[], Any] | None:
        """What may be left when the instance is gone and must go, too, as a call that blocks; None = nothing.

        Also asked if there never was an instance.
        """
        return None

    def begun(self, record: R) -> bool:
        """Does the cloud work on the deletion? Then it is not sent again soon."""
        return False

    def busy(self, error: LaunchError) -> bool:
        """Did the cloud refuse the deletion only for now?"""
        return False

    # -- steps --

    def lets_go_on(self, record: R | None) -> bool:
        # That the cloud has begun makes the next resend later; the step that would send looks at that.
        return record is None or not self.begun(record)

    def steps(self) -> Mapping[str, Step]:
        return {
            self.START: self._start,
            self.PREPARING: self._preparing,
            self.DELETING: self._deleting,
            self.WAITING: self._waiting,
            self.CLEARING: self._clearing,
        }

    def _start(self) -> bool:
        if not self.external_id:
            return self._clear()
        if self.cloud.gone_already(self.external_id):
            return self._gone()
        call = self.before(self.cloud.inventory.get(self.external_id))
        if call is not None:
            self.call(call)
            return self.go(self.PREPARING)
        return self._send()

    def _preparing(self) -> bool:
        if not self.calling:
            return self.reached(self._not_before) and self.go(self.START)
        return self._side_call_is_over() and self._send()

    def _side_call_is_over(self) -> bool:
        """Has what goes with the instance gone, or is it known that it will not? A refusal does not keep the rest."""
        if not self.answered:
            return False
        try:
            self.answer()
        except NotFound:
            return True
        except (LaunchError, OSError) as error:
            # What a proxy says of it may be so for ever.
            if cloud_is_away(error) and not isinstance(error, NotFoundByProxy):
                return self._error(error)
            self.log.warning("What belongs to instance %s could not be removed: %s", self.external_id, error)
        return True

    def _send(self) -> bool:
        record_id = self.external_id
        if self._first_sent_at is None:
            self._first_sent_at = self.clock()
        self._shown = self._shown or self.cloud.inventory.get(record_id) is not None
        if not self.waiting:
            self.wait_for("delete", record_id)
        self.await_call(self.cloud.begin_deletion(record_id))
        return self.go(self.DELETING)

    def _deleting(self) -> bool:
        if not self.calling:
            return self.reached(self._not_before) and self._send()
        if not self.answered:
            return False
        try:
            self.answer()
        except NotFound:
            return self._unknown()
        except NotFoundByProxy as error:
            self.log.warning("Instance %s: %s; lists will show whether it is there", self.external_id, error)
        except (LaunchError, OSError) as error:
            if cloud_is_away(error) or (isinstance(error, LaunchError) and self.busy(error)):
                return self._error(error)
            raise
        else:
            self._accepted += 1
        self._errors = 0
        self._answers += 1
        self._accepted_at = self.clock()
        self._resend_at = self._accepted_at + RESEND.pause(self._answers)
        return self.go(self.WAITING)

    def _unknown(self) -> bool:
        """The cloud does not know the instance: it is gone, or so new that not all of the cloud knows it yet."""
        assert self._first_sent_at is not None
        old_at = self._first_sent_at + self.cloud.lag_seconds
        if self._accepted or not self.cloud.new_may_be_unknown or self.clock() >= old_at:
            return self._gone()
        self.log.debug("Instance %s is not known, it may be too new; asked again in a while", self.external_id)
        self._not_before = old_at
        self.reached(old_at)
        return False

    def _waiting(self) -> bool:
        inventory = self.cloud.inventory
        if inventory.is_gone(self.external_id):
            return self._gone()
        if self.calling:
            return self._asked()
        record = inventory.get(self.external_id)
        if record is None:
            if not self._ask():
                # The list that makes it certain may have no news of this instance.
                self.next_advance_seconds = UNLISTED_SECONDS
            return False
        self._shown = True
        self._by_proxy = 0
        # What a list shows that began before the deletion was accepted, or too soon after, is no reason to repeat it.
        shows_at = self._accepted_at + self.cloud.lag_seconds
        due = max(self._resend_at, shows_at)
        if self.begun(record):
            due = max(due, self._accepted_at + BEGUN_RESEND_SECONDS)
        if not self.reached(due):
            return False
        if inventory.listed_at <= shows_at:
            self.next_advance_seconds = UNLISTED_SECONDS
            return False
        self.log.warning("Instance %s is still there (%s), deleting it once more", self.external_id, record.status)
        return self._send()

    def _ask(self) -> bool:
        """Have it proved that the instance is gone, if the lists give reason to think so."""
        inventory, cloud, record_id = self.cloud.inventory, self.cloud, self.record_id
        assert record_id is not None
        if self._shown and cloud.absence_is_proved and inventory.complete_at > self._accepted_at:
            # It was in the lists, and is not any more: the proof makes it certain, however late lists are.
            self.await_call(cloud.begin_proof(record_id))
        elif (
            inventory.absence_is_certain(self._accepted_at)
            or self.clock() - self._accepted_at >= inventory.absent_seconds
        ):
            self.ask_itself()
        else:
            return False
        return True

    def _asked(self) -> bool:
        """The instance itself was asked for, because it is in no list."""
        if not self.answered:
            return False
        try:
            record = self.own_answer(LaunchError)
        except (NotFound, NotImplementedError):
            # NotImplementedError: the cloud has lists only, and these do not have it.
            return self._gone()
        except NotFoundByProxy as error:
            self._by_proxy += 1
            if self._by_proxy == PROXY_ANSWERS:
                return self._gone()
            self.log.debug("Instance %s: %s", self.external_id, error)
            record = None
        if record is not None and record.gone:
            return self._gone()
        if self.clock() >= self._resend_at and not (record is not None and self.begun(record)):
            return self._send()
        # Ask again after the next complete list.
        self._accepted_at = self.clock()
        return False

    def _gone(self) -> bool:
        assert self.external_id is not None
        self.cloud.inventory.set_gone(self.external_id, was_there=self._shown or self._accepted > 0)
        self.cloud.creations.deleted(self.external_id)
        self.stop_waiting(True)
        return self._clear()

    def _clear(self) -> bool:
        call = self.after()
        if call is not None:
            self.call(call)
            return self.go(self.CLEARING)
        self.end()
        return False

    def _clearing(self) -> bool:
        if not self.calling:
            return self.reached(self._not_before) and self._clear()
        if self._side_call_is_over():
            self.end()
        return False

    def _error(self, error: Exception) -> bool:
        """Wait a little; returns False."""
        self._errors += 1
        busy = isinstance(error, LaunchError) and self.busy(error)
        if cloud_is_away(error) and not busy and self._errors >= AWAY_ANSWERS:
            raise error
        pause = RETRY.pause(self._errors)
        self.log.warning("Instance %s: %s; tried again in %g s", self.external_id, error, pause)
        self._not_before = self.clock() + pause
        self.reached(self._not_before)
        return False
