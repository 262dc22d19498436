# SPDX-License-Identifier: Apache-2.0
"""Instances of a cloud: what launches and deletions of one provider share.

First the metadata by which Nodepool recognises its resources, then what a node takes over. Then `InstanceCloud`, which
instances were made for which node (`LostCreations`), what can be left over (`ResourceKinds`), and the adapter of such a
cloud. Last what the machines for launches and deletions have in common (`InventoryMachine`).
"""

from __future__ import annotations

import abc
import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.config import DEFAULT_PORT, ConfigPool, LabelSettings, ProviderConfig
from nodepool.driver.framework.cloud_errors import NotFoundByProxy
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.framework.rate import MAX_THREADS, SharedThreads
from nodepool.driver.framework.uploads import ListedImage
from nodepool.driver.statemachine.adapter import (
    SWEEP_LIST_SECONDS,
    Adapter,
    CloudImages,
    CloudResource,
    Creation,
    CreationKey,
    ImageFile,
    Instance,
    Log,
    Resource,
    StateMachine,
)
from nodepool.driver.statemachine.inventory import PRICE_SECONDS, Inventory, R, Waiter, no_changes
from nodepool.exceptions import CloudUnavailableException, LaunchError, NotFound, RuntimeConfigurationException
from nodepool.guard import OnError
from nodepool.metrics import reports
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest

# The metadata by which Nodepool recognises its resources in a cloud (rules D-1, D-10).
#
# A process uses one ZooKeeper, so it belongs to one installation. Its provider says which when it starts. What bears
# the id of another installation belongs to that one. What bears none was made by an earlier release.

PROVIDER_KEY: Final = "nodepool_provider_name"
POOL_KEY: Final = "nodepool_pool_name"
NODE_KEY: Final = "nodepool_node_id"
BUILD_KEY: Final = "nodepool_build_id"
UPLOAD_KEY: Final = "nodepool_upload_id"
INSTALLATION_KEY: Final = "nodepool_installation_id"

#: Of this installation, the one that is written first; empty = not known yet. Replaced as a whole.
_ours: tuple[str, ...] = ()
#: Of other installations whose marks are to be known.
_looked_for: tuple[str, ...] = ()


def know_installation(ids: tuple[str, ...]) -> None:
    """What bears one of these ids is ours; what is made gets the first. None = an earlier release's ways."""
    global _ours
    _ours = ids


def of_installation() -> dict[str, str]:
    """What is stored with everything that is made, beside what says for whom."""
    return {INSTALLATION_KEY: _ours[0]} if _ours else {}


def mark_of(provider_name: str, digits: int) -> str:
    """What stands for provider and installation in the name of a thing that cannot carry metadata.

    :param digits: hexadecimal ones.
    """
    return _mark(provider_name, *_ours[:1])[:digits]


def of_mark(mark: str, provider_name: str) -> dict[str, str] | None:
    """The installation that `mark_of` had, if it is ours, or looked for; nothing for an earlier release.

    :return: None = it is the mark of another provider or installation.
    """
    if _mark(provider_name).startswith(mark):
        return {}
    known = (one for one in (*_ours, *_looked_for) if _mark(provider_name, one).startswith(mark))
    return next(({INSTALLATION_KEY: one} for one in known), None)


def look_for(*installations: str) -> None:
    """Know what has these installations in a mark, too. For the command that deletes it."""
    global _looked_for
    _looked_for = installations


def _mark(provider_name: str, *installation: str) -> str:
    return hashlib.sha256("\n".join((provider_name, *installation)).encode()).hexdigest()


def foreign(found: Mapping[str, Any] | None) -> str | None:
    """Id of the other installation that a thing in the cloud belongs to; None = it is not known to be another's."""
    said = (found or {}).get(INSTALLATION_KEY)
    return str(said) if said and said not in _ours else None


def others(found: Iterable[Mapping[str, Any]], provider_name: str) -> Counter[str]:
    """Other installation -> how many things in the cloud it made for a provider of this name."""
    ids = (foreign(one) for one in found if one.get(PROVIDER_KEY) == provider_name)
    return Counter(one for one in ids if one is not None)


