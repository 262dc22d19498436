# SPDX-License-Identifier: Apache-2.0
"""`InventoryMachine`: what creations and deletions of an `InstanceCloud` have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, ClassVar, Final, Generic, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import NotFoundByProxy
from nodepool.driver.framework.shared_threads import ThreadShare
from nodepool.driver.statemachine.adapter import Log
from nodepool.driver.statemachine.instance import Instance
from nodepool.driver.statemachine.instance_cloud import InstanceCloud
from nodepool.driver.statemachine.inventory import R
from nodepool.driver.statemachine.list_pace import Waiter
from nodepool.driver.statemachine.machine import StateMachine
from nodepool.exceptions import CloudUnavailableException, NotFound
from nodepool.guard import OnError

T = TypeVar("T")

#: What a step of a machine returns: the instance = complete; True = look at the new state at once; False = wait.
Step = Callable[[], "Instance | bool"]

#: A machine that waits is woken; this is for the case that it is not. Its waiter is forgotten after 20 s.
SAFETY_SECONDS: Final = 10.0


def cloud_is_away(error: BaseException) -> bool:
    """Does an error say that the cloud has not answered? Then nobody knows what it did."""
    return isinstance(error, (CloudUnavailableException, OSError))


class InventoryMachine(StateMachine, abc.ABC, Generic[R]):
    """A machine of steps, one a state. Steps do not block: calls are made in threads of the cloud."""

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

    @abc.abstractmethod
    def steps(self) -> Mapping[str, Step]:
        """What is done in each state."""

    def advance(self) -> Any:
        self.advanced_at = self.clock()
        self.next_advance_seconds = SAFETY_SECONDS
        if self._waiter is not None:
            self.cloud.inventory.touch(self._waiter)
        steps = self.steps()
        # Whatever ended it, the lists must not go on for this one.
        with OnError(lambda _: self.stop_waiting(False)):
            while not self.complete:
                result = steps[self.state]()
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
        share = executor or self.cloud.others
        # Steps end when they have made a call: the same thread can make it.
        submit = share.submit_next if isinstance(share, ThreadShare) else share.submit
        return submit(function)

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
        """Be woken by news of an instance. See `nodepool.driver.statemachine.list_pace.Waiter`."""
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
