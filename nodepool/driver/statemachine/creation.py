# SPDX-License-Identifier: Apache-2.0
"""The launch of one instance of an `InstanceCloud`, in steps (`CreationMachine`).

First what a driver says of launches, then the steps, then launches for which there is a choice of places, such as zones
and types (`PlacedCreation`). What follows what::

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

import abc
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, Final, Generic

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNoCapacity, CloudQuota, CloudRefused, NotFoundByProxy
from nodepool.driver.framework.quota_support import P
from nodepool.driver.statemachine import instance as tags
from nodepool.driver.statemachine.adapter import Creation, CreationKey, Instance
from nodepool.driver.statemachine.deletion import DeletionMachine
from nodepool.driver.statemachine.instance import InstanceCloud, InventoryMachine, Order
from nodepool.driver.statemachine.inventory import R
from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchError,
    LaunchStatusException,
    NotFound,
)
from nodepool.guard import OnError, settle
from nodepool.plan.retries import Backoff

#: A machine that was not advanced for so long was given up: nothing may be made for it any more.
GIVEN_UP_SECONDS: Final = 30.0
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


class CreationMachine(InventoryMachine[R]):
    """Makes an instance and waits until it can be used. Never two for one node: see `LostCreations`."""

    #: Does the cloud answer a creation that it has seen before, by its key, with the same instance? Else a lost one is
    #: not repeated, but its instance is looked for by its metadata.
    idempotent: ClassVar[bool] = False
    #: Deletes instances of the cloud.
    deletion_class: ClassVar[type[DeletionMachine[Any]]]

    SUBMITTING: ClassVar[str] = "submitting"
    REPEATING: ClassVar[str] = "repeating"
    SEARCHING: ClassVar[str] = "searching"
    BUILDING: ClassVar[str] = "building"
    CLEARING: ClassVar[str] = "clearing"
    PAUSING: ClassVar[str] = "pausing"

    _resumed: str | None = None
    #: From the first step on.
    _creation: Creation
    _lost: Exception | None = None
    _repeats = 0
    _repeat_at = float("-inf")
    _lists = 0
    _failed_before = 0
    _last_list = float("-inf")
    _begin_at = float("-inf")
    #: Deletes what a creation left that is begun anew.
    _deletion: DeletionMachine[R] | None = None

    def __init__(self, cloud: InstanceCloud[R], order: Order) -> None:
        super().__init__(cloud, order.log)
        self.order = order
        self.label = order.label
        self.metadata = dict(order.metadata)
        self.node_id = str(order.metadata.get(tags.NODE_KEY, ""))
        #: Whose launch it is, for texts.
        self.where = f"provider {cloud.provider}, label {order.label.name}"
        #: How often the attempt was begun anew.
        self.begun_anew = 0

    # -- what the driver says --

    @classmethod
    def of(cls, cloud: InstanceCloud[R], order: Order) -> CreationMachine[R]:
        """The machine for an order: of this class, unless the driver has several."""
        return cls(cloud, order)

    def create(self, key: CreationKey) -> str:
        """Send the creation; returns the id of the instance. Blocks; in a thread of the cloud.

        Calls `permit` right before the call. What is made must carry ``metadata``, and where the cloud has such a thing
        ``key.text``. Raises CloudUnavailableException for a call that got no answer; its ``maybe_done`` is False if
        the cloud surely did not get it. A driver has this, or `begin_creation` instead.
        """
        raise NotImplementedError

    def begin_creation(self, key: CreationKey) -> Future[str]:
        """The same; does not block. A cloud that makes several instances with one call may gather creations.

        The future may end in any thread. What `create` is to raise is its exception.
        """
        return self.cloud.creators.submit(self.create, key)

    @abc.abstractmethod
    def seen(self, record: R) -> Instance | bool:
        """A step: the instance is in a list. Does not block.

        :return: the instance when it can be used; False = wait; True = there is a new state.
        :raises LaunchStatusException: it will never work.
        """

    def id_in_advance(self) -> str | None:
        """The id that the instance will have, where it is a name of our choice. It is stored before `create` is called.

        Such a creation is sent again after an answer that was lost, and not looked for: set ``idempotent``.
        """
        return None

    def refused(self, error: Exception) -> Exception:
        """What an error of `create` means, if it was not the lack of an answer."""
        return error

    def begin_anew(self, error: LaunchError) -> float | None:
        """A creation came to nothing: the cloud refused it, or accepted it and gave it up later.

        Says after how many seconds to begin anew, with another key, e.g. in a place that has capacity; None = the
        attempt fails with the error. No attempt is spent on it; what the creation left is deleted before. Does not
        block; only called when it is sure that an earlier call made nothing.
        """
        return None

    def leftovers(self) -> DeletionMachine[R] | None:
        """Deletes all that a creation left that is begun anew; None = it made nothing. Does not block."""
        return None if self.record_id is None else self.deletion_class(self.cloud, self.external_id, self.log)

    def unlisted(self) -> None:
        """A step: the creation was accepted, and its instance is in no list, or not any more. Does not block.

        :raises LaunchError: the cloud has answered elsewhere that there will be none.
        """

    def put_off(self, error: Exception) -> float | None:
        """Was the creation refused only for now? Then the seconds until it is sent again; None = it has failed.

        Nothing was made by the call that was refused. What earlier calls of the same creation made stays.
        """
        return None

    def hurries(self) -> bool:
        """Is a creation that was put off to be sent now, because what it waited for has come? See `wake`."""
        return False

    def found(self) -> None:
        """An instance was adopted whose creation gave no answer, or was another launcher's."""

    def gone(self) -> Exception:
        """What it means that the cloud says that the instance does not exist any more."""
        return LaunchStatusException(f"{self.where}: instance {self.record_id} was deleted by another program")

    def stored_id(self, record_id: str) -> Any:
        """What the record of the node says of its instance: ``external_id``, the id itself unless there is more."""
        return record_id

    def permit(self) -> None:
        """Is the instance still wanted? For `create`: the call may have waited for minutes for its turn. Any thread.

        :raises Exception: no; nothing may be made.
        """
        if monotonic() - self.advanced_at > GIVEN_UP_SECONDS:
            error = CloudUnavailableException(f"{self.where}: the launch was given up before its turn came")
            error.maybe_done = False
            raise error
        if not self.wanted():
            raise LaunchStatusException(f"{self.where}: the launch is not wanted any more, or ZooKeeper is lost")

    def key(self) -> CreationKey:
        """The key of the creation that begins now, or has begun."""
        return CreationKey(self.cloud.provider, self.node_id, self.attempt, self.begun_anew, self.node_created)

    def adopt(self, external_id: Any) -> None:
        """Go on with an instance of the node that another launcher has ordered; before the first `advance`.

        :param external_id: as the node names it.
        """
        self._resumed = self.cloud.record_id(external_id)

    # -- steps --

    def _start(self) -> bool:
        pool = str(self.metadata.get(tags.POOL_KEY, ""))
        if self._resumed is not None:
            self._creation = self.cloud.creations.begin(self.key(), pool, self.label.name)
            self.cloud.creations.answered(self._creation, self._resumed)
            self.found()
            record_id, self._resumed = self._resumed, None
            return self._created(record_id)
        announced = self.id_in_advance()
        if announced is not None and self.external_id is None:
            self.external_id = self.stored_id(announced)
            self.announced = True
            # The framework stores it before the next step.
            self.next_advance_seconds = 0.0
            return False
        self._creation = self.cloud.creations.begin(self.key(), pool, self.label.name)
        return self._submit()

    def _submit(self) -> bool:
        creation, repeated = self._creation, self._lost is not None
        # What is still open counts against the limits, also when no launch waits for it any more.
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
        if monotonic() - self.advanced_at > GIVEN_UP_SECONDS + self.cloud.call_seconds:
            self.cloud.delete_abandoned(record_id)
        return record_id

    def _submitting(self) -> bool:
        if not self.answered:
            return False
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
        self.cloud.inventory.made(record_id, self._creation.begun_at)
        if self.cloud.creations.answered(self._creation, record_id):
            self.cloud.delete_strays(self.cloud.of_node(self.node_id))
        return self._created(record_id)

    def _not_answered(self, error: Exception) -> bool:
        if self.idempotent and self._repeats < REPEATS:
            self._repeats += 1
            self.log.warning("The creation was not answered, it is sent again with the same key: %s", error)
            return self._send_later(REPEAT.pause(self._repeats))
        if self.external_id is not None:
            # Whatever was made is deleted by its name.
            self.cloud.creations.given_up(self._creation)
            raise error
        self.log.warning("The creation was not answered, looking for the instance: %s", error)
        return self._search()

    def _send_later(self, seconds: float) -> bool:
        self._repeat_at = monotonic() + seconds
        return self.go(self.REPEATING)

    def _repeating(self) -> bool:
        return (self.hurries() or self.reached(self._repeat_at)) and self._submit()

    def _search(self) -> bool:
        self._failed_before = self.cloud.inventory.failed_lists
        self.wait_for("search", complete=True)
        return self.go(self.SEARCHING)

    def _searching(self) -> bool:
        """Two instances for one node must never be: find the one that may have been made."""
        assert self._lost is not None
        inventory = self.cloud.inventory
        found = self.cloud.creations.found(self._creation, self.cloud.of_node(self.node_id))
        if found is not None:
            self.log.info("Found instance %s, whose creation was not answered", found)
            self.found()
            return self._created(found)
        if inventory.complete_at > max(self._last_list, self.since):
            self._last_list = inventory.complete_at
            self._lists += 1
        waited = monotonic() - self.since
        searched = waited >= SEARCH_SECONDS + self.cloud.lag_seconds and self._lists >= SEARCH_LISTS
        # While the cloud is away nothing can be found, and the framework must know; it asks once more, too.
        # Failures of before say nothing: the cloud may not have been asked since the end of an outage.
        failures = min(inventory.pace.failures, inventory.failed_lists - self._failed_before)
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
            # A call that asked for the instance while it was absent has the answer.
            self._call = None
            return self.seen(record)
        except LaunchError as error:
            return self._came_to_nothing(error)

    def _came_to_nothing(self, error: Exception, cause: Exception | None = None) -> bool:
        """Begin anew, or raise the error."""
        pause = self.begin_anew(error) if isinstance(error, LaunchError) else None
        if pause is None:
            raise error from cause
        self.waits_for = str(error)
        self._begin_at = monotonic() + pause
        self.stop_waiting(False)
        self._call = None
        self._deletion = self.leftovers()
        if self._deletion is None:
            return self.go(self.PAUSING)
        self._deletion.wake = self.wake
        return self.go(self.CLEARING)

    def _clearing(self) -> bool:
        """What was accepted must not exist any more: two instances for one node must never be."""
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
        self._lost = self._deletion = self.record_id = self.external_id = None
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
            self.since = monotonic()
        elif not self.calling and self.reached(self.since + ABSENT_SECONDS):
            self.ask_itself()
        return False


