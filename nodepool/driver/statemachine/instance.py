# SPDX-License-Identifier: Apache-2.0
"""Instances of a cloud: what an adapter says of them, and what launches and deletions of one provider share.

First `Instance` and `Resource`, then `StateMachine`, then the metadata by which Nodepool recognises its resources, then
what a node takes over. Then `InstanceCloud`, which instances were made for which node, calls for many orders
(`Batches`), and the search for the instances of a node (`InstanceFinder`).
"""

from __future__ import annotations

import abc
import hashlib
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.config import DEFAULT_PORT, ConfigPool, LabelSettings, ProviderConfig
from nodepool.driver.framework.rate import MAX_THREADS, Hold, SharedThreads, ended, working_for
from nodepool.driver.statemachine.inventory import PRICE_SECONDS, Inventory, R, Waiter, no_changes
from nodepool.exceptions import CloudUnavailableException, LaunchError, NotFound
from nodepool.guard import ERRORS, as_exception, settle
from nodepool.metrics import reports
from nodepool.model.node import Node, QuotaInformation

#: What `Adapter` methods get to log with: a logger that adds the ids of node, request and event.
Log = logging.LoggerAdapter[logging.Logger]


class Instance:
    """One machine in the cloud.

    Subclasses set as many of the attributes as they can. These are not set here; when a subclass sets one, it wins over
    what the image says: ``username``, ``python_path``, ``shell_type``, ``connection_port``, ``connection_type``,
    ``host_keys``. Likewise ``node_attributes``: defaults under the ``node-attributes`` of the pool.

    :param data: given to `load`; without arguments it is not called.
    """

    #: False: Zuul does not connect to the instance itself, and needs no ``interface_ip``.
    has_address = True
    #: Of one that is listed, but ends, or was stopped by the cloud, so that it can be used no more: the cloud's code,
    #: and a text (D-9).
    ends: tuple[str, str] | None = None

    def __init__(self, *data: Any, **named: Any) -> None:
        self.ready = False
        self.deleted = False
        #: A text, or a dict.
        self.external_id: Any = None
        #: Where Zuul connects to.
        self.interface_ip: str | None = None
        #: As given to `Adapter.getCreateStateMachine`.
        self.metadata: dict[str, Any] = {}
        self.public_ipv4: str | None = None
        self.public_ipv6: str | None = None
        self.private_ipv4: str | None = None
        self.private_ipv6: str | None = None
        self.cloud: str | None = None
        self.az: str | None = None
        self.region: str | None = None
        self.host_id: str | None = None
        #: Whatever the driver wants to find again in the node, as JSON.
        self.driver_data: Any = None
        self.slot: int | None = None
        self.node_properties: dict[str, Any] = {}
        if data or named:
            self.load(*data, **named)

    def __repr__(self) -> str:
        state = " ".join(word for word in ("ready", "deleted") if getattr(self, word, False))
        return f"<{type(self).__name__} {self.external_id} {state}>"

    def load(self, *data: Any, **named: Any) -> None:
        """Parse what the cloud says; may be overridden."""

    def getQuotaInformation(self) -> QuotaInformation:
        """What this instance uses of the quota."""
        raise NotImplementedError


class CloudInstance(Instance):
    """An instance that a record of the inventory shows.

    :param record: ``id`` and ``metadata`` are taken from it.
    :param used: what it uses of the quota.
    :param values: other attributes. ``interface_ip`` is the first address that there is, if it is not given: public
        before private, IPv4 before IPv6.
    """

    def __init__(self, record: Any, used: QuotaInformation, **values: Any) -> None:
        super().__init__()
        self.external_id = record.id
        self.metadata = dict(record.metadata)
        self._used = used
        vars(self).update(values)
        if "interface_ip" not in values:
            self.interface_ip = self.public_ipv4 or self.public_ipv6 or self.private_ipv4 or self.private_ipv6

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used


