# SPDX-License-Identifier: Apache-2.0
"""One configured cloud, driven through its `Adapter`.

First the transfers of its images, then the provider (`StateMachineProvider`), what ``nodepool check`` finds out, and
the driver.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from nodepool import exceptions
from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.config import ProviderConfig
from nodepool.driver.framework.cloud_errors import CheckResult, failure
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.framework.rate import Flow, HeldTime, ended, working_for
from nodepool.driver.framework.uploads import ListedImage
from nodepool.driver.interface import Driver, Provider
from nodepool.driver.statemachine import instance, leaks
from nodepool.driver.statemachine.adapter import Adapter, Resource
from nodepool.driver.statemachine.deletion import DeletingProvider
from nodepool.driver.statemachine.instance import diskimage_of
from nodepool.driver.statemachine.launch import StateMachineHandler
from nodepool.driver.statemachine.leaks import ALIVE, LeakSweep, LostInstances
from nodepool.guard import Guard
from nodepool.metrics import reports
from nodepool.model.event import LostInstance
from nodepool.model.reasons import ReasonCode
from nodepool.model.status import PauseStatus
from nodepool.plan.attention import look_at_place, of_missing
from nodepool.plan.observed import OTHERS, end_of_other, of_other
from nodepool.zk.zookeeper import ZooKeeper

# Images of a provider on the framework (rules U, D-1, D-3).


class RunningTransfers:
    """Uploads and deletions of images under way; a context around each.

    Those of a provider that was replaced are finished, as its launches are (L-17): an upload may have taken hours by
    then. ``_lock`` guards all; it is not held across calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._stop: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self._count(1)

    def __exit__(self, *_: object) -> None:
        self._count(-1)

    def stop_after(self, stop: Callable[[], None]) -> None:
        """Have something called when none runs any more; at once, if none does. Does not block for them."""
        self._stop = stop
        self._count(0)

    def _count(self, change: int) -> None:
        with self._lock:
            self._running += change
            over = not self._running
        if over:
            self.stop_now()

    def stop_now(self) -> None:
        """No one waits any more for those that run."""
        with self._lock:
            stop, self._stop = self._stop, None
        if stop is not None:
            stop()


