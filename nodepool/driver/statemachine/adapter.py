# SPDX-License-Identifier: Apache-2.0
"""All that the framework knows of a cloud (reference/driver 7 to 9).

First what an adapter says of instances and of other things, then the machine that launches or deletes an instance in
steps, then `Adapter`, which a driver implements. Last what can be left over (`ResourceKinds`).
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.config import LabelSettings, ProviderConfig
from nodepool.driver.framework.cloud_errors import CheckResult
from nodepool.driver.framework.uploads import ListedImage
from nodepool.model.node import QuotaInformation

#: What `Adapter` methods get to log with: a logger that adds the ids of node, request and event.
Log = logging.LoggerAdapter[logging.Logger]
#: How old a list of instances may be that `Adapter.listResources` uses. Less than the time between two looks for leaks:
#: what is seen in both is seen in two lists.
SWEEP_LIST_SECONDS: Final = 5.0


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
        #: Of an image: False = its upload never ended. Without a record no one can use it any more (D-3).
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
    :param begun_at: monotonic seconds.
    :param lost_at: since when it is known that there will be no answer; None = it was answered, or the call is under
        way.
    """

    key: CreationKey
    pool: str
    label: str
    begun_at: float
    lost_at: float | None = None


# `Adapter`: one cloud.


class Adapter:
    """One configured cloud.

    The framework calls it from several threads, never while holding a lock, and outlives every exception. What is not
    overridden and has no default raises NotImplementedError. A driver that can tell that its cloud does not answer
    raises `nodepool.exceptions.CloudUnavailableException`: when that goes on, the circuit breaker opens.

    :param provider_config: the `ProviderConfig` of the driver.
    """

    #: How many calls of `StateMachine.advance` may run at once. 1 = all in turn, in one thread, as in 11.0.0. More for
    #: machines that are safe in several threads: a call that takes long then holds up fewer of the others.
    advance_threads: ClassVar[int] = 1
    #: Does the driver count instances itself that lists show as ended (reference/metrics 9)?
    counts_ends: ClassVar[bool] = False
    #: What its machines share; the framework uses its threads as well. None = it is not built on that.
    instance_cloud: Any = None

    def __init__(self, provider_config: ProviderConfig) -> None:
        pass

    def getCreateStateMachine(self, *args: Any, **kwargs: Any) -> StateMachine:
        """Make the machine that launches one instance. Should not block.

        Two signatures are known; the names of the parameters decide which one is used:
        ``(hostname, label, image_external_id, metadata, log)`` and
        ``(hostname, label, image_external_id, metadata, request, az, log)``.

        * ``hostname``: at most 15 characters;
        * ``label``: label object of the pool, see `nodepool.driver.config.LabelSettings`;
        * ``image_external_id``: of the newest upload of ``label.diskimage``; None = use ``label.cloud_image``;
        * ``metadata``: dict of texts; must be stored on the instance and on all that is made with it;
        * ``request``: the `NodeRequest` that causes the launch; ``az``: availability zone to use, or None;
        * ``log``: logger for what concerns this node.
        """
        raise NotImplementedError

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> StateMachine:
        """Make the machine that deletes one instance completely. Should not block.

        An id that does not exist (any more) is not an error: the machine completes, or raises `NotFound`.
        """
        raise NotImplementedError

    def listInstances(self) -> Iterable[Instance]:
        """All visible instances, also those of others (for quota). May block.

        What it shows must not be older than the call, but for `InstanceCloud.lag_seconds`: it is asked for instances
        whose creation gave no answer.
        """
        raise NotImplementedError

    def unansweredCreations(self) -> Iterable[Creation]:
        """Creations that may have made an instance which no list has shown yet. They count against the limits.

        `InstanceCloud.unanswered` knows them. Must not block. Released Nodepool does not call it. Default: none.
        """
        return ()

    def listResources(self) -> Iterable[Resource]:
        """All visible things that could be left over. Called every 40 s; may block.

        `listInstances` is called right before it: instances may be taken from that list, see `SWEEP_LIST_SECONDS`.
        """
        raise NotImplementedError

    def suspectsLeaks(self) -> bool:
        """Would another `listResources`, some seconds after the last one, find or remove something more?

        For what carries no metadata, so that the adapter must see it twice by itself. Must not block. Released Nodepool
        does not call it.
        """
        return False

    def idInAdvance(self, hostname: str, label: Any, metadata: dict[str, str]) -> Any:
        """``external_id`` that the first instance of a node will have, where it is a name that follows from these.

        It is stored with the lock of the node, before there is a machine. Only for machines that say the id of each
        instance before they make it (`StateMachine.announced`): who finds the node after a crash deletes this one,
        and looks for no other. Must not block. Released Nodepool does not call it. Default: None, the machine says it.

        :param hostname: as given to `getCreateStateMachine`; ``label`` and ``metadata``, too.
        """
        return None

    def whyLost(self, external_id: Any) -> tuple[str, str] | None:
        """Why the instance of a node that is ready or in use is not listed any more: the cloud's code, and a text.

        Must not block. Released Nodepool does not call it. Default: None, that is not known.
        """
        return None

    def isGone(self, external_id: Any) -> bool | None:
        """Ask the cloud for one instance that its lists do not show: is there none? May block.

        Only the cloud's own word that there is none counts (404); an error is raised. Released Nodepool does not call
        it. Default: what the `InstanceCloud` says; without one None, the cloud cannot be asked for one instance.
        """
        return None if self.instance_cloud is None else self.instance_cloud.is_gone(external_id)

    def deleteResource(self, resource: Resource) -> None:
        """Delete one leaked thing of `listResources`; may block."""
        raise NotImplementedError

    def getQuotaLimits(self) -> QuotaInformation:
        """The limits of the whole cloud project. May block. Default: none."""
        return QuotaInformation(default=math.inf)

    def getQuotaForLabel(self, label: LabelSettings) -> QuotaInformation:
        """What one node of a label uses. May block. Default: one instance.

        :raises RuntimeConfigurationException: the label can never work.
        """
        return QuotaInformation(instances=1)

    def getAZs(self) -> Sequence[str | None]:
        """Availability zones; one is picked at random for each request. May block. Default: no zones."""
        return [None]

    def labelReady(self, label: LabelSettings) -> bool:
        """Is the cloud image of a label there? Not asked for labels with a diskimage: the framework knows uploads."""
        return True

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
        """Upload an image; blocks until the cloud can use it.

        :param provider_image: image object of the provider's ``diskimages``.
        :param filename: of the image file.
        :param metadata: must be stored with the image, with the properties of ``provider_image``, over which its keys
            ``nodepool_`` win.
        :return: external id of the image.
        """
        raise NotImplementedError

    def deleteImage(self, external_id: str) -> None:
        """Delete an uploaded image; blocks. One that is not there is no error."""
        raise NotImplementedError

    def listImages(self) -> Iterable[ListedImage]:
        """Images in the cloud with metadata of ours, uploads that are not complete included; may block.

        By their ids of build and upload the builder finds what an abandoned upload left (R-4). Released Nodepool does
        not call it. Without it such images are looked for in `listResources`.
        """
        raise NotImplementedError

    def getConsoleLog(self, label: LabelSettings, external_id: Any) -> str | None:
        """What an instance wrote to its console; may block. None = nothing."""
        raise NotImplementedError

    def notifyNodescanFailure(self, label: LabelSettings, external_id: Any) -> None:
        """The connection check of an instance failed. Must not block for long."""

    def preflight(self) -> Iterable[CheckResult]:
        """Look whether the cloud has what the configuration names, see `Provider.preflight`; may block.

        Must change nothing. Uploads of the images of labels are looked at by the framework. Released Nodepool does not
        call it.
        """
        return ()

    def stop(self) -> None:
        """Release what is held; nothing is called afterwards."""


@dataclass(frozen=True, eq=False)
class ImageFile:
    """A file to upload: the arguments of `Adapter.uploadImage`.

    :param image: image object of the provider's ``diskimages``.
    """

    image: Any
    name: str
    path: str
    format: str | None
    metadata: dict[str, str]
    md5: str | None
    sha256: str | None


class CloudImages:
    """Uploaded images of one provider. All methods block. This one stands for a cloud that takes none."""

    def upload(self, file: ImageFile) -> str:
        """See `Adapter.uploadImage`."""
        # As `Adapter`: how a driver says that its cloud takes no images.
        raise NotImplementedError

    def delete(self, image_id: str) -> None:
        """See `Adapter.deleteImage`."""
        raise NotImplementedError

    def listed(self) -> Iterable[ListedImage]:
        """See `Adapter.listImages`."""
        raise NotImplementedError
