# SPDX-License-Identifier: Apache-2.0
"""Which instances were made for which node, so that none is made twice, and none is kept that came late (D, L-4).

A creation whose answer is lost may have made an instance. It may show up at once, after minutes, or never. While its
node is launched the creation is repeated with its key, where the cloud knows the key, or else the instance is looked
for and adopted. While a node is deleted nothing is repeated: the instance is only looked for. Last the search.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.orders import Batches
from nodepool.driver.statemachine.instance import node_id_of
from nodepool.driver.statemachine.inventory import R
from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS

if TYPE_CHECKING:
    from nodepool.driver.statemachine.instance import Instance

#: How long an instance may take to show up after its creation was not answered, in seconds.
LATE_SECONDS: Final = 3600.0
#: With more nodes than these, those whose creation began so long ago are forgotten: other launchers delete instances,
#: and do not tell.
MANY_NODES: Final = 1000
OLD_SECONDS: Final = 2 * LATE_SECONDS


class CreationKey(NamedTuple):
    """What makes the creations of an attempt one creation, however often they are sent.

    :param attempt: of the node's launch, from 1. The instance of an earlier attempt is not that of this one.
    :param anew: how often the attempt was begun anew, see `CreationMachine.begin_anew`.
    """

    provider: str
    node_id: str
    attempt: int
    anew: int = 0

    @property
    def text(self) -> str:
        """For the cloud: 35 characters, a letter first, then small letters, digits and ``-``."""
        parts = [self.provider, self.node_id, str(self.attempt), *([str(self.anew)] if self.anew else [])]
        whole = "\0".join(parts)
        return f"np-{hashlib.sha256(whole.encode()).hexdigest()[:32]}"

    def name(self, hostname: str) -> str:
        """For clouds where names are unique: the first creation has the name of the host, each later one its own. The
        instance of the one before, or what belongs to it, may still be there.
        """
        if self.attempt <= 1 and not self.anew:
            return hostname
        return f"{hostname}-{self.attempt}" + (f"-{self.anew}" if self.anew else "")


class Creation:
    """One creation; made by `LostCreations.begin`.

    :param pool: of the node; ``label`` is its label. They say what an instance uses.
    """

    __slots__ = ("begun_at", "key", "label", "lost_at", "pool")

    def __init__(self, key: CreationKey, pool: str, label: str, now: float) -> None:
        self.key = key
        self.pool = pool
        self.label = label
        self.begun_at = now
        #: Since when it is known that there will be no answer; None = it was answered, or the call is under way.
        self.lost_at: float | None = None


class _OfNode:
    """All creations of one node."""

    __slots__ = ("late_until", "latest", "owned", "pending")

    def __init__(self) -> None:
        self.latest: Creation | None = None
        #: An instance may come that is the latest creation's.
        self.pending = False
        #: Instances whose creation was answered, or that were adopted.
        self.owned: set[str] = set()
        #: Until when an instance may come that nobody expects.
        self.late_until = float("-inf")


class LostCreations:
    """Creations of one provider, by node id. Thread-safe, does not block; ``_lock`` guards all.

    :param provider: whose instances they are: others are none of our business.
    """

    def __init__(self, provider: str, clock: Callable[[], float] = monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[str, _OfNode] = {}
        #: Node of each instance.
        self._node_of: dict[str, str] = {}
        #: Creations that were sent, and whose outcome is not known.
        self._open: dict[Creation, None] = {}
        self._many = MANY_NODES
        #: Creations without an answer of which it turned out that they had made nothing, since the beginning.
        self.made_nothing = 0

    # -- the life of a creation --

    def begin(self, key: CreationKey, pool: str = "", label: str = "") -> Creation:
        """A creation is about to be sent.

        One of the same node that still has no answer was given up: it may make an instance late.
        """
        now = self._clock()
        with self._lock:
            self._forget_old(now)
            node = self._nodes.setdefault(key.node_id, _OfNode())
            if node.pending:
                node.late_until = now + LATE_SECONDS
            node.pending = True
            node.latest = Creation(key, pool, label, now)
            return node.latest

    def sent(self, creation: Creation) -> None:
        """A creation is sent now; again, when it is repeated."""
        with self._lock:
            creation.lost_at = None
            self._open[creation] = None

    def ended(self, creation: Creation) -> None:
        """The call was answered, whatever the answer is: it leaves nothing open."""
        with self._lock:
            self._close(creation)

    def answered(self, creation: Creation, record_id: str) -> bool:
        """A creation was answered with this instance, and its machine goes on with it.

        The instance of a machine that was given up before is nobody's: this is not called for it.

        :return: may an earlier creation of the node have made another one meanwhile? Then ask `strays` for all of them:
            until now any of them could have been this one.
        """
        with self._lock:
            node = self._close(creation)
            if node is None or node.latest is not creation:
                return False
            node.pending = False
            self._own(node, creation.key.node_id, record_id)
            return node.late_until >= self._clock()

    def refused(self, creation: Creation) -> None:
        """A creation was answered: no instance was made."""
        with self._lock:
            node = self._close(creation)
            if node is not None and node.latest is creation:
                node.pending = False
                self._drop_if_over(creation.key.node_id, node)

    def not_answered(self, creation: Creation) -> None:
        """The call has ended without an answer, or what it says does not count. It may be repeated, or its instance
        looked for.
        """
        with self._lock:
            creation.lost_at = self._clock()

    def found(self, creation: Creation, records: Iterable[R]) -> str | None:
        """Of the instances of a node, one that nobody knew: the answer to a creation that got lost on its way."""
        with self._lock:
            node = self._nodes.setdefault(creation.key.node_id, _OfNode())
            for record in records:
                if record.id not in node.owned:
                    self._close(creation)
                    node.pending = False
                    self._own(node, creation.key.node_id, record.id)
                    return record.id
        return None

    def given_up(self, creation: Creation) -> None:
        """There was no answer to a creation, and no instance was found."""
        now = self._clock()
        with self._lock:
            node = self._nodes.setdefault(creation.key.node_id, _OfNode())
            node.pending = False
            node.late_until = now + LATE_SECONDS
            creation.lost_at = now

    def deleted(self, record_id: str) -> None:
        """An instance is gone."""
        with self._lock:
            node_id = self._node_of.pop(record_id, "")
            node = self._nodes.get(node_id)
            # Until the late one came, those that are known must be told from it.
            if node is not None and node.late_until < self._clock():
                node.owned.discard(record_id)
                self._drop_if_over(node_id, node)

    # -- what they leave --

    def strays(self, records: Iterable[R]) -> list[R]:
        """Instances that a lost creation made after it was given up. Each is returned once."""
        found: list[R] = []
        now = self._clock()
        with self._lock:
            for record in records:
                node_id = node_id_of(record.metadata, self.provider)
                node = None if node_id is None else self._nodes.get(node_id)
                if node_id is None or node is None or node.pending or node.late_until < now or record.id in node.owned:
                    continue
                self._own(node, node_id, record.id)
                found.append(record)
        return found

    def unanswered(self, absence_is_certain: Callable[[float], bool]) -> list[Creation]:
        """Creations that may have made an instance that no list has shown yet. They count against the limits.

        :param absence_is_certain: would lists have shown an instance that was there at that time? See `Inventory`.
        """
        with self._lock:
            lost = {creation: creation.lost_at for creation in self._open}
        # Without the lock: the inventory has its own.
        over = {creation for creation, since in lost.items() if since is not None and absence_is_certain(since)}
        with self._lock:
            for creation in over:
                # One that was sent again meanwhile is open again.
                if creation.lost_at == lost[creation] and creation in self._open:
                    del self._open[creation]
                    self.made_nothing += 1
        return [creation for creation in lost if creation not in over]

    # -- inside, with the lock held --

    def _close(self, creation: Creation) -> _OfNode | None:
        """The outcome of a creation is known; returns its node."""
        self._open.pop(creation, None)
        creation.lost_at = None
        return self._nodes.get(creation.key.node_id)

    def _forget_old(self, now: float) -> None:
        if len(self._nodes) <= self._many:
            return
        old = now - OLD_SECONDS
        self._nodes = {key: node for key, node in self._nodes.items() if node.latest and node.latest.begun_at > old}
        self._node_of = {record: node_id for record, node_id in self._node_of.items() if node_id in self._nodes}
        self._many = max(MANY_NODES, 2 * len(self._nodes))

    def _own(self, node: _OfNode, node_id: str, record_id: str) -> None:
        node.owned.add(record_id)
        self._node_of[record_id] = node_id

    def _drop_if_over(self, node_id: str, node: _OfNode) -> None:
        if not node.pending and not node.owned and node.late_until < self._clock():
            del self._nodes[node_id]


# The search after an error: is there an instance of this node? One list call answers all who ask meanwhile.

#: Pauses between the looks for an instance whose creation has no answer: it may show late.
LOOK_SECONDS: Final = (1.0, 3.0)


class InstanceFinder:
    """Looks for instances whose id is not known, because the answer to their creation was lost.

    A list that was begun before the question would not do; so those who ask while a list is under way get the next one.

    :param list_instances: asks the cloud; may block and raise.
    :param executor: where it is asked.
    :param lag_seconds: of the lists, see `Adapter`.
    """

    def __init__(
        self,
        provider_name: str,
        list_instances: Callable[[], Iterable[Instance]],
        executor: Executor,
        lag_seconds: float = 0.0,
    ) -> None:
        self._provider_name = provider_name
        self._list = list_instances
        self._pauses = [*LOOK_SECONDS, *([lag_seconds] if lag_seconds else [])]
        self._looks: Batches[str] = Batches(self._look, executor, sys.maxsize)

    def search(self, node_id: str, wake: Callable[[], None], *, may_be_late: bool) -> Search:
        """A search for the instances of a node, in steps.

        :param wake: makes the next step due now.
        :param may_be_late: look more than once if there seems to be none.
        """
        return Search(lambda: self.find(node_id), wake, self._pauses if may_be_late else ())

    def find(self, node_id: str) -> Future[list[Any]]:
        """Begin to look; does not block. The result is the external ids of the instances of a node."""
        return self._looks.add(node_id)

    def _look(self, take: Callable[[], list[str]]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {node_id: [] for node_id in take()}
        for instance in self._list():
            node_id = node_id_of(instance.metadata, self._provider_name)
            if node_id in found and not instance.deleted and instance.external_id is not None:
                found[node_id].append(instance.external_id)
        return found


class Search:
    """Looks for the instances of a node.

    :param find: begins one look.
    :param pauses: as long as there seems to be none it is looked again after these, in seconds.
    """

    def __init__(
        self,
        find: Callable[[], Future[list[Any]]],
        wake: Callable[[], None],
        pauses: Iterable[float] = (),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._find = find
        self._wake = wake
        self._pauses = list(pauses)
        self._clock = clock
        self._next_look_at = float("-inf")
        self._future: Future[list[Any]] | None = None
        #: External ids, when `step` has returned None.
        self.found: list[Any] = []

    def step(self) -> float | None:
        """Go on; None = `found` says what is there, else seconds until the next step.

        :raises Exception: the cloud could not be asked; call again to ask once more.
        """
        if self._future is None:
            # Whatever woke us meanwhile: an instance that shows late needs the whole pause.
            left = self._next_look_at - self._clock()
            if left > 0:
                return left
            self._future = self._find()
            self._future.add_done_callback(lambda _: self._wake())
        if not self._future.done():
            return WHEN_WOKEN_SECONDS
        future, self._future = self._future, None
        self.found = future.result()
        if self.found or not self._pauses:
            return None
        pause = self._pauses.pop(0)
        self._next_look_at = self._clock() + pause
        return pause