class PlacedCreation(CreationMachine[R], Generic[R, P]):
    """Where the cloud has no capacity at one place it goes on with the next. ``cloud`` has ``places``.

    A place is what a driver may choose among, see `nodepool.driver.framework.quota_support`.
    """

    cloud: Any
    #: What is wrong with the place, and not with the order.
    elsewhere: ClassVar[tuple[type[LaunchError], ...]] = (CapacityException,)
    #: What the cloud calls a lack of capacity.
    no_capacity: ClassVar[str] = ""

    def __init__(self, cloud: InstanceCloud[R], order: Order) -> None:
        super().__init__(cloud, order)
        #: Where to try it, the present one first; empty = that was not asked for. One thread at a time works on it.
        self.places: list[P] = []

    # -- what the driver says --

    def all_places(self) -> Sequence[P]:
        """All that the label allows, at least one. May block."""
        # A driver that asks its cloud in another way overrides `find_places`.
        raise NotImplementedError

    def create_at(self, place: P, key: Any) -> str:
        """See `create`. Calls `permit_at`."""
        # A driver whose place is a part of the id, or that gathers creations, has `create` or `begin_creation` instead.
        raise NotImplementedError

    def another_place(self, error: LaunchError) -> bool:
        """The present place has no capacity. Is there another one? It is the present one then."""
        return bool(self.cloud.places.try_another(self.places, self.order.request, error, self.log))

    def moved(self) -> None:
        """The creation begins anew at another place: forget what came of it at the last one."""

    def forget(self) -> None:
        """The order was refused: what the instance was to be made of may not be there any more, or another one now."""

    # -- the framework calls --

    def find_places(self) -> list[P]:
        """Where to try it, in order. May block."""
        found: list[P] = self.cloud.places.to_try(self.all_places(), self.order.request, self.order.az)
        return found

    def place(self) -> P:
        """The present one. May block, the first time."""
        if not self.places:
            self.places = self.find_places()
        return self.places[0]

    def create(self, key: Any) -> str:
        while True:
            try:
                return self.create_at(self.place(), key)
            except self.elsewhere as error:
                if not isinstance(error, CloudRefused) or not self.another_place(error):
                    raise

    def permit_at(self, place: P) -> None:
        """As `permit`.

        :raises CloudNoCapacity: another launch found no capacity there meanwhile, and there is another place.
        """
        self.permit()
        if len(self.places) > 1 and self.cloud.places.rests(place):
            text = f"{self.where}: {place}: there was no capacity for another launch"
            raise CloudNoCapacity(text, code=self.no_capacity)

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, CloudRefused) and not isinstance(error, (CloudQuota, CloudNoCapacity)):
            self.forget()
        return error

    def begin_anew(self, error: LaunchError) -> float | None:
        if not isinstance(error, self.elsewhere) or not self.places or not self.another_place(error):
            return None
        self.moved()
        return 0.0

    def settled(self) -> None:
        """The instance can be used: other nodes of the request go where it is."""
        if self.places:
            self.cloud.places.made(self.places[0], self.order.request)