def for_node(node_id: str, pool_name: str, provider_name: str) -> dict[str, str]:
    """What is stored with an instance, and with all that is made for it."""
    return {NODE_KEY: node_id, POOL_KEY: pool_name, PROVIDER_KEY: provider_name, **of_installation()}


def is_of(found: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Was a thing in the cloud made for the node of this metadata?"""
    same = all(found.get(key) == wanted[key] for key in (NODE_KEY, PROVIDER_KEY))
    return same and foreign(found) is None


def node_id_of(found: Mapping[str, Any] | None, provider_name: str) -> str | None:
    """The node that a thing in the cloud was made for; None = it is not of this provider, or not of a node."""
    if not found or found.get(PROVIDER_KEY) != provider_name or foreign(found) is not None:
        return None
    node_id = found.get(NODE_KEY)
    return str(node_id) if node_id else None


def upload_of(found: Mapping[str, Any] | None, provider_name: str) -> tuple[str, str] | None:
    """Build id and upload id of an image; None = it is not of this provider, or not an image of ours."""
    if not found or found.get(PROVIDER_KEY) != provider_name or foreign(found) is not None:
        return None
    build, upload = found.get(BUILD_KEY), found.get(UPLOAD_KEY)
    return (str(build), str(upload)) if build and upload else None


# What a node says about itself: from its label before the launch, from its instance after (rules L, Q-17).

#: Hosts of Windows take no longer names (L-2).
HOSTNAME_CHARACTERS: Final = 15
#: What an instance may say instead of its image (L-14).
OVERRIDES: Final = ("username", "python_path", "shell_type", "connection_type", "connection_port")


def hostname(node_id: str | None) -> str:
    """Of the instance of a node."""
    return f"np{node_id}"[:HOSTNAME_CHARACTERS]


def diskimage_of(label: LabelSettings) -> Any:
    """The uploaded image of a label; None = it has none. Drivers without images need not know the attribute."""
    return getattr(label, "diskimage", None)


def describe(node: Node, label: LabelSettings, provider: ProviderConfig) -> None:
    """Fill in how one logs in, as the image of a label says (L-1): an uploaded one as the provider names it."""
    image, diskimage = getattr(label, "cloud_image", None), diskimage_of(label)
    if diskimage is not None:
        # In drivers written for 11.0.0 that of the label is the one of the top level, which knows no connection.
        image = getattr(provider, "diskimages", {}).get(diskimage.name, diskimage)
    if image is None:
        return
    # Images of drivers written for 11.0.0 may lack what they do not configure.
    node.username = getattr(image, "username", None)
    # Ansible needs a text.
    node.python_path = getattr(image, "python_path", None) or "auto"
    node.shell_type = getattr(image, "shell_type", None)
    node.connection_type = getattr(image, "connection_type", "ssh")
    node.connection_port = getattr(image, "connection_port", DEFAULT_PORT)


def take_instance(node: Node, instance: Instance, pool: ConfigPool) -> None:
    """Fill in what the cloud says about an instance that is there."""
    if instance.external_id:
        node.external_id = instance.external_id
    for name in ("public_ipv4", "public_ipv6", "private_ipv4", "private_ipv6", "host_id", "driver_data", "slot"):
        setattr(node, name, getattr(instance, name, None))
    for name in ("cloud", "region", "az"):
        value = getattr(instance, name, None)
        if value is not None:
            setattr(node, name, value)
    node.interface_ip = address_of(instance, pool)
    if getattr(instance, "node_properties", None):
        node.node_properties = instance.node_properties
    for name in OVERRIDES:
        if hasattr(instance, name):
            setattr(node, name, getattr(instance, name))
    if hasattr(instance, "host_keys"):
        node.host_keys = list(instance.host_keys or ())
    defaults: dict[str, Any] | None = getattr(instance, "node_attributes", None)
    if defaults:
        node.attributes = {**defaults, **(pool.node_attributes or {})}
    node.resources = resources_of(instance) or node.resources


def address_of(instance: Instance, pool: ConfigPool) -> str | None:
    """Where Zuul connects to (L-13)."""
    public = (getattr(instance, "public_ipv4", None), getattr(instance, "public_ipv6", None))
    private = (getattr(instance, "private_ipv4", None), getattr(instance, "private_ipv6", None))
    choice: list[str | None] = [instance.interface_ip, *public, *private]
    if getattr(pool, "use_internal_ip", False):
        choice = [*private, *choice]
    return next((address for address in choice if address), None)


def resources_of(instance: Instance) -> dict[str, float] | None:
    """What an instance uses; None = its driver does not say."""
    try:
        return instance.getQuotaInformation().get_resources()
    except NotImplementedError:
        # The default of `Instance`: how a driver of the released interface says that it does not know.
        return None


# `InstanceCloud`: what launches and deletions of one provider share. A driver says how its cloud does it.

log = logging.getLogger("nodepool.driver.statemachine.InstanceCloud")

T = TypeVar("T")

#: Code of an end for which the cloud gives no reason.
GONE: Final = "NotFound"
#: Of the provider's threads, so many are reserved for creations, and for all other calls.
RESERVED_CREATE_THREADS: Final = 4
RESERVED_OTHER_THREADS: Final = 3


class InstanceCloud(abc.ABC, Generic[R]):
    """Inventory, lost creations and threads of one provider. Threads begin with the first piece of work.

    The abstract methods, and those below them, are called in these threads: they block, and raise what
    `nodepool.exceptions` has for it. Creations have a share of the threads, so that nothing else waits for them. The
    framework uses these ``threads`` as well.

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
    #: Does `begin_proof` tell the truth at once, however late lists are? Then no one waits for ``lag_seconds`` with it.
    absence_is_proved: ClassVar[bool] = False
    #: Can creations be resumed (`CreationMachine.adopt`) that another launcher has begun?
    resumes_launches: ClassVar[bool] = False
    #: `WatchedInventory` for a cloud that tells what changes.
    inventory_class: ClassVar[type[Inventory[Any]]] = Inventory
    #: The longest time that one call takes, in seconds.
    call_seconds: float = 60.0

    def __init__(self, provider: str) -> None:
        self.provider = provider
        since = self.changes_since if self.lists_changes else no_changes
        self.inventory: Inventory[R] = self.inventory_class(provider, self.list_instances, since, self.lag_seconds)
        pace = self.inventory.pace
        pace.shortest_seconds, pace.price_seconds = self.shortest_list_pause, self.list_price
        self.inventory.look_at, self.inventory.looks_singly = self.look_at, self.looks_singly
        self.inventory.on_news = self._news
        self.inventory.on_list = self._listed
        self.creations = LostCreations(provider)
        #: Lists are made for creations without an answer while there is one. ``_lock`` guards it.
        self._lost: Waiter | None = None
        self._lock = threading.Lock()
        # The framework sets both. Any thread; they must not block.
        #: Called when such a creation turned out to have made nothing: it does not count any more.
        self.on_room: Callable[[], None] = lambda: None
        #: Called when an instance ended that was not deleted here, with the id of its node, its own id in lists, the
        #: cloud's code, and a text.
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
        """Order the deletion of an instance; does not wait for it. Raises NotFound when it has ended."""

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
        """One instance, as it is now; raises NotFound when it has ended: that is the proof.

        A cloud that cannot be asked for one leaves this out: the absence from lists is the proof then, as far as
        ``lag_seconds`` lets it be one.
        """
        raise NotImplementedError

    def look_at(self, record_id: str) -> R:
        """One instance as a list would show it now; raises NotFound when it ended. Only in the thread that lists."""
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
        """Find out whether an instance has ended that lists have shown, and do not show any more; does not block.

        Its deletion was accepted. The future ends with the instance, with NotFound if it ended, or with None if that
        cannot be known yet. A cloud that proves it for several at once may gather them.
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

    def of_node(self, node_id: str) -> list[R]:
        """Instances whose metadata names a node of this provider. Does not block."""
        return [one for one in self.inventory.known() if node_id_of(one.metadata, self.provider) == node_id]

    def unanswered(self) -> list[Creation]:
        """Creations that may have made an instance which no list has shown yet. Does not block.

        Who asks may wait for the room that they take: lists are made until it is known.
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
        node_id = None if why is None else node_id_of(record.metadata, self.provider)
        if why is not None and node_id is not None:
            self.on_lost(node_id, record.id, *why)

    def delete_strays(self, records: Iterable[R]) -> None:
        """Instances whose creation was given up as lost, and that showed up late. Does not block."""
        for record in self.creations.strays(records):
            log.warning(
                "Provider %s: instance %s of node %s was made by a call that was not answered, deleting it",
                self.provider,
                record.id,
                record.metadata.get(NODE_KEY),
            )
            self.others.submit(self._delete_stray, record.id, partial(self.delete_seen, record))

    def delete_abandoned(self, record_id: str) -> None:
        """An instance was made for a launch that no one goes on with. Does not block."""
        log.warning("Instance %s was made for a launch that was abandoned, deleting it", record_id)
        self.others.submit(self._delete_stray, record_id, partial(self.delete_instance, record_id))

    def _delete_stray(self, record_id: str, delete: Callable[[], None]) -> None:
        try:
            delete()
        except NotFound:
            log.debug("Instance %s does not exist any more", record_id)
        except LaunchError as error:
            # The search for leaks comes by later.
            log.warning("Instance %s could not be deleted: %s", record_id, error)
            return
        reports.report_leaks(self.provider, "instances")


# `LostCreations`: which instances were made for which node, so that none is made twice, and none is kept that came late
# (D, L-4).
#
# A creation whose answer is lost may have made an instance. It may show up at once, after minutes, or never. While its
# node is launched the creation is repeated with its key, where the cloud knows the key, or else the instance is looked
# for and adopted. While a node is deleted nothing is repeated: the instance is only looked for.

#: How long an instance may take to show up after its creation was not answered, in seconds.
LATE_SECONDS: Final = 3600.0
#: With more nodes than these, those whose creation began so long ago are forgotten: other launchers delete instances,
#: and do not tell.
MANY_NODES: Final = 1000
OLD_SECONDS: Final = 2 * LATE_SECONDS


@dataclass(slots=True)
class _OfNode:
    """All creations of one node."""

    latest: Creation | None = None
    #: An instance may come that is the latest creation's.
    pending: bool = False
    #: Instances whose creation was answered, or that were adopted.
    owned: set[str] = field(default_factory=set)
    #: Until when an instance may come that no one expects.
    late_until: float = float("-inf")


class LostCreations:
    """Creations of one provider, by node id. Thread-safe, does not block; ``_lock`` guards all.

    :param provider: whose instances they are: others are none of our business.
    """

    def __init__(self, provider: str) -> None:
        self.provider = provider
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
        now = monotonic()
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

        The instance of a machine that was given up before is no one's: this is not called for it.

        :return: may an earlier creation of the node have made another one meanwhile? Then ask `strays` for all of them:
            until now any of them could have been this one.
        """
        with self._lock:
            node = self._close(creation)
            if node is None or node.latest is not creation:
                return False
            node.pending = False
            self._own(node, creation.key.node_id, record_id)
            return node.late_until >= monotonic()

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
            creation.lost_at = monotonic()

    def found(self, creation: Creation, records: Iterable[R]) -> str | None:
        """Of the instances of a node, one that no one knew: the answer to a creation that got lost on its way."""
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
        now = monotonic()
        with self._lock:
            node = self._nodes.setdefault(creation.key.node_id, _OfNode())
            node.pending = False
            node.late_until = now + LATE_SECONDS
            creation.lost_at = now

    def deleted(self, record_id: str) -> None:
        """An instance has ended."""
        with self._lock:
            node_id = self._node_of.pop(record_id, "")
            node = self._nodes.get(node_id)
            # Until the late one came, those that are known must be distinguished from it.
            if node is not None and node.late_until < monotonic():
                node.owned.discard(record_id)
                self._drop_if_over(node_id, node)

    # -- what they leave --

    def strays(self, records: Iterable[R]) -> list[R]:
        """Instances that a lost creation made after it was given up. Each is returned once."""
        found: list[R] = []
        now = monotonic()
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
        if not node.pending and not node.owned and node.late_until < monotonic():
            del self._nodes[node_id]


# `ResourceKinds`: what can be left over in a cloud, kind by kind (rules D).
#
# Each kind says how its things are listed. Whose they are, and whether they are still wanted, the framework finds out:
# it deletes what it has seen twice without a node or an upload. So a kind that cannot be listed in one sweep is not
# taken for deleted: what it has left is only deleted later.

resources_log = logging.getLogger("nodepool.driver.statemachine.resources")

#: What cannot be listed is logged so often.
_TOLD_SECONDS: Final = 3600.0

L = TypeVar("L", bound=Resource)


@dataclass(frozen=True)
class ResourceKind(Generic[L]):
    """Things of one kind.

    :param name: for the log; as a rule the ``type`` of the resources.
    :param found: all that may be ours; blocks, and raises what the client raises.
    :param delete: one of them; blocks. Raises NotFound and what the client raises.
    :param idle_seconds: until the next list after one that showed nothing of the provider; 0 = in the next sweep. For
        what the configuration has no use for, but an earlier one may have left.
    :param vital: without its list there is no sweep, such as that of the instances; else the other kinds are swept all
        the same.
    :param types: further types of its resources.
    """

    name: str
    found: Callable[[], Iterable[L]]
    delete: Callable[[L], object]
    idle_seconds: float = 0.0
    vital: bool = False
    types: tuple[str, ...] = ()


class ResourceKinds(Generic[L]):
    """The kinds of one provider. Called by one thread at a time; blocks.

    :param provider: its name, for the log.
    :param kinds: in the order in which things are deleted: what uses others comes before them.
    """

    def __init__(self, provider: str, kinds: Iterable[ResourceKind[L]]) -> None:
        self._provider = provider
        self._kinds = tuple(kinds)
        self._due: dict[str, float] = {}
        self._repeats = Repeats(_TOLD_SECONDS)

    def all(self) -> Iterator[L]:
        """Everything that may be ours. Trouble with one kind does not hide the others, unless the kind is vital."""
        for kind in self._kinds:
            if self._due.get(kind.name, float("-inf")) <= monotonic():
                yield from self._list(kind)

    def delete(self, resource: L) -> None:
        """Delete a resource of `all`; as its kind says it. Raises LookupError."""
        kind = next((kind for kind in self._kinds if resource.type in (kind.name, *kind.types)), None)
        if kind is None:
            raise LookupError(f"Provider {self._provider}: resources of type {resource.type} are of no known kind")
        kind.delete(resource)

    def _list(self, kind: ResourceKind[L]) -> list[L]:
        try:
            found = list(kind.found())
        except (LaunchError, RuntimeConfigurationException) as error:
            if kind.vital:
                raise
            if self._repeats.worth_saying(kind.name):
                resources_log.warning(
                    "Provider %s: resources of kind %s cannot be listed: %s", self._provider, kind.name, error
                )
            return []
        self._repeats.over(kind.name)
        # What is there must be seen in two sweeps in a row.
        ours = any(resource.metadata.get(PROVIDER_KEY) == self._provider for resource in found)
        self._due[kind.name] = monotonic() + (0.0 if ours else kind.idle_seconds)
        return found


# What a driver derives from whose cloud is an `InstanceCloud`.


class CloudAdapter(Adapter):
    """The constructor of a driver makes the cloud, and calls `use`. It must not call the cloud.

    Beside what stands here a driver says what labels need and what the limits are.
    """

    # Its machines share nothing but what is safe in several threads.
    advance_threads = 8
    instance_cloud: InstanceCloud[Any]
    #: Launches instances.
    creation_class: ClassVar[Any]
    #: What may be left over, also images.
    resources: ResourceKinds[Any]
    #: What is done with images.
    images: CloudImages = CloudImages()

    def use(self, cloud: InstanceCloud[Any]) -> None:
        self.instance_cloud = cloud

    def stop(self) -> None:
        self.instance_cloud.stop()

    def getCreateStateMachine(self, *order: Any, **named: Any) -> Any:
        """Takes the arguments of an `Order`."""
        return self.creation_class.of(self.instance_cloud, Order(*order, **named))

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> Any:
        return self.creation_class.deletion_class(self.instance_cloud, external_id, log)

    def listInstances(self) -> list[Instance]:
        cloud = self.instance_cloud
        records = cloud.inventory.all(max_age=0.0)
        cloud.learn(records)
        found = [cloud.instance(record) for record in records]
        for instance, record in zip(found, records, strict=True):
            instance.ends = cloud.why_ended(record)
        return found

    def unansweredCreations(self) -> Iterable[Creation]:
        return self.instance_cloud.unanswered()

    def listResources(self) -> Iterable[Resource]:
        return self.resources.all()

    def instance_kind(self) -> ResourceKind[CloudResource]:
        """The first row of `resources`: instances, as the framework has just listed them."""
        return ResourceKind(
            "instance", self._found_instances, lambda found: self.instance_cloud.delete_instance(found.id), vital=True
        )

    def _found_instances(self) -> Iterator[CloudResource]:
        for record in self.instance_cloud.inventory.all(SWEEP_LIST_SECONDS):
            yield CloudResource(record.metadata, "instance", record.id)

    def upload(self, file: ImageFile) -> str:
        """See `Adapter.uploadImage`."""
        return self.images.upload(file)

    def deleteImage(self, external_id: str) -> None:
        self.images.delete(external_id)

    def listImages(self) -> Iterable[ListedImage]:
        return self.images.listed()

    def uploadImage(
        self,
        provider_image: Any,
        image_name: str,
        filename: str,
        image_format: str | None = None,
        metadata: dict[str, str] | None = None,
        md5: str | None = None,
        sha256: str | None = None,
    ) -> str:
        return self.upload(
            ImageFile(provider_image, image_name, filename, image_format, dict(metadata or {}), md5, sha256)
        )

    def deleteResource(self, resource: Resource) -> None:
        self.resources.delete(resource)


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


# `InventoryMachine`: what creations and deletions of an `InstanceCloud` have in common.

#: A machine that waits is woken; this is for the case that it is not. Its waiter is forgotten after 20 s.
SAFETY_SECONDS: Final = 10.0


def cloud_is_away(error: BaseException) -> bool:
    """Does an error say that the cloud has not answered? Then it is not known what it did."""
    return isinstance(error, (CloudUnavailableException, OSError))


class InventoryMachine(StateMachine, abc.ABC, Generic[R]):
    """A machine of steps: that of each state is the method of its name, such as ``_building``.

    A step returns the instance = complete; True = look at the new state at once; False = wait. It does not block: calls
    are made in threads of the cloud.
    """

    COMPLETE: ClassVar[str] = "complete"

    def __init__(self, cloud: InstanceCloud[R], log: Log) -> None:
        super().__init__()
        self.cloud = cloud
        self.log = log
        #: When the state began, and when the framework looked last.
        self.since = monotonic()
        self.advanced_at = monotonic()
        #: Id of the instance in lists; ``external_id`` may say more.
        self.record_id: str | None = None
        self._call: Future[Any] | None = None
        self._waiter: Waiter | None = None

    def advance(self) -> Any:
        self.advanced_at = monotonic()
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
        self.since = monotonic()
        return True

    def end(self) -> None:
        """The machine is complete."""
        self.stop_waiting(True)
        self.go(self.COMPLETE)
        self.complete = True

    def call(self, function: Callable[[], Any]) -> None:
        """Make a call in a thread of the cloud; its end wakes the machine. See `answered` and `answer`."""
        self.await_call(self.cloud.others.submit(function))

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
        :raises NotFound: it does not exist any more: that is the proof.
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

    def reached(self, when: float) -> bool:
        """Is it this time yet? If not, the framework comes back then."""
        left = when - monotonic()
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

    def stop_waiting(self, happened: bool) -> None:
        """No news are needed any more.

        :param happened: what was waited for came.
        """
        if self._waiter is not None:
            self.cloud.inventory.done(self._waiter, happened)
            self._waiter = None