class Resource:
    """Something in the cloud that could be left over.

    Subclasses add what their adapter needs to delete it.

    :param metadata: as given at its creation. Says whose it is: ``nodepool_provider_name`` together with
        ``nodepool_node_id``, or with ``nodepool_build_id`` and ``nodepool_upload_id``.
    :param type: letters and digits, e.g. ``instance``; names the kind in logs and metrics.
    :param plural_metric_name: in metrics; ``type`` + ``s`` if not given.
    """

    def __init__(self, metadata: dict[str, Any] | None, type: str, plural_metric_name: str | None = None) -> None:
        self.type = type
        self.plural_metric_name = plural_metric_name or f"{type}s"
        self.metadata: dict[str, Any] = metadata or {}
        #: Of an image: False = its upload never ended. Without a record nobody can use it any more (D-3).
        self.usable = True

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} {self.type} {self.metadata}>"


class CloudResource(Resource):
    """One of a `ResourceKind`.

    :param id: by which it is deleted.
    :param name: if the cloud has one beside the id.
    :param zone: where it is, if the id does not say it.
    """

    def __init__(
        self, metadata: Mapping[str, str], type: str, id: str, name: str = "", *, zone: str = "", usable: bool = True
    ) -> None:
        super().__init__(dict(metadata), type)
        self.id = id
        self.name = name
        self.zone = zone
        self.usable = usable


# `StateMachine`: the launch or the deletion of one instance, in steps (reference/driver 8).


class StateMachine:
    """Subclasses implement `advance`.

    The framework never calls `advance` of one machine twice at once, but it advances several machines of one adapter
    at the same time, from a small pool of threads (see `Adapter.advance_threads`).
    """

    START: ClassVar[str] = "start"

    #: Optional hint, set by `advance`: seconds until the next call makes sense. None = the framework's pace: a few
    #: times a second for a young machine, about once a second later.
    next_advance_seconds: float | None = None
    #: Set by the framework before the first `advance`. Call it, from any thread, when something happened that the
    #: machine waits for: it is advanced at once. Neither blocks nor raises.
    wake: Callable[[], None] = staticmethod(lambda: None)
    #: Set by the framework on create machines. Ask it, from any thread, right before something is made that was waited
    #: for: False = the launch is given up, or this launcher was stopped for so long that another one may have taken its
    #: place; make nothing and raise an error. Neither blocks nor raises.
    wanted: Callable[[], bool] = staticmethod(lambda: True)

    #: Of a machine that deletes: does it send a deletion that had no effect again by itself? Else the framework makes
    #: another machine after a while.
    resends: ClassVar[bool] = False
    #: Set by the framework on create machines: the number of the attempt to launch the node, from 1.
    attempt: int = 1
    #: Likewise: when the record of the node was made, in seconds since the epoch; None = it does not say.
    node_created: float | None = None
    #: What the machine waits for, in the cloud's words: it is part of the error when the time is over.
    waits_for: str = ""
    #: Is ``external_id`` only a name so far, of an instance that is to be made?
    announced: bool = False

    def __init__(self) -> None:
        self.state: str = self.START
        #: A text, or a dict. A create machine sets it as soon as the cloud gives it; it is stored at once.
        self.external_id: Any = None
        self.complete = False
        #: Monotonic seconds.
        self.start_time = monotonic()

    def advance(self) -> Instance | None:
        """Go as far as is possible without waiting, and set ``complete`` at the end.

        Should not block for long: it holds up a thread of the pool, though no other machine.

        :return: of a create machine that is complete, the instance.
        :raises Exception: the attempt failed; its class decides what follows (reference/driver 13).
        """
        raise NotImplementedError


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
        return self.submit(partial(self.delete_instance, record_id))

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
        return self.submit(partial(self.get_instance, record_id))

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

    def submit(self, function: Callable[[], T], executor: Executor | None = None) -> Future[T]:
        """Make a call in a thread of the cloud.

        :param executor: a share of these threads; None = that of other calls than creations.
        """
        return (executor or self.others).submit(function)

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
        """An instance was made for a launch that nobody goes on with. Does not block."""
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


