# SPDX-License-Identifier: Apache-2.0
"""`Driver` and `Provider`: the two classes that every driver implements (reference/driver 1, 2).

A *driver* is code, one instance a process. A *provider* is one configured cloud; the launcher makes it
from a `ProviderConfig`, starts it, asks it for request handlers and gives it released nodes. A changed
configuration makes a new provider: ``old.idle()``, ``new.start()``, ``old.stop()``.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

from nodepool.driver.config import ProviderConfig
from nodepool.driver.framework.cloud_errors import CheckResult
from nodepool.driver.framework.handler_hooks import NodeDeleter
from nodepool.driver.framework.quota_support import UNKNOWN
from nodepool.driver.framework.uploads import ListedImage
from nodepool.driver.handler import NodeRequestHandler
from nodepool.model.event import LostInstance
from nodepool.model.node import Node
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.model.status import HostStatus, LabelStatus, LimitStatus, PauseStatus
from nodepool.zk.zookeeper import ZooKeeper


class Done:
    """The end of a deletion, for those who wait for it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        #: Why it failed, after the end; None = it did not.
        self.error: Exception | None = None

    def is_alive(self) -> bool:
        """Is it still running? Does not block."""
        return not self._event.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most ``timeout`` seconds."""
        self._event.wait(timeout)

    def set(self) -> None:
        self._event.set()


#: What `Provider.startNodeCleanup` returns: a deletion under way.
CleanupTask = Done | threading.Thread


class Driver(abc.ABC):
    """Entry point of a driver package: exactly one subclass in ``<driver>/__init__.py``."""

    #: The name under ``driver:`` in the configuration.
    name: str = ""
    #: Modules of other packages that the driver imports when it needs them; without one its providers are not served.
    libraries: tuple[str, ...] = ()

    def reset(self) -> None:
        """Drop global state (such as a cached cloud configuration). Called before every configuration load."""
        return

    @abc.abstractmethod
    def getProviderConfig(self, provider: dict[str, Any]) -> ProviderConfig:
        """Make the configuration object of one provider section; it is not loaded yet."""

    @abc.abstractmethod
    def getProvider(self, provider_config: ProviderConfig) -> Provider:
        """Make the provider of a loaded configuration; it is not started yet."""


class ProviderNotifications:
    """Events that a provider may react to."""

    def nodeDeletedNotification(self, node: Node) -> None:
        """The znode of ``node`` is deleted. Must not block for long."""


class _NameOfSection:
    """The default of `Provider.name`."""

    def __get__(self, provider: Provider | None, owner: type) -> Any:
        return self if provider is None else provider.provider.name


class Provider(ProviderNotifications, abc.ABC):
    """One configured cloud.

    :param provider_config: kept as ``provider`` and compared on a reload.
    """

    #: False: at quota a request is given back instead of pausing the pool (static).
    PAUSE_AT_QUOTA: ClassVar[bool] = True
    #: False: the provider never makes machines; a request waits until all its nodes are ready (A-7).
    LAUNCHES: ClassVar[bool] = True

    #: Does a pool go on with launches of a launcher that has ended (`canResume`)? Released Nodepool does not.
    RESUMES: bool = False

    #: That of the section, unless the driver sets it.
    name: str = cast("str", _NameOfSection())
    provider: ProviderConfig
    #: Set by the launcher before `start`.
    zk: ZooKeeper | None = None

    @abc.abstractmethod
    def start(self, zk_conn: ZooKeeper) -> None:
        """Begin to work; may start threads. An exception means: absent for now, tried again later."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Take on no new work; what runs may end. Returns soon."""

    def idle(self) -> None:
        """Stop what could disturb a successor. Called before `stop` on a reload. Returns soon."""

    @abc.abstractmethod
    def join(self) -> None:
        """Wait until everything that `start` began has ended. After `stop`, on shutdown only."""

    @abc.abstractmethod
    def labelReady(self, name: Any) -> bool:
        """Could a request for this label succeed if resources were unlimited? Name or label object."""

    def idInAdvance(self, node: Node) -> Any:
        """``external_id`` that the instance of a new node will have, where it is a name that follows from the node.

        It is stored with the lock of the node: a launch whose instance has it need not store it before it makes the
        instance. None = that is not known. Must not do I/O. Released Nodepool does not call it.
        """
        return None

    def canResume(self, node: Node) -> bool:
        """Can `HandlerHooks.resume` go on with the launch of a node that is `building`, and that no one has locked?

        Else the node is deleted. Must not do I/O. Released Nodepool does not call it.
        """
        return False

    def replacementFor(self, node: Node) -> Node | None:
        """A node record to put in place of a released one at once, or None for the ordinary deletion.

        The record and the removal are written in one transaction. Must not do I/O.
        """
        return None

    def startNodeCleanup(self, node: Node) -> CleanupTask:
        """Start to delete a locked node in the background.

        Must end with the znode deleted, or with the node unlocked on failure.
        """
        if self.zk is None:
            raise RuntimeError(f"provider {self.name} was not started")
        task = NodeDeleter(self.zk, self, node)
        task.start()
        return task

    @abc.abstractmethod
    def cleanupNode(self, node_id: Any) -> None:
        """Delete or recycle one machine, by external id. Raises NotFound when it is not there any more."""

    @abc.abstractmethod
    def waitForNodeCleanup(self, node_id: Any) -> None:
        """Wait until the effect of `cleanupNode` is complete."""

    @abc.abstractmethod
    def cleanupLeakedResources(self) -> None:
        """Look for resources that no one knows and delete them. Called every 40 s, in a thread of its own."""

    @abc.abstractmethod
    def getRequestHandler(self, poolworker: Any, request: NodeRequest) -> NodeRequestHandler:
        """Make the handler of one request."""

    def uploadImage(
        self,
        provider_image: Any,
        image_name: str,
        filename: str,
        image_type: str | None = None,
        meta: dict[str, str] | None = None,
        md5: str | None = None,
        sha256: str | None = None,
    ) -> str:
        """Upload an image; blocks until the cloud can use it. Only for providers with ``manage_images``.

        An upload that fails leaves nothing behind in the cloud (U-9). `nodepool.driver.framework.uploads`
        takes how far it is.

        :param provider_image: image object of the provider's ``diskimages``.
        :param filename: of the image file.
        :param image_type: its format.
        :param meta: must be stored with the image; the provider adds its name as ``nodepool_provider_name``.
        :return: external id of the image.
        """
        raise NotImplementedError

    def deleteImage(self, name: str, id: Any) -> None:
        """Delete an uploaded image; blocks. One that is not there is no error.

        :param name: of the image in the cloud.
        :param id: what `uploadImage` returned, or the id of an image of `listImages`.
        """
        raise NotImplementedError

    def listImages(self) -> list[ListedImage]:
        """Images in the cloud with metadata of ours; may block. Released Nodepool does not call it."""
        raise NotImplementedError

    def listNodes(self) -> list[Any]:
        """Existing machines, each with ``metadata['nodepool_node_id']``."""
        raise NotImplementedError

    def pausedReason(self) -> str | None:
        """Why nothing new is launched now, e.g. because the cloud does not answer; None = all is well.

        Meanwhile the pools say that they are paused, and requests wait or go to others. Must not do I/O. When the
        answer changes, call ``wake()`` of the pool workers.
        """
        return None

    def heldLabels(self, pool_name: str) -> Mapping[str, Reason]:
        """Labels of a pool that it does not serve now, and why: what they need is out of service.

        Requests for them wait or go to others, none is declined. Must not do I/O. Asked in every pass of the pool.
        """
        return {}

    def stopWaiting(self, node_ids: Collection[str]) -> None:
        """End the launches of these nodes that wait for what no one has begun to make.

        They end with `nodepool.exceptions.LaunchHeldException`. What was begun goes on. Called again and again as long
        as nothing new is to be begun. Must not do I/O.
        """

    def waitReason(self, pool_name: str, labels: Sequence[str], free: Mapping[str, int]) -> Reason | None:
        """What a request for these labels waits for; None = for a ready node. Only asked if ``LAUNCHES`` is False.

        Must not do I/O.

        :param labels: one for each wanted node.
        :param free: label -> ready nodes of the pool that no one has.
        """
        return None

    def errorLabels(self) -> list[str]:
        """Labels that can never work here; requests for them are declined."""
        return []

    def preflight(self) -> Iterable[CheckResult]:
        """Look whether the cloud has what the configuration names, for ``nodepool check``; may block.

        The provider is not started, but ``zk`` may be set. Must change nothing anywhere. It should find all problems at
        once. Default: the driver has no checks.
        """
        return ()

    def poolCapacity(self, pool_name: str) -> Mapping[str, float]:
        """Label -> how many nodes a pool can have in all, as far as it is known; '' = of any other label.

        ``*`` = all pools of the provider together, if they share a limit.

        Asked every few seconds; must not do I/O or wait.
        """
        quota = getattr(super(), "poolCapacity", None)
        return {} if quota is None else cast("Mapping[str, float]", quota(pool_name))

    # -- for status records: any thread asks, every few seconds; none of these must do I/O or wait --

    def limitStatus(self, pool_name: str) -> Sequence[LimitStatus]:
        """Limits that hold in a pool, and what is used of them, as far as it is known."""
        # Drivers written for 11.0.0 name `QuotaSupport` after this class.
        quota = getattr(super(), "limitStatus", None)
        return [] if quota is None else cast("Sequence[LimitStatus]", quota(pool_name))

    def labelErrors(self) -> Mapping[str, LabelStatus]:
        """Label -> why it cannot be served now, and since when; 0 = that is not known."""
        quota = getattr(super(), "labelErrors", None)
        known: Mapping[str, LabelStatus] = {} if quota is None else quota()
        return {label: known.get(label, UNKNOWN) for label in self.errorLabels()}

    def pauseStatus(self) -> PauseStatus | None:
        """`pausedReason` with what else is known of it; None = all is well."""
        text = self.pausedReason()
        return None if text is None else PauseStatus(ReasonCode.PROVIDER_CIRCUIT_OPEN.value, text)

    def lostInstances(self) -> Sequence[LostInstance]:
        """Nodes whose instance has ended although no one deleted it, found since the last call."""
        return []

    def missingInstances(self) -> Mapping[str, float]:
        """Nodes that may be lost, or in another place -> when they count as lost, in seconds since the epoch (D-9)."""
        return {}

    def otherInstallations(self) -> Mapping[str, int]:
        """Other installation -> how many things it has in the cloud for a provider of the same name (D-10)."""
        return {}

    def hostStatus(self) -> Sequence[HostStatus]:
        """The hosts of a provider that does not make its machines."""
        return []