class StateMachineProvider(DeletingProvider):
    """Owns launches and deletions: tasks of ``scheduler``.

    :param adapter: of the driver.
    """

    handler_class = StateMachineHandler

    def __init__(self, adapter: Adapter, provider_config: ProviderConfig) -> None:
        super().__init__(adapter, provider_config)
        cloud = getattr(adapter, "instance_cloud", None)
        if cloud is not None:
            self.RESUMES = cloud.resumes_launches
            cloud.on_room, cloud.on_lost = self._room_came_free, self._instance_ended
        self.transfers = RunningTransfers()
        #: Which nodes are in doubt, or have lost their instance?
        self.lost = LostInstances(self, self.log, self.lag_seconds)
        self._leaks = LeakSweep(self, self.log, lambda: self.lost)
        self._leak_look: Flow | None = None
        #: How often the circuit breaker opened.
        self._openings = 0

    # -- life --

    def start(self, zk_conn: ZooKeeper) -> None:
        """Begin to ask for the limits of the cloud; blocks for ZooKeeper only."""
        self._zk = self.zk = zk_conn
        if not instance.of_installation():
            # Each sweep asks again; a provider that is started anew must not wait for ZooKeeper.
            self._know_installation()
        if zk_conn.cache is not None:
            self._limits.refresh()

    def _know_installation(self) -> None:
        """Before anything is made or deleted. Blocks for a round trip. Raises ZKException."""
        # That of a driver written for 11.0.0 may be one of its own.
        ids = getattr(self.zk, "installation_ids", None)
        if ids is not None:
            instance.know_installation(ids())

    def idle(self) -> None:
        """Look for leaks no more: the successor does. Any thread; does not block."""
        with self._lock:
            self._idle.set()
            look = self._leak_look
        if look is not None:
            self.scheduler.wake(look)

    def stop(self) -> None:
        """What runs is finished in the background (L-17), then everything is released. Does not block."""
        self.idle()
        self.scheduler.drain()

    def join(self) -> None:
        """What still runs is left as it is: who comes next finds it (G-14)."""
        self.scheduler.abandon()
        self.scheduler.join()
        self.transfers.stop_now()
        self.scans.join()
        self.checks.join()
        self._threads.close()

    def _ended(self) -> None:
        """Nothing runs any more. In the scheduler's thread."""
        self.scans.stop()
        self.checks.stop()
        self._threads.ask_no_more()
        self.transfers.stop_after(lambda: gateway.stop_adapter(self.name, self.adapter))

    # -- the cloud has trouble --

    def _circuit_changed(self, begins: bool) -> None:
        reports.report_circuit_breaker(self.name, begins)
        if begins:
            self._openings += 1
            self.scheduler.add(Flow(self.scheduler, partial(self._probe, self._openings)))
        self.wake_workers()

    def _probe(self, opening: int, wake: Callable[[], None]) -> Iterator[float]:
        """Ask a cloud whose circuit breaker is open whether it is back.

        :param opening: when it opens again, that has a probe of its own.
        """
        repeats = Repeats()
        # The opening was logged just now.
        repeats.worth_saying(self.name)
        while opening == self._openings and (wait := self.calls.probe_due()) is not None:
            if wait > 0:
                yield wait
            elif self.idle_now and len(self.scheduler) == 1:
                # It was replaced, and nothing that it began is left: its successor asks.
                return
            else:
                # A cloud that is away may let the call wait, and the one thread of some drivers goes on with deletions.
                yield from ended(self._threads.probes.submit(self._ask_the_cloud, repeats), wake)

    def _ask_the_cloud(self, repeats: Repeats) -> None:
        """One call; blocks."""
        level = logging.WARNING if repeats.worth_saying(self.name) else logging.DEBUG
        with Guard(self.log, "Provider %s still fails", self.name, level=level, traceback=False):
            self.calls.list_instances()

    def _room_came_free(self) -> None:
        """A creation without an answer counts no more."""
        self.forget_unanswered()
        self.wake_workers()

    def pauseStatus(self) -> PauseStatus | None:
        """`pausedReason`, since when, and when the cloud is asked again."""
        if (text := self.pausedReason()) is None:
            return None
        return PauseStatus(ReasonCode.PROVIDER_CIRCUIT_OPEN.value, text, *self.calls.circuit_times)

    # -- images: these block as long as the cloud does; any thread, several at once --

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
        """See `nodepool.driver.interface.Provider.uploadImage`. The name of the provider is added to the metadata."""
        with self.transfers, working_for((HeldTime(),)):
            return gateway.upload_image_to_cloud(
                self.name,
                self.adapter,
                provider_image,
                image_name,
                filename,
                image_format=image_type,
                metadata={**(meta or {}), instance.PROVIDER_KEY: self.name, **instance.of_installation()},
                md5=md5,
                sha256=sha256,
            )

    def deleteImage(self, name: str, id: Any) -> None:
        """Delete an image; one that is not there is no error.

        :param id: what the upload gave, or what `listImages` shows.
        """
        with self.transfers, working_for((HeldTime(),)), contextlib.suppress(exceptions.NotFound):
            if isinstance(id, Resource):
                gateway.delete_resource(self.name, self.adapter, id)
            else:
                gateway.delete_image_in_cloud(self.name, self.adapter, id)

    def listImages(self) -> list[ListedImage]:
        """Images with metadata of ours. Adapters written for 11.0.0 show them among their resources.

        :raises NotImplementedError: the adapter lists neither.
        """
        try:
            return gateway.list_images_in_cloud(self.name, self.adapter)
        except NotImplementedError:
            # An adapter of the released interface.
            found = gateway.list_resources(self.name, self.adapter)
        return [
            ListedImage(resource, metadata=resource.metadata, usable=getattr(resource, "usable", True))
            for resource in found
            if instance.upload_of(resource.metadata, self.name) is not None
        ]

    # -- nodepool check --

    def preflight(self) -> Iterator[CheckResult]:
        """What the adapter says, whether the images of labels are uploaded, whether another installation has instances
        of the provider's name, and whether the instances of the nodes are there. Blocks as long as the adapter does.
        """
        self._know_installation()
        found = gateway.preflight_in_cloud(self.name, self.adapter)
        yield from found
        # Without ZooKeeper nothing else can be looked at; of a cloud in trouble the first errors say it all.
        if self.zk is not None:
            yield from _upload_checks(self)
            if all(result.ok for result in found):
                yield from _instance_checks(self)

    # -- leaks --

    def listNodes(self) -> list[Any]:
        return self.calls.list_instances()

    def cleanupLeakedResources(self) -> None:
        again = True
        try:
            again = self.sweep_leaks()
        finally:
            if again:
                self.look_for_leaks_soon(1)

    def in_doubt(self, node_id: str) -> bool:
        return self.lost.in_doubt(node_id)

    def lostInstances(self) -> Sequence[LostInstance]:
        return self.lost.take()

    def missingInstances(self) -> Mapping[str, float]:
        return self.lost.held

    def otherInstallations(self) -> Mapping[str, int]:
        return self._leaks.others

    def _instance_ended(self, node_id: str, record_id: str, code: str, text: str) -> None:
        """Called by lists and watches. Any thread; does not block."""
        adapter, cloud = self.adapter, self.adapter.instance_cloud
        node = None if self.zk is None else self.zk.getNode(node_id, only_cached=True)
        if cloud is None or node is None or node.state not in ALIVE or self.idle_now:
            return
        if cloud.record_id(node.external_id) == record_id:
            self._threads.asks.submit(self.lost.ended, node_id, code, text, counted=adapter.counts_ends)

    def sweep_leaks(self) -> bool:
        """Look for leaks now; blocks. Is another look worth while, soon: something seems to be left over?"""
        if self.idle_now:
            return False
        if self.calls.circuit_open:
            self.log.debug("Not looking for leaks: %s", self.calls.circuit_reason)
            return True
        # An operator may have adopted what an earlier installation made.
        self._know_installation()
        return self._leaks.sweep()

    def look_for_leaks_soon(self, looks: int = 2) -> None:
        """Something may be left over: do not wait for the regular sweep. Any thread; does not block."""
        with self._lock:
            if self._leak_look is not None or self.idle_now:
                return
            self._leak_look = Flow(self.scheduler, partial(self._look_for_leaks, looks))
            # Under the lock: `idle` wakes it.
            self.scheduler.add(self._leak_look)

    def _look_for_leaks(self, looks: int, wake: Callable[[], None]) -> Iterator[float]:
        """Look for leaks soon, and soon again as long as something new seems to be left over.

        :param looks: how often at most when looks fail.
        """
        again = True
        while again:
            until = monotonic() + leaks.LOOK_AGAIN_SECONDS
            # The end of a look may wake us only now: what two looks show must be in two lists.
            while (left := until - monotonic()) > 0 and not self.idle_now:
                yield left
            if self.idle_now:
                # Nothing shall wait for a look that comes to nothing.
                break
            # While the cloud is away, what is left over stays.
            if not self.calls.circuit_open:
                looks -= 1
                # It may take minutes: the one thread of some drivers shall not wait for it.
                again = yield from ended(self._threads.asks.submit(self._sweep, looks > 0), wake)
        with self._lock:
            self._leak_look = None

    def _sweep(self, otherwise: bool) -> bool:
        """One look; blocks. Is another one worth while? If it fails, ``otherwise``: the regular sweep comes, too."""
        with Guard(self.log, "Leaked resources cannot be looked for", level=logging.WARNING, traceback=False):
            return self.sweep_leaks()
        return otherwise


