# SPDX-License-Identifier: Apache-2.0
"""Quota of a cloud: limits, use, and whether there is room (rules Q).

Only the first answers of the cloud are waited for. Last what is learned from refusals (rule L-7).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.fact import Fact, Known, NotKnown, Patience, Repeats
from nodepool.driver.framework.quota_support import LIMITS_AGE_SECONDS, BrokenLabels, QuotaSupport
from nodepool.driver.statemachine.calls import said_by
from nodepool.driver.statemachine.instance import node_id_of, resources_of
from nodepool.exceptions import RuntimeConfigurationException
from nodepool.model.quota import QuotaInformation, first_shortage
from nodepool.model.reasons import Reason, hidden_limit
from nodepool.plan.launch import LearnedLimit

if TYPE_CHECKING:
    from nodepool.driver.config import ConfigPool
    from nodepool.driver.statemachine.adapter import Adapter
    from nodepool.driver.statemachine.calls import CloudCalls
    from nodepool.driver.statemachine.lost_creations import Creation
    from nodepool.model.node import Node
    from nodepool.model.status import LabelStatus

#: Seconds for which the need of a label is not asked for again.
NEED_AGE_SECONDS: Final = 300.0
#: The same of creations without an answer.
UNANSWERED_AGE_SECONDS: Final = 0.1
#: Longest wait for the cache to have read what it was told of.
SETTLE_SECONDS: Final = 5.0


class StateMachineQuota(QuotaSupport):
    """Mix-in of `StateMachineProvider`."""

    name: str
    adapter: Adapter
    calls: CloudCalls
    patience: Patience

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._unanswered: Fact[Sequence[Creation]] = Fact(lambda: self.calls.unanswered_creations())

    def prepare_quota(self, executor: Executor) -> None:
        """Before anything else is called."""
        self._repeats = Repeats()
        self._executor = executor
        # Only the first answers are waited for.
        self._limits = Known(self._ask_for_limits, LIMITS_AGE_SECONDS, executor.submit, patience=self.patience)
        self._known_needs: dict[tuple[str, str], Known[QuotaInformation]] = {}
        self.learned_limits = LearnedLimits(self.nodeCount, self._node_exists)
        #: Labels that a launch failed with for good, and until when they are not tried again.
        self._broken_until: dict[str, float] = {}
        self._broken_launches = BrokenLabels()

    # -- limits --

    def getProviderLimits(self) -> QuotaInformation:
        return self.calls.get_quota_limits()

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        """What others use, and instances of ours that have no node (Q-4). Blocks."""
        before = self._node_ids()
        instances = self.calls.list_instances()
        # A node that comes or goes meanwhile must not count as somebody else's for the next minutes.
        known = before | self._node_ids()
        used = QuotaInformation()
        for instance in instances:
            if instance.deleted or node_id_of(instance.metadata, self.provider.name) in known:
                continue
            resources = resources_of(instance)
            used.add(QuotaInformation(instances=1) if resources is None else QuotaInformation.from_resources(resources))
        return used

    def _node_ids(self) -> set[str]:
        return set() if self.zk is None else set(self.zk.getNodes())

    def _limits_unknown(self, error: BaseException) -> None:
        if self._repeats.worth_saying("limits"):
            name = self.provider.name
            text = said_by(name, error)
            self._quota_log.error("Provider %s: limits unknown: %s", name, text, extra={"provider": name})

    def _ask_for_limits(self) -> QuotaInformation:
        limits = super()._ask_for_limits()
        if self._repeats.over("limits"):
            self._quota_log.info("Provider %s: limits are known again", self.provider.name)
        return limits

    def invalidateQuotaCache(self) -> None:
        """Ask the cloud again, now and in the background: it said that a quota is used up."""
        super().invalidateQuotaCache()
        self._limits.refresh()

    # -- needs --

    def quotaNeededByLabel(self, label: str, pool: ConfigPool) -> QuotaInformation:
        """What one node of a label uses. Does not wait for the cloud, but for the first answer.

        :raises NotKnown: it has not answered yet.
        :raises RuntimeConfigurationException: the label can never work.
        """
        key = (pool.name, label)
        known = self._known_needs.get(key)
        if known is None:
            settings = pool.labels[label]
            known = Known(
                lambda: self.calls.get_quota_for_label(settings),
                NEED_AGE_SECONDS,
                self._executor.submit,
                permanent=(RuntimeConfigurationException,),
                patience=self.patience,
            )
            known = self._known_needs.setdefault(key, known)
        return known.get()

    def label_is_broken(self, label: str, error: Exception) -> None:
        """A launch showed that a label can never work (Q-14). It gets another chance after a while."""
        if label not in self.errorLabels():
            self._tell_broken(label, error)
            self._broken_launches.discard(label)
        self._broken_launches.add(label, error)
        self._broken_until[label] = monotonic() + NEED_AGE_SECONDS

    def errorLabels(self) -> list[str]:
        """Labels that can never work (Q-14), as far as is known: the cloud may get what one of them needs."""
        now = monotonic()
        broken = {label for label, until in list(self._broken_until.items()) if now < until}
        for label in super().errorLabels():
            needs = [known for (_, name), known in list(self._known_needs.items()) if name == label]
            if any(_is_refused(known) for known in needs):
                broken.add(label)
            else:
                if self._broken_labels.discard(label):
                    self._quota_log.info("Provider %s: label %s can be served now", self.provider.name, label)
        return sorted(broken)

    def labelErrors(self) -> Mapping[str, LabelStatus]:
        causes = {**self._broken_launches.causes(), **super().labelErrors()}
        return {label: causes[label] for label in self.errorLabels() if label in causes}

    # -- room --

    def canEverFit(self, pool: ConfigPool, labels: Iterable[str]) -> bool:
        """Would these nodes fit together if nothing of ours ran (Q-1)? As long as nobody knows, the answer is yes."""
        try:
            return super().canEverFit(pool, labels)
        except NotKnown as reason:
            self._quota_log.debug("Provider %s: quota is not known: %s", self.provider.name, reason)
            return True

    def roomForOne(self, pool: ConfigPool, label: str) -> bool:
        """Is there room for one more node of a label now (Q-2)? As long as nobody knows, the answer is no."""
        try:
            room = super().roomForOne(pool, label)
        except NotKnown as reason:
            if self._repeats.worth_saying(label):
                self._quota_log.info("Provider %s: waiting, because quota is not known: %s", self.provider.name, reason)
            return False
        self._repeats.over(label)
        return room and self.learned_limits.allows(pool.name, label)

    def shortage(self, pool: ConfigPool, label: str) -> Reason | None:
        """As `QuotaSupport.shortage`; also what the cloud refused, although it tells no limit."""
        learned = self.learned_limits.known(pool.name, label)
        return super().shortage(pool, label) or (None if learned is None else hidden_limit(label, *learned))

    def roomFor(self, pool: ConfigPool, label: str) -> float:
        """How many more nodes of a label have room now; 0 = none, or nobody knows. Does not wait for the cloud."""
        try:
            return min(self._available(pool, label), self.learned_limits.room(pool.name, label))
        except NotKnown:
            return 0

    def hasPlace(self, pool: ConfigPool, node: Node) -> bool:
        """Is there room for a node that is stored already, counting all that were stored before it?

        Several launchers, or several pools, may see the same gap and fill it. Ids of nodes grow, so of those who did
        the first one has its place. Blocks until what ZooKeeper announced has been read.
        """
        cache = None if self.zk is None else self.zk.cache
        if cache is not None and not cache.nodes.wait_settled(SETTLE_SECONDS):
            return False
        try:
            if self._overdrawn(pool, self.estimatedNodepoolQuotaUsed(pool), self.estimatedNodepoolQuotaUsed()):
                return not self._overdrawn(pool, *self._used_up_to(pool, node))
        except NotKnown:
            return False
        return True

    def estimatedNodepoolQuotaUsed(self, pool: ConfigPool | None = None) -> QuotaInformation:
        """What nodes use, in every state (Q-3), and what creations without an answer use whose nodes are gone."""
        used = super().estimatedNodepoolQuotaUsed(pool)
        used.add(self._unanswered_use(pool))
        return used

    def _unanswered_use(self, pool: ConfigPool | None) -> QuotaInformation:
        """What creations without an answer may use whose nodes are gone: in a pool, or (None) in the provider."""
        used = QuotaInformation()
        # As the driver knew them a moment ago: this is asked for several times for each node.
        for creation in self._unanswered.get(UNANSWERED_AGE_SECONDS):
            owner = self.provider.pools.get(creation.pool)
            if owner is None or creation.label not in owner.labels or (pool is not None and pool.name != owner.name):
                continue
            if self._node_exists(creation.key.node_id):
                continue
            needed = self._needed(owner, [creation.label])
            if needed is not None:
                used.add(needed)
        return used

    def forget_unanswered(self) -> None:
        """Ask the driver again."""
        self._unanswered.clear()

    def _node_exists(self, node_id: str) -> bool:
        """Is there a node, which counts by itself?"""
        cache = None if self.zk is None else self.zk.cache
        return cache is not None and cache.nodes.get(node_id) is not None

    def _overdrawn(self, pool: ConfigPool, in_pool: QuotaInformation, in_provider: QuotaInformation) -> bool:
        """As long as the limits are not known, the answer is yes."""
        nothing = QuotaInformation()
        if first_shortage(self.poolQuota(pool), in_pool, nothing) is not None:
            return True
        limits, _ = self._limits_or_trouble(pool)
        return limits is None or first_shortage(limits, in_provider, nothing) is not None

    def _used_up_to(self, pool: ConfigPool, last: Node) -> tuple[QuotaInformation, QuotaInformation]:
        """What this node, all that are older, and creations without an answer use: in the pool, and in the provider."""
        in_pool, in_provider = self._unanswered_use(pool), self._unanswered_use(None)
        for node in self.zk.nodeIterator() if self.zk is not None else ():
            if node.provider != self.provider.name or (node.key) > (last.key):
                continue
            used = QuotaInformation.from_resources(node.resources or {"instances": 1})
            in_provider.add(used)
            if node.pool == pool.name:
                in_pool.add(used)
        return in_pool, in_provider


def _is_refused(known: Known[QuotaInformation]) -> bool:
    try:
        known.get()
    except (RuntimeConfigurationException, NotKnown):
        return True
    return False


# What a provider's cloud took of each label when it said that a quota was used up (rule L-7).


class LearnedLimits:
    """Clouds do not report all of their quotas. Where one refused a node, no more are launched than it has taken.

    Thread-safe; ``_lock`` guards the tables, and ``count`` and ``exists`` are called with it: they must not block.

    :param count: how many nodes of the provider there are.
    :param exists: is there still a node of this id?
    """

    def __init__(
        self,
        count: Callable[[], int],
        exists: Callable[[str], bool],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._count = count
        self._exists = exists
        self._clock = clock
        self._lock = threading.Lock()
        self._limits: dict[tuple[str, str], LearnedLimit] = {}
        #: What the cloud said.
        self._words: dict[tuple[str, str], str] = {}
        #: Refused nodes that are not removed yet: the cloud does not have them.
        self._refused: set[str] = set()
        #: Nodes that are launched although the cloud was full with those that were there: it may have room again.
        self._beyond: set[str] = set()

    def allows(self, pool: str, label: str) -> bool:
        """May another node be launched, as far as the cloud's refusals go?"""
        with self._lock:
            limit = self._limits.get((pool, label))
            return limit is None or limit.allows(self._clock(), self._count())

    def room(self, pool: str, label: str) -> float:
        """How many more the cloud takes, as far as its refusals go."""
        with self._lock:
            limit = self._limits.get((pool, label))
            return math.inf if limit is None else max(0, limit.nodes - self._count())

    def known(self, pool: str, label: str) -> tuple[int, int, str] | None:
        """With how many nodes the cloud was full, how many it has now, what it said; None = it never refused one."""
        with self._lock:
            limit = self._limits.get((pool, label))
            return None if limit is None else (limit.nodes, self._count(), self._words[pool, label])

    def begun(self, pool: str, label: str, node_id: str) -> None:
        """A node that is stored already is launched."""
        with self._lock:
            limit = self._limits.get((pool, label))
            if limit is not None and self._taken() > limit.nodes:
                self._beyond.add(node_id)

    def refused(self, pool: str, label: str, node_id: str, words: str) -> None:
        """The cloud said that a quota is used up, in these words."""
        with self._lock:
            self._beyond.discard(node_id)
            self._refused.add(node_id)
            limit = self._limits.setdefault((pool, label), LearnedLimit())
            limit.refused(self._clock(), self._taken())
            self._words[pool, label] = words

    def ended(self, pool: str, label: str, node_id: str, *, ready: bool) -> None:
        """A launch is over. One beyond the limit that is ready shows that there is more room."""
        with self._lock:
            if node_id in self._beyond:
                self._beyond.discard(node_id)
                if ready:
                    self._limits.pop((pool, label), None)

    def _taken(self) -> int:
        self._refused = {node_id for node_id in self._refused if self._exists(node_id)}
        return self._count() - len(self._refused)
