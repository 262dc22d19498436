# SPDX-License-Identifier: Apache-2.0
"""`CreationMachine`: the launch of one instance of an `InstanceCloud`, in steps.

::

    start -> submitting -> building -> complete
      ^       ^  |  |       ^   |
      |       |  |  v       |   |
      |  repeating  searching   |
      |       ^  v              |
      |  (the answer was lost,  |
      |  or it was put off)     v
      +- pausing <---------- clearing    (accepted, and given up by the cloud later: begun anew, e.g. elsewhere)
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import ClassVar, Final

from nodepool.driver.framework.cloud_errors import NotFoundByProxy
from nodepool.driver.statemachine import metadata as tags
from nodepool.driver.statemachine.creation_hooks import GIVEN_UP_SECONDS, CreationHooks
from nodepool.driver.statemachine.deletion_machine import DeletionMachine
from nodepool.driver.statemachine.instance import Instance
from nodepool.driver.statemachine.inventory import R
from nodepool.driver.statemachine.inventory_machine import Step
from nodepool.driver.statemachine.lost_creations import Creation
from nodepool.exceptions import CloudUnavailableException, LaunchError, NotFound
from nodepool.guard import OnError, settle
from nodepool.plan.backoff import Backoff

#: So often a creation is sent again with its key; then its instance is looked for, and the framework hears of it.
REPEATS: Final = 2
REPEAT: Final = Backoff(0.5, 4.0)
#: How long, and in how many complete lists, to look for an instance whose creation was not answered.
SEARCH_SECONDS: Final = 6.0
SEARCH_LISTS: Final = 3
#: After so many lists in a row that failed the search is over.
SEARCH_FAILURES: Final = 2
#: How long an instance may be absent from lists before it is asked for.
ABSENT_SECONDS: Final = 15.0


def surely_not_made(error: CloudUnavailableException | OSError) -> bool:
    """Does an error of a cloud that is away say that it never got the call?"""
    return isinstance(error, CloudUnavailableException) and not error.maybe_done


class CreationMachine(CreationHooks[R]):
    """Makes an instance and waits until it can be used. Never two for one node: see `LostCreations`.

    Parameters as those of `CreationHooks`, which has what a driver says.
    """

    SUBMITTING: ClassVar[str] = "submitting"
    REPEATING: ClassVar[str] = "repeating"
    SEARCHING: ClassVar[str] = "searching"
    BUILDING: ClassVar[str] = "building"
    CLEARING: ClassVar[str] = "clearing"
    PAUSING: ClassVar[str] = "pausing"

    _creation: Creation | None = None
    _lost: Exception | None = None
    _repeats = 0
    _repeat_at = float("-inf")
    _lists = 0
    _failed_before = 0
    _last_list = float("-inf")
    _begin_at = float("-inf")
    #: Deletes what a creation left that is begun anew.
    _deletion: DeletionMachine[R] | None = None

    # -- steps --

    def steps(self) -> Mapping[str, Step]:
        return {
            self.START: self._start,
            self.SUBMITTING: self._submitting,
            self.REPEATING: self._repeating,
            self.SEARCHING: self._searching,
            self.BUILDING: self._building,
            self.CLEARING: self._clearing,
            self.PAUSING: self._pausing,
        }

    def _start(self) -> bool:
        announced = self.id_in_advance()
        if announced is not None and self.external_id is None:
            self.external_id = self.stored_id(announced)
            self.announced = True
            # The framework stores it before the next step.
            self.next_advance_seconds = 0.0
            return False
        pool = str(self.metadata.get(tags.POOL_KEY, ""))
        self._creation = self.cloud.creations.begin(self.key(), pool, self._label_name)
        return self._submit()

    def _submit(self) -> bool:
        creation, repeated = self._creation, self._lost is not None
        assert creation is not None
        # What is still open counts against the limits, also if nobody waits any more.
        self.cloud.creations.sent(creation)
        told: Future[str] = Future()
        call = self.begin_creation(creation.key)
        call.add_done_callback(lambda call: settle((told,), lambda: self._outcome(creation, repeated, call)))
        self.await_call(told)
        return self.go(self.SUBMITTING)

    def _outcome(self, creation: Creation, repeated: bool, call: Future[str]) -> str:
        """The id of the instance, or an error; notes whether the creation is over. In the thread that ends the call."""
        creations = self.cloud.creations

        def failed(error: BaseException) -> None:
            # A repeated one that is refused says nothing of the first.
            unsure = repeated
            if isinstance(error, (CloudUnavailableException, OSError)):
                unsure = unsure or not surely_not_made(error)
            (creations.not_answered if unsure else creations.ended)(creation)

        # Also of a library that wants to end the process: else the creation would count as under way for ever.
        with OnError(failed):
            record_id = call.result()
        creations.ended(creation)
        if self.clock() - self.advanced_at > GIVEN_UP_SECONDS + self.cloud.call_seconds:
            self.cloud.delete_abandoned(record_id)
        return record_id

    def _submitting(self) -> bool:
        if not self.answered:
            return False
        assert self._creation is not None
        try:
            record_id = self.answer()
        except (CloudUnavailableException, OSError) as error:
            if surely_not_made(error) and (pause := self.put_off(error)) is not None:
                return self._send_later(pause)
            if self._lost is None and surely_not_made(error):
                self.cloud.creations.refused(self._creation)
                raise
            self._lost = self._lost or error
            return self._not_answered(error)
        except Exception as error:  # noqa: BLE001 - raised, unless the attempt is begun anew
            # The cloud has answered, and what its driver makes of that is its own matter.
            if (pause := self.put_off(error)) is not None:
                return self._send_later(pause)
            if self._lost is None:
                self.cloud.creations.refused(self._creation)
                return self._came_to_nothing(self.refused(error), error)
            self.log.warning("The repeated creation was rejected, looking for the instance: %s", error)
            return self._search()
        if self.cloud.creations.answered(self._creation, record_id):
            self.cloud.delete_strays(self.cloud.inventory.of_node(self.node_id))
        return self._created(record_id)

    def _not_answered(self, error: Exception) -> bool:
        if self.idempotent and self._repeats < REPEATS:
            self._repeats += 1
            self.log.warning("The creation was not answered, it is sent again with the same key: %s", error)
            return self._send_later(REPEAT.pause(self._repeats))
        if self.external_id is not None:
            # Whatever was made is deleted by its name.
            assert self._creation is not None
            self.cloud.creations.given_up(self._creation)
            raise error
        self.log.warning("The creation was not answered, looking for the instance: %s", error)
        return self._search()

    def _send_later(self, seconds: float) -> bool:
        self._repeat_at = self.clock() + seconds
        return self.go(self.REPEATING)

    def _repeating(self) -> bool:
        return (self.hurries() or self.reached(self._repeat_at)) and self._submit()

    def _search(self) -> bool:
        self._failed_before = self.cloud.inventory.failed_lists
        self.wait_for("search", complete=True)
        return self.go(self.SEARCHING)

    def _searching(self) -> bool:
        """Two instances for one node must never be: find the one that may have been made."""
        assert self._creation is not None
        assert self._lost is not None
        inventory = self.cloud.inventory
        found = self.cloud.creations.found(self._creation, inventory.of_node(self.node_id))
        if found is not None:
            self.log.info("Found instance %s, whose creation was not answered", found)
            self.found()
            return self._created(found)
        if inventory.complete_at > max(self._last_list, self.since):
            self._last_list = inventory.complete_at
            self._lists += 1
        waited = self.clock() - self.since
        searched = waited >= SEARCH_SECONDS + self.cloud.lag_seconds and self._lists >= SEARCH_LISTS
        # While the cloud is away nothing can be found, and the framework must know; it asks once more, too.
        # Failures of before say nothing: nobody may have asked since the end of an outage.
        failures = min(inventory.failures, inventory.failed_lists - self._failed_before)
        if not searched and failures < SEARCH_FAILURES and waited < 10 * (SEARCH_SECONDS + self.cloud.lag_seconds):
            return False
        self.cloud.creations.given_up(self._creation)
        if isinstance(self._lost, CloudUnavailableException):
            self._lost.searched = searched
        raise self._lost

    def _created(self, record_id: str) -> bool:
        self.record_id = record_id
        self.external_id = self.stored_id(record_id)
        if self.announced:
            self.log.info("Instance %s was created", record_id)
            self.announced = False
        self.wait_for("boot", record_id)
        return self.go(self.BUILDING)

    def _building(self) -> Instance | bool:
        assert self.record_id is not None
        record = self.cloud.inventory.get(self.record_id)
        try:
            if record is None:
                self.unlisted()
                return self._absent()
            # Whoever asked for the instance while it was absent has the answer.
            self.forget_call()
            return self.seen(record)
        except LaunchError as error:
            return self._came_to_nothing(error)

    def _came_to_nothing(self, error: Exception, cause: Exception | None = None) -> bool:
        """Begin anew, or raise the error."""
        pause = self.begin_anew(error) if isinstance(error, LaunchError) else None
        if pause is None:
            raise error from cause
        self.waits_for = str(error)
        self._begin_at = self.clock() + pause
        self.stop_waiting(False)
        self.forget_call()
        self._deletion = self.leftovers()
        if self._deletion is None:
            return self.go(self.PAUSING)
        self._deletion.wake = self.wake
        return self.go(self.CLEARING)

    def _clearing(self) -> bool:
        """What was accepted must be gone: two instances for one node must never be."""
        assert self._deletion is not None
        self._deletion.advance()
        if not self._deletion.complete:
            self.next_advance_seconds = self._deletion.next_advance_seconds
            return False
        return self.go(self.PAUSING)

    def _pausing(self) -> bool:
        if not self.reached(self._begin_at):
            return False
        self.begun_anew += 1
        self._creation = self._lost = self._deletion = self.record_id = self.external_id = None
        self._repeats = self._lists = 0
        self.go(self.START)
        # The framework stores that there is no instance, before another one is ordered.
        self.next_advance_seconds = 0.0
        return False

    def _absent(self) -> bool:
        """Not in the lists (yet): ask for the instance itself after a while."""
        record_id, inventory = self.record_id, self.cloud.inventory
        assert record_id is not None
        if inventory.is_gone(record_id):
            raise self.gone()
        if self.answered:
            try:
                self.own_answer()
            except NotFound:
                inventory.set_gone(record_id)
                raise self.gone() from None
            except NotFoundByProxy as error:
                self.log.debug("Instance %s is in no list: %s", record_id, error)
            except NotImplementedError:
                # How a driver says that its cloud has lists only: if it never shows, launch-timeout ends the attempt.
                self.log.debug("Instance %s is in no list", record_id)
            self.since = self.clock()
        elif not self.calling and self.reached(self.since + ABSENT_SECONDS):
            self.ask_itself()
        return False
