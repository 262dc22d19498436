# SPDX-License-Identifier: Apache-2.0
"""All that the framework knows of a cloud: `Adapter` and `StateMachine`, which a driver implements (reference/driver).

Last the two signatures of `Adapter.getCreateStateMachine`.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.config import LabelSettings, ProviderConfig
    from nodepool.driver.framework.cloud_errors import CheckResult
    from nodepool.driver.framework.rate import SharedThreads
    from nodepool.driver.framework.uploads import ListedImage
    from nodepool.driver.statemachine.instance import Instance, Resource
    from nodepool.driver.statemachine.instance_cloud import InstanceCloud
    from nodepool.driver.statemachine.lost_creations import Creation

#: How old a list of instances may be that `Adapter.listResources` uses. Less than the time between two looks for leaks:
#: what is seen in both is seen in two lists.
SWEEP_LIST_SECONDS: Final = 5.0

#: What `Adapter` methods get to log with: a logger that adds the ids of node, request and event.
Log = logging.LoggerAdapter[logging.Logger]


def _ignore(*_: Any) -> None:
    """Stands for the framework until it uses the adapter."""


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
    #: What happened so many seconds before `listInstances` begins may be missing in what it gives.
    lag_seconds: float = 0.0
    #: Threads in which the adapter makes its calls, for the framework to use as well. None = it has none of its own.
    shared_threads: SharedThreads | None = None
    #: Set by the framework. Call it, from any thread, when a creation of `unansweredCreations` turned out to have made
    #: nothing, so that it counts no more: `InstanceCloud.on_room`. Neither blocks nor raises.
    on_room: Callable[[], None] = staticmethod(_ignore)
    #: Set by the framework. Call it, from any thread, when an instance ended that was not deleted here, with the id of
    #: its node, its own id as `InstanceCloud.record_id` gives it, the cloud's code, and a text. Neither blocks nor
    #: raises.
    on_lost: Callable[[str, str, str, str], None] = staticmethod(_ignore)
    #: Does the driver count instances itself that lists show as ended (reference/metrics 9)?
    counts_ends: ClassVar[bool] = False
    #: What its machines share; None = it is not built on that.
    instance_cloud: InstanceCloud[Any] | None = None

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

        What it shows must not be older than the call, but for ``lag_seconds``: it is asked for instances whose creation
        gave no answer.
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
        instance before they make it (`StateMachine.announced`): whoever finds the node after a crash deletes this one,
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
        """Delete an uploaded image; blocks. One that is gone already is no error."""
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
        return

    def preflight(self) -> Iterable[CheckResult]:
        """Look whether the cloud has what the configuration names, see `Provider.preflight`; may block.

        Must change nothing. Uploads of the images of labels are looked at by the framework. Released Nodepool does not
        call it.
        """
        return ()

    def stop(self) -> None:
        """Release what is held; nothing is called afterwards."""
        return


# `StateMachine`: the launch or the deletion of one instance, in steps (reference/driver 8).


def _no_wake() -> None:
    """Stands for the framework until it drives the machine."""


def _always() -> bool:
    """Stands for the framework until it drives the machine."""
    return True


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
    wake: Callable[[], None] = staticmethod(_no_wake)
    #: Set by the framework on create machines. Ask it, from any thread, right before something is made that was waited
    #: for: False = the launch is given up, or this launcher was stopped for so long that another one may have taken its
    #: place; make nothing and raise an error. Neither blocks nor raises.
    wanted: Callable[[], bool] = staticmethod(_always)

    #: Of a machine that deletes: does it send a deletion that had no effect again by itself? Else the framework makes
    #: another machine after a while.
    resends: ClassVar[bool] = False
    #: Set by the framework on create machines: the number of the attempt to launch the node, from 1.
    attempt: int = 1
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


# The two signatures of `Adapter.getCreateStateMachine` (reference/driver 14).

#: Parameters of the longest of them.
PARAMETERS: Final = ("hostname", "label", "image_external_id", "metadata", "request", "az", "log")


def create_machine_of(provider_name: str, adapter: Adapter) -> Callable[..., StateMachine]:
    """A function of `PARAMETERS` that calls an adapter, whichever of the signatures it has."""
    signature = adapter.getCreateStateMachine
    left_out: set[str] = set() if wants_request(signature) else {"request", "az"}
    if list(inspect.signature(signature).parameters) == ["hostname", "label", "metadata", "log"]:
        # The example of 11.0.0; who copied it has no uploaded images.
        left_out.add("image_external_id")
    taken = [position for position, name in enumerate(PARAMETERS) if name not in left_out]

    def make(*arguments: Any) -> StateMachine:
        given = (arguments[position] for position in taken)
        machine: StateMachine = gateway.get_create_state_machine(provider_name, adapter, *given)
        return machine

    return make


def wants_request(make: Callable[..., Any]) -> bool:
    """Does it take ``request`` and ``az`` before ``log``?"""
    parameters = list(inspect.signature(make).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if {"request", "az"} & {p.name for p in positional}:
        return True
    return len(positional) >= 7 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