class CreationKey(NamedTuple):
    """What makes the creations of an attempt one creation, however often they are sent.

    :param attempt: of the node's launch, from 1. The instance of an earlier attempt is not that of this one.
    :param anew: how often the attempt was begun anew, see `CreationMachine.begin_anew`.
    :param node_created: see `StateMachine`: ids of nodes begin anew in a new ZooKeeper, and a cloud remembers keys. No
        launcher looks for the creation of another one by its key.
    """

    provider: str
    node_id: str
    attempt: int
    anew: int = 0
    node_created: float | None = None

    @property
    def text(self) -> str:
        """For the cloud: 35 characters, a letter first, then small letters, digits and ``-``."""
        parts = [self.provider, self.node_id, str(self.attempt), *([str(self.anew)] if self.anew else [])]
        if self.node_created is not None:
            parts.append(f"of {self.node_created:.3f}")
        whole = "\0".join(parts)
        return f"np-{hashlib.sha256(whole.encode()).hexdigest()[:32]}"

    def name(self, hostname: str) -> str:
        """For clouds where names are unique: the first creation has the name of the host, each later one its own. The
        instance of the one before, or what belongs to it, may still be there.
        """
        if self.attempt <= 1 and not self.anew:
            return hostname
        return f"{hostname}-{self.attempt}" + (f"-{self.anew}" if self.anew else "")


@dataclass(eq=False, slots=True)
class Creation:
    """One creation; made by `LostCreations.begin`.

    :param pool: of the node; ``label`` is its label. They say what an instance uses.
    :param begun_at: seconds of the clock.
    :param lost_at: since when it is known that there will be no answer; None = it was answered, or the call is under
        way.
    """

    key: CreationKey
    pool: str
    label: str
    begun_at: float
    lost_at: float | None = None


@dataclass(slots=True)
class _OfNode:
    """All creations of one node."""

    latest: Creation | None = None
    #: An instance may come that is the latest creation's.
    pending: bool = False
    #: Instances whose creation was answered, or that were adopted.
    owned: set[str] = field(default_factory=set)
    #: Until when an instance may come that nobody expects.
    late_until: float = float("-inf")


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


# `Batches`: orders of many that go to a cloud in few calls. All orders of a call end alike.

K = TypeVar("K", bound=Hashable)