# What ``nodepool check`` finds out beside the driver.


def _instance_checks(provider: StateMachineProvider) -> Iterator[CheckResult]:
    """D-9, D-10. Other resources are not listed: some drivers clean up meanwhile."""
    name, lost = provider.name, provider.lost
    alive = lost.alive()
    try:
        listed = provider.calls.list_instances()
    except (exceptions.LaunchError, exceptions.RuntimeConfigurationException) as error:
        yield failure(OTHERS, error)
        return
    for other, count in sorted(instance.others((one.metadata for one in listed), name).items()):
        yield CheckResult(OTHERS, True, of_other(name, other, count), end_of_other(name, other))
    missing = sorted(lost.missing(alive, listed))
    if missing:
        yield CheckResult("instances of nodes", True, of_missing(name, missing), look_at_place())


def _upload_checks(provider: StateMachineProvider) -> Iterator[CheckResult]:
    """One result for each image that labels of the provider use."""
    labels: dict[str, list[str]] = {}
    for pool in provider.provider.pools.values():
        # Of a provider without labels of its own these are names.
        found = pool.labels.values() if isinstance(pool.labels, dict) else ()
        for label in found:
            image = diskimage_of(label)
            if image is not None:
                labels.setdefault(str(image.name), []).append(label.name)
    for name, users in labels.items():
        subject = f"diskimage {name}"
        upload = provider.newest_upload(name)
        if upload is None:
            text = f"there is no ready upload of it for the label(s) {', '.join(dict.fromkeys(users))}"
            yield CheckResult(
                subject, False, text, "look with nodepool dib-image-list and image-list why; is it paused?"
            )
        else:
            yield CheckResult(subject, True, f"build {upload.build_id} is uploaded")


# `StateMachineDriver`: entry point of drivers that have an `Adapter` (reference/driver 10).


class StateMachineDriver(Driver):
    """Subclasses implement `getProviderConfig` and `getAdapter`."""

    provider_class: ClassVar[type[StateMachineProvider]] = StateMachineProvider

    @abc.abstractmethod
    def getProviderConfig(self, provider: dict[str, Any]) -> ProviderConfig:
        """Make the configuration object of one provider section; it is not loaded yet."""

    @abc.abstractmethod
    def getAdapter(self, provider_config: ProviderConfig) -> Adapter:
        """Make the adapter of a loaded configuration. Must not ask the cloud yet."""

    def getProvider(self, provider_config: ProviderConfig) -> Provider:
        """Wires adapter and provider; a driver that needs ZooKeeper itself overrides it."""
        return self.provider_class(self.getAdapter(provider_config), provider_config)


class CloudDriver(StateMachineDriver):
    """The same by the classes of a driver."""

    config_class: ClassVar[type[ProviderConfig]]
    adapter_class: ClassVar[type[Adapter]]

    def getProviderConfig(self, provider: dict[str, Any]) -> ProviderConfig:
        return self.config_class(provider)

    def getAdapter(self, provider_config: Any) -> Adapter:
        return self.adapter_class(provider_config)
