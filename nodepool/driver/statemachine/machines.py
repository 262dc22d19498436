# SPDX-License-Identifier: Apache-2.0
"""Launch and deletion of one instance of an `InstanceCloud`, in steps.

First what both have in common, then what a driver says of launches, then the launch (`CreationMachine`), then the
deletion (`DeletionMachine`). The launch::

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
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import NotFoundByProxy
from nodepool.driver.statemachine import instance as tags
from nodepool.driver.statemachine.instance import Creation, CreationKey, Instance, InstanceCloud, Log, StateMachine
from nodepool.driver.statemachine.inventory import R, Waiter
from nodepool.exceptions import CloudUnavailableException, LaunchError, LaunchStatusException, NotFound
from nodepool.guard import OnError, settle
from nodepool.model.request import NodeRequest
from nodepool.plan.retries import Backoff

# `InventoryMachine`: what creations and deletions of an `InstanceCloud` have in common.

T = TypeVar("T")

#: A machine that waits is woken; this is for the case that it is not. Its waiter is forgotten after 20 s.
SAFETY_SECONDS: Final = 10.0


def cloud_is_away(error: BaseException) -> bool:
    """Does an error say that the cloud has not answered? Then nobody knows what it did."""
    return isinstance(error, (CloudUnavailableException, OSError))


class InventoryMachine(StateMachine, abc.ABC, Generic[R]):
    """A machine of steps: that of each state is the method of its name, such as ``_building``.

    A step returns the instance = complete; True = look at the new state at once; False = wait. It does not block: calls
    are made in threads of the cloud.
    """

    COMPLETE: ClassVar[str] = "complete"

    def __init__(self, cloud: InstanceCloud[R], log: Log, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self.cloud = cloud
        self.log = log
        self.clock = clock
        #: When the state began, and when the framework looked last.
        self.since = clock()
        self.advanced_at = clock()
        #: Id of the instance in lists; ``external_id`` may say more.
        self.record_id: str | None = None
        self._call: Future[Any] | None = None
        self._waiter: Waiter | None = None

    def advance(self) -> Any:
        self.advanced_at = self.clock()
        self.next_advance_seconds = SAFETY_SECONDS
        if self._waiter is not None:
            self.cloud.inventory.touch(self._waiter)
        # Whatever ended it, the lists must not go on for this one.
        with OnError(lambda _: self.stop_waiting(False)):
            while not self.complete:
                result: Instance | bool = getattr(self, f"_{self.state}")()
                if isinstance(result, Instance):
                    self.end()
                    return result
                if not result:
                    break
        return None

    # -- for steps --

    def go(self, state: str) -> bool:
        """Change the state; for ``return self.go(...)``: it is looked at at once."""
        self.state = state
        self.since = self.clock()
        return True

    def end(self) -> None:
        """The machine is complete."""
        self.stop_waiting(True)
        self.go(self.COMPLETE)
        self.complete = True

    def call(self, function: Callable[[], Any], executor: Executor | None = None) -> None:
        """Make a call in a thread of the cloud; its end wakes the machine. See `answered` and `answer`."""
        self.await_call(self.submit(function, executor))

    def submit(self, function: Callable[[], T], executor: Executor | None = None) -> Future[T]:
        """Make a call in a thread of the cloud, of which the machine may know nothing."""
        return self.cloud.submit(function, executor)

    def await_call(self, call: Future[Any]) -> None:
        """A call was made elsewhere; its end wakes the machine. See `answered` and `answer`."""
        self._call = call
        call.add_done_callback(lambda _: self.wake())

    @property
    def calling(self) -> bool:
        """Was a call made whose answer was not taken?"""
        return self._call is not None

    @property
    def answered(self) -> bool:
        """Has the call ended?"""
        return self._call is not None and self._call.done()

    def answer(self) -> Any:
        """Take the answer of a call that has ended. Raises what the call raised; SystemExit as RuntimeError."""
        assert self._call is not None
        call, self._call = self._call, None
        try:
            return call.result()
        except SystemExit as error:
            raise RuntimeError(f"the driver called sys.exit({error})") from error

    def ask_itself(self) -> None:
        """Ask for the instance, because it is in no list: lists can overlook it. See `own_answer`."""
        record_id = self.record_id
        assert record_id is not None
        self.call(lambda: self.cloud.get_instance(record_id))

    def own_answer(self, *passing: type[Exception]) -> R | None:
        """Take the instance's own answer, which has come; None = an error that says nothing about it (logged).

        :param passing: such errors, beside those of a cloud that is away.
        :raises NotFound: it is gone: that is the proof.
        :raises NotFoundByProxy: something before the cloud says so: that is none, but where all else says so, too.
        :raises NotImplementedError: lists are all that the cloud has.
        """
        nothing: tuple[type[Exception], ...] = (CloudUnavailableException, OSError, *passing)
        try:
            record: R = self.answer()
        except (NotFound, NotFoundByProxy):
            raise
        except nothing as error:
            self.log.debug("Instance %s: %s", self.record_id, error)
            return None
        return record

    def forget_call(self) -> None:
        """The answer is not needed any more."""
        self._call = None

    def reached(self, when: float) -> bool:
        """Is it this time yet? If not, the framework comes back then."""
        left = when - self.clock()
        if left <= 0:
            return True
        self.next_advance_seconds = min(SAFETY_SECONDS, left)
        return False

    def wait_for(self, kind: str, record_id: str | None = None, complete: bool = False) -> None:
        """Be woken by news of an instance. See `nodepool.driver.statemachine.inventory.Waiter`."""
        self.stop_waiting(False)
        self._waiter = self.cloud.inventory.wait_for(kind, self._told, record_id, complete)

    def lets_go_on(self, record: R | None) -> bool:
        """Is what the lists say of the instance a reason to advance? If not, a step would only wait again.

        Called in the thread that lists, maybe while the machine is advanced. Must not block.

        :param record: None = it is in no list.
        """
        return True

    def _told(self) -> None:
        """There is news of what is waited for. A step takes a thread: none is woken for nothing."""
        waiter, inventory = self._waiter, self.cloud.inventory
        if waiter is None or waiter.record_id is None or self.lets_go_on(inventory.get(waiter.record_id)):
            self.wake()
        else:
            inventory.touch(waiter)

    def need_complete_lists(self) -> None:
        """What is waited for may not show as a change."""
        if self._waiter is not None:
            self.cloud.inventory.need_complete(self._waiter)

    @property
    def waiting(self) -> bool:
        """Is the machine woken by news?"""
        return self._waiter is not None

    def stop_waiting(self, happened: bool) -> None:
        """No news are needed any more.

        :param happened: what was waited for came.
        """
        if self._waiter is not None:
            self.cloud.inventory.done(self._waiter, happened)
            self._waiter = None


# `CreationMachine`: first what a driver says of the launches of its instances, then the steps.

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


@dataclass(frozen=True, eq=False)
class Order:
    """An instance that a launch wants: the arguments of `Adapter.getCreateStateMachine`.

    :param label: label object of the pool.
    :param image: external id of the newest upload of ``label.diskimage``; None = use ``label.cloud_image``.
    :param request: None = the node is for no request.
    :param az: the zone that was chosen for the node, or that of a node that the request has already.
    """

    hostname: str
    label: Any
    image: Any
    metadata: dict[str, str]
    request: NodeRequest | None
    az: str | None
    log: Log


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

    def __init__(self, cloud: InstanceCloud[R], order: Order, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(cloud, order.log, clock)
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
        return self.submit(lambda: self.create(key), self.cloud.creators)

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

        :raises LaunchError: the cloud has said elsewhere that there will be none.
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
        if self.clock() - self.advanced_at > GIVEN_UP_SECONDS:
            error = CloudUnavailableException(f"{self.where}: the launch was given up before its turn came")
            error.maybe_done = False
            raise error
        if not self.wanted():
            raise LaunchStatusException(f"{self.where}: the launch is not wanted any more, or ZooKeeper is lost")

    def key(self) -> CreationKey:
        """The key of the creation that begins now, or has begun."""
        return CreationKey(self.cloud.provider, self.node_id, self.attempt, self.begun_anew)

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
        waited = self.clock() - self.since
        searched = waited >= SEARCH_SECONDS + self.cloud.lag_seconds and self._lists >= SEARCH_LISTS
        # While the cloud is away nothing can be found, and the framework must know; it asks once more, too.
        # Failures of before say nothing: nobody may have asked since the end of an outage.
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
            self.since = self.clock()
        elif not self.calling and self.reached(self.since + ABSENT_SECONDS):
            self.ask_itself()
        return False


# `DeletionMachine`: the deletion of one instance of an `InstanceCloud`, in steps, until it does not exist any more.
#
# ::
#
#     start -> [preparing] -> deleting -> waiting -> [clearing] -> complete
#                                ^           |
#                                +-----------+        (it had no effect: once more, each time a little later)

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

    :param external_id: of the instance, as the node names it; nothing is deleted if that is no id of an instance.
    """

    PREPARING: ClassVar[str] = "preparing"
    DELETING: ClassVar[str] = "deleting"
    WAITING: ClassVar[str] = "waiting"
    CLEARING: ClassVar[str] = "clearing"

    resends: ClassVar[bool] = True

    def __init__(
        self, cloud: InstanceCloud[R], external_id: Any, log: Log, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(cloud, log, clock)
        self.external_id = self.record_id = cloud.record_id(external_id)
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
