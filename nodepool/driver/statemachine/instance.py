# SPDX-License-Identifier: Apache-2.0
"""What an adapter reports of things in its cloud (reference/driver 7, 11).

First `Instance` and `Resource`, then the metadata by which Nodepool recognises them, then what a node takes over, then
the kinds of things that can be left over.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.config import DEFAULT_PORT
from nodepool.driver.framework.fact import Repeats
from nodepool.exceptions import LaunchError, RuntimeConfigurationException

if TYPE_CHECKING:
    from nodepool.driver.config import ConfigPool, LabelSettings, ProviderConfig
    from nodepool.model.node import Node, QuotaInformation


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
        return

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


# `ResourceKinds`: what can be left over in a cloud, kind by kind (rules D).
#
# Each kind says how its things are listed. Whose they are, and whether they are still wanted, the framework finds out:
# it deletes what it has seen twice without a node or an upload. So a kind that cannot be listed in one sweep is not
# taken for deleted: what it has left is only deleted later.

log = logging.getLogger("nodepool.driver.statemachine.resources")

#: What cannot be listed is told so often.
_TOLD_SECONDS: Final = 3600.0

T = TypeVar("T", bound=Resource)


@dataclass(frozen=True)
class ResourceKind(Generic[T]):
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
    found: Callable[[], Iterable[T]]
    delete: Callable[[T], object]
    idle_seconds: float = 0.0
    vital: bool = False
    types: tuple[str, ...] = ()


class ResourceKinds(Generic[T]):
    """The kinds of one provider. Called by one thread at a time; blocks.

    :param provider: its name, for the log.
    :param kinds: in the order in which things are deleted: what uses others comes before them.
    """

    def __init__(self, provider: str, kinds: Iterable[ResourceKind[T]], clock: Callable[[], float] = monotonic) -> None:
        self._provider = provider
        self._kinds = tuple(kinds)
        self._clock = clock
        self._due: dict[str, float] = {}
        self._repeats = Repeats(_TOLD_SECONDS)

    def all(self) -> Iterator[T]:
        """Everything that may be ours. Trouble with one kind does not hide the others, unless the kind is vital."""
        for kind in self._kinds:
            if self._due.get(kind.name, float("-inf")) <= self._clock():
                yield from self._list(kind)

    def delete(self, resource: T) -> None:
        """Delete a resource of `all`; as its kind says it. Raises LookupError."""
        kind = next((kind for kind in self._kinds if resource.type in (kind.name, *kind.types)), None)
        if kind is None:
            raise LookupError(f"Provider {self._provider}: resources of type {resource.type} are of no known kind")
        kind.delete(resource)

    def _list(self, kind: ResourceKind[T]) -> list[T]:
        try:
            found = list(kind.found())
        except (LaunchError, RuntimeConfigurationException) as error:
            if kind.vital:
                raise
            if self._repeats.worth_saying(kind.name):
                log.warning("Provider %s: resources of kind %s cannot be listed: %s", self._provider, kind.name, error)
            return []
        self._repeats.over(kind.name)
        # What is there must be seen in two sweeps in a row.
        ours = any(resource.metadata.get(PROVIDER_KEY) == self._provider for resource in found)
        self._due[kind.name] = self._clock() + (0.0 if ours else kind.idle_seconds)
        return found