class Batches(Generic[K]):
    """Gathers what is ordered while a call waits for its turn, or is under way. Thread-safe.

    ``_lock`` guards the orders; it is not held during a call. One thread at a time waits for a turn: a turn is taken
    only for orders that are there.

    :param send: makes one call: waits for its turn, asks its argument for the orders (maybe for at most so many), and
        returns what came of each; an exception = it failed; a future = it ends as that does; nothing = None. What it
        raises is the error of all of them. Blocks.
    :param executor: runs it.
    :param most: orders in a call.
    :param common: equal for orders that may go in one call.
    :param permit: asked of each order right before it is sent; what it raises is the order's error.
    :param at_once: as many calls are under way as the executor has threads; False = one after the other.
    """

    def __init__(
        self,
        send: Callable[[Callable[..., list[K]]], Mapping[K, Any]],
        executor: Executor,
        most: int,
        *,
        common: Callable[[K], Hashable] = lambda _: None,
        permit: Callable[[K], None] = lambda _: None,
        at_once: bool = False,
    ) -> None:
        self._send, self._executor, self._most = send, executor, most
        self._common, self._permit, self._at_once = common, permit, at_once
        self._lock = threading.Lock()
        #: By what they have in common; those whose turn is next are first. Those who ordered wait until it is sent.
        self._waiting: dict[Hashable, dict[K, tuple[Future[Any], list[Hold]]]] = {}
        #: Does a thread wait for a turn, or will one?
        self._running = False

    def add(self, order: K) -> Future[Any]:
        """Order something; does not block. Whoever orders the same before it is sent gets the same future."""
        # Not under the lock, because these call others.
        hold, common = Hold(), self._common(order)
        with self._lock:
            future, holds = self._waiting.setdefault(common, {}).setdefault(order, (Future(), []))
            holds.append(hold)
            begin, self._running = not self._running, True
        if begin:
            self._begin()
        return future

    def next_call(self) -> int:
        """How many orders there are for the next call."""
        with self._lock:
            return len(next(iter(self._waiting.values()), ()))

    def _begin(self) -> None:
        try:
            # For all that order.
            with working_for(()):
                self._executor.submit(self._run).add_done_callback(self._ended)
        except RuntimeError:
            # It was shut down, or the system has no more threads.
            self._fail_left()

    def _run(self) -> None:
        while self._go_on():
            self._call()
            if self._at_once:
                return

    def _go_on(self) -> bool:
        with self._lock:
            self._running = bool(self._waiting)
            return self._running

    def _call(self) -> None:
        taken: dict[K, Future[Any]] = {}
        outcome: Future[Mapping[K, Any]] = Future()
        settle((outcome,), lambda: self._send(lambda most=self._most: self._take(taken, most)))
        error = outcome.exception()
        if error is not None and not taken:
            # It failed before its turn came.
            self._take(taken, self._most)
        for order, future in taken.items():
            end_with(future, error or outcome.result().get(order))

    def _take(self, taken: dict[K, Future[Any]], most: int) -> list[K]:
        """Orders that are still wanted; those of the others hear why not."""
        while not taken:
            with self._lock:
                if not self._waiting:
                    break
                common = next(iter(self._waiting))
                group = list(self._waiting.pop(common).items())
                if group[most:]:
                    # The others come first now.
                    self._waiting[common] = dict(group[most:])
            for order, (future, holds) in group[:most]:
                for hold in holds:
                    hold.end()
                try:
                    self._permit(order)
                    taken[order] = future
                except ERRORS as error:
                    # Whoever ordered it gets it.
                    future.set_exception(as_exception(error))
        if self._at_once and self._go_on():
            # While this call is under way the next one waits for its turn.
            self._begin()
        return list(taken)

    def _ended(self, run: Future[None]) -> None:
        """Orders that are never sent, because the executor was shut down, must not be waited for."""
        if run.cancelled():
            self._fail_left()

    def _fail_left(self) -> None:
        with self._lock:
            left, self._waiting = self._waiting, {}
            self._running = False
        error = CloudUnavailableException("the provider was stopped")
        error.maybe_done = False
        for future, holds in [waiting for group in left.values() for waiting in group.values()]:
            for hold in holds:
                hold.end()
            future.set_exception(error)


def end_with(future: Future[Any], answer: Any) -> None:
    """:param answer: of `Batches`: an exception = it failed; a future = it ends as that does."""
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    elif isinstance(answer, Future):
        answer.add_done_callback(lambda one: settle((future,), one.result))
    else:
        future.set_result(answer)


# The search after an error: is there an instance of this node? One list call answers all who ask meanwhile.

#: Pauses between the looks for an instance whose creation has no answer: it may show late.
LOOK_SECONDS: Final = (1.0, 3.0)


class InstanceFinder:
    """Looks for instances whose id is not known, because the answer to their creation was lost.

    A list that was begun before the question would not do; so those who ask while a list is under way get the next one.

    :param list_instances: asks the cloud; may block and raise.
    :param executor: where it is asked.
    :param lag_seconds: of the lists, see `InstanceCloud`.
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

    def search(self, node_id: str, wake: Callable[[], None], *, may_be_late: bool) -> Generator[float, None, list[Any]]:
        """Look for the instances of a node, in steps: yields the seconds until the next one.

        :param wake: makes the next step due now.
        :param may_be_late: look more than once if there seems to be none.
        :return: external ids.
        :raises Exception: the cloud could not be asked.
        """
        pauses = list(self._pauses) if may_be_late else []
        while True:
            found = yield from ended(self.find(node_id), wake)
            if found or not pauses:
                return found
            until = monotonic() + pauses.pop(0)
            # Whatever woke us meanwhile: an instance that shows late needs the whole pause.
            while (left := until - monotonic()) > 0:
                yield left

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
