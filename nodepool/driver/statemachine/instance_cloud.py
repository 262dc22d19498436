# SPDX-License-Identifier: Apache-2.0
"""`InstanceCloud`: what launches and deletions of one provider share. A driver says how its cloud does it."""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ClassVar, Final, Generic

from nodepool.clock import monotonic
from nodepool.driver.framework.rate import MAX_THREADS, SharedThreads
from nodepool.driver.statemachine import instance as tags
from nodepool.driver.statemachine.instance import Instance
from nodepool.driver.statemachine.inventory import PRICE_SECONDS, Inventory, R, Waiter, no_changes
from nodepool.driver.statemachine.lost_creations import Creation, LostCreations
from nodepool.exceptions import LaunchError, NotFound
from nodepool.metrics import reports

log = logging.getLogger("nodepool.driver.statemachine.InstanceCloud")

#: Code of an end for which the cloud gives no reason.
GONE: Final = "NotFound"
#: Of the provider's threads, so many are reserved for creations, and for all other calls.
RESERVED_CREATE_THREADS: Final = 4
RESERVED_OTHER_THREADS: Final = 3


class InstanceCloud(abc.ABC, Generic[R]):
    """Inventory, lost creations and threads of one provider. Threads begin with the first piece of work.

    The abstract methods, and those below them, are called in these threads: they block, and raise what
    `nodepool.exceptions` has for it. Creations have a share of the threads, so that nothing else waits for them. The
    adapter hands ``threads`` to the framework as its ``shared_threads``.

    :param provider: its name.
    """

    #: Calls under way at once: creations, and all others.
    create_threads: ClassVar[int] = 12
    other_threads: ClassVar[int] = 8
    #: Threads of the provider at most.
    most_threads: ClassVar[int] = MAX_THREADS
    #: Does `list_instances` understand a time, and `changes_since` make one?
    lists_changes: ClassVar[bool] = False
    #: What happened so long before a list begins may be missing in it, in seconds.
    lag_seconds: ClassVar[float] = 0.0
    #: Do deletions of an instance that was just made answer for ``lag_seconds`` that there is none?
    new_may_be_unknown: ClassVar[bool] = False
    #: Between two lists, in seconds, at least; but for a few that follow instances which come quickly.
    shortest_list_pause: ClassVar[float] = 0.0
    #: What those who wait must have lost together to be worth one of these few lists, in seconds.
    list_price: ClassVar[float] = PRICE_SECONDS
    #: While at most so many instances are waited for, `look_at` is asked for each, in place of a list; 0 = never.
    looks_singly: ClassVar[int] = 0
    #: Does `begin_proof` tell the truth at once, however late lists are? Then nobody waits for ``lag_seconds`` with it.
    absence_is_proved: ClassVar[bool] = False
    #: Can creations be resumed (`CreationMachine.adopt`) that another launcher has begun?
    resumes_launches: ClassVar[bool] = False
    #: `WatchedInventory` for a cloud that tells what changes.
    inventory_class: ClassVar[type[Inventory[Any]]] = Inventory
    #: The longest time that one call takes, in seconds.
    call_seconds: float = 60.0

    def __init__(self, provider: str, clock: Callable[[], float] = monotonic) -> None:
        self.provider = provider
        since = self.changes_since if self.lists_changes else no_changes
        self.inventory: Inventory[R] = self.inventory_class(
            provider, self.list_instances, since, self.lag_seconds, clock
        )
        pace = self.inventory.pace
        pace.shortest_seconds, pace.price_seconds = self.shortest_list_pause, self.list_price
        self.inventory.look_at, self.inventory.looks_singly = self.look_at, self.looks_singly
        self.inventory.on_news = self._news
        self.inventory.on_list = self._listed
        self.creations = LostCreations(provider, clock)
        #: Lists are made for creations without an answer while there is one. ``_lock`` guards it.
        self._lost: Waiter | None = None
        self._lock = threading.Lock()
        #: Told when such a creation turned out to have made nothing: it does not count any more. Any thread.
        self.on_room: Callable[[], None] = lambda: None
        #: Called when an instance ended that was not deleted here, see `Adapter.on_lost`. Any thread; must not block.
        self.on_lost: Callable[[str, str, str, str], None] = lambda *lost: None
        self.threads = SharedThreads(provider, self.most_threads)
        self.creators: Executor = self.threads.share("create", self.create_threads, RESERVED_CREATE_THREADS)
        self.others: Executor = self.threads.share("call", self.other_threads, RESERVED_OTHER_THREADS)

    # -- what the driver says --

    @abc.abstractmethod
    def list_instances(self, since: str | None) -> Iterable[R]:
        """All instances of the project (None), or those that changed since a time, deleted ones too.

        :raises ChangesNotListed: the cloud refuses the second.
        """

    @abc.abstractmethod
    def delete_instance(self, record_id: str) -> None:
        """Order the deletion of an instance; does not wait for it. Raises NotFound when it is gone."""

    @abc.abstractmethod
    def instance(self, record: R) -> Instance:
        """An instance of a list as the framework sees it, with what it uses of the quota. Does not block, where `learn`
        has looked up what is needed."""

    def learn(self, records: Sequence[R]) -> None:
        """Look up what `instance` is to know of some records. Blocks."""

    def delete_seen(self, record: R) -> None:
        """The same for one that was seen. Where ids are used again: not of another one that has its id by now."""
        self.delete_instance(record.id)

    def gone_already(self, record_id: str) -> bool:
        """A deletion begins: is it known that there is nothing to delete? Does not block."""
        return self.inventory.is_gone(record_id)

    def begin_deletion(self, record_id: str) -> Future[None]:
        """The same for `DeletionMachine`; does not block. A cloud that takes several at once may gather them."""
        return self.others.submit(self.delete_instance, record_id)

    def get_instance(self, record_id: str) -> R:
        """One instance, as it is now; raises NotFound when it is gone: that is the proof.

        A cloud that cannot be asked for one leaves this out: the absence from lists is the proof then, as far as
        ``lag_seconds`` lets it be one.
        """
        raise NotImplementedError

    def look_at(self, record_id: str) -> R:
        """One instance as a list would show it now; raises NotFound when it is gone. Only in the thread that lists."""
        return self.get_instance(record_id)

    def record_id(self, external_id: Any) -> str | None:
        """The id in lists of the instance that a node names, out of its record, where anything may stand; None = there
        is none.
        """
        return external_id if isinstance(external_id, str) and external_id else None

    def why_ended(self, record: R) -> tuple[str, str] | None:
        """Why an instance ends, or was stopped by the cloud, so that it can be used no more: code and text.

        None = it is well. Asked also for instances that are being made, or deleted here. Pure.
        """
        return (GONE, f"the cloud shows instance {record.id} as {record.status}") if record.gone else None

    def ask_for(self, record_id: str) -> R | None:
        """One instance that lists do not show, as it is now; None = the cloud says that there is none. Any thread."""
        try:
            return self.get_instance(record_id)
        except NotFound:
            return None

    def is_gone(self, external_id: Any) -> bool | None:
        """See `Adapter.isGone`. Blocks."""
        record_id = self.record_id(external_id)
        if record_id is None:
            return None
        record = self.ask_for(record_id)
        return record is None or record.gone

    def begin_proof(self, record_id: str) -> Future[R | None]:
        """Find out whether an instance is gone that lists have shown, and do not show any more; does not block.

        Its deletion was accepted. The future ends with the instance, with NotFound if it is gone, or with None if that
        cannot be told yet. A cloud that proves it for several at once may gather them.
        """
        return self.others.submit(self.get_instance, record_id)

    def changes_since(self, latest: str) -> str | None:
        """The time to ask for changes from; None = all instances.

        :param latest: ``updated`` of the record that changed last.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Break off calls that are under way; later ones fail. Does not block."""

    # -- the framework calls --

    def stop(self) -> None:
        """End everything; blocks until calls that are under way have ended."""
        self.inventory.stop()
        self.close()
        for executor in (self.creators, self.others):
            executor.shutdown(wait=False, cancel_futures=True)
        for executor in (self.creators, self.others):
            executor.shutdown(wait=True)
        self.inventory.join()

    def unanswered(self) -> list[Creation]:
        """Creations that may have made an instance which no list has shown yet. Does not block.

        Whoever asks may wait for the room that they take: lists are made until it is known.
        """
        before = self.creations.made_nothing
        found = self.creations.unanswered(self.inventory.absence_is_certain)
        self._wait_for_lists([creation.lost_at for creation in found if creation.lost_at is not None])
        if self.creations.made_nothing > before:
            self.on_room()
        return found

    def _wait_for_lists(self, lost_at: list[float]) -> None:
        """Have the instances listed while there are creations without an answer.

        :param lost_at: since when each of them is without one.
        """
        with self._lock:
            waiter = self._lost
            if waiter is None and lost_at:
                since = min(lost_at) + self.lag_seconds
                self._lost = self.inventory.wait_for("lost", lambda: None, complete=True, not_before=since)
            elif waiter is not None and lost_at:
                self.inventory.touch(waiter)
            elif waiter is not None:
                self._lost = None
                self.inventory.done(waiter, happened=False)

    def _listed(self) -> None:
        """After each list."""
        if self._lost is not None:
            self.unanswered()

    def _news(self, records: list[R]) -> None:
        self.delete_strays(record for record in records if not record.gone)
        for record in records:
            self.tell_lost(record, self.why_ended(record))

    def tell_lost(self, record: R, why: tuple[str, str] | None) -> None:
        """An instance may have ended. Does not block.

        :param why: see `why_ended`.
        """
        node_id = None if why is None else tags.node_id_of(record.metadata, self.provider)
        if why is not None and node_id is not None:
            self.on_lost(node_id, record.id, *why)

    def delete_strays(self, records: Iterable[R]) -> None:
        """Instances whose creation was given up as lost, and that showed up late. Does not block."""
        for record in self.creations.strays(records):
            log.warning(
                "Provider %s: instance %s of node %s was made by a call that was not answered, deleting it",
                self.provider,
                record.id,
                record.metadata.get(tags.NODE_KEY),
            )
            self.others.submit(self._delete_stray, record.id, partial(self.delete_seen, record))

    def delete_abandoned(self, record_id: str) -> None:
        """An instance was made for a launch that nobody goes on with. Does not block."""
        log.warning("Instance %s was made for a launch that was abandoned, deleting it", record_id)
        self.others.submit(self._delete_stray, record_id, partial(self.delete_instance, record_id))

    def _delete_stray(self, record_id: str, delete: Callable[[], None]) -> None:
        try:
            delete()
        except NotFound:
            log.debug("Instance %s is gone already", record_id)
        except LaunchError as error:
            # The search for leaks comes by later.
            log.warning("Instance %s could not be deleted: %s", record_id, error)
            return
        reports.report_leaks(self.provider, "instances")
