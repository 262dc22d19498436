# SPDX-License-Identifier: Apache-2.0
"""Searches for leaked resources in the cloud, and deletes them (rules D-2 to D-5)."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from concurrent.futures import Executor, Future
from logging import WARNING
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver import gateway
from nodepool.driver.statemachine import instance as statemachine_instance
from nodepool.driver.statemachine.launch import CloudProviderView
from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS
from nodepool.exceptions import NotFound
from nodepool.guard import Guard
from nodepool.metrics import reports
from nodepool.plan.launch import meaning
from nodepool.plan.retries import SeenTwice

if TYPE_CHECKING:
    from nodepool.driver.interface import CleanupTask
    from nodepool.driver.statemachine.instance import Instance, Log, Resource


#: Seconds until another look where something seems to be left over, or may be soon.
LOOK_AGAIN_SECONDS: Final = 10.0


class LeakSweep:
    """A resource is leaked if two consecutive sweeps find it without a node. ``_busy`` is held during a sweep."""

    def __init__(self, provider: CloudProviderView, log: Log) -> None:
        self._provider = provider
        self.log = log
        self._left_over: SeenTwice[Hashable] = SeenTwice()
        self._extra: SeenTwice[Hashable] = SeenTwice()
        #: Leaked resources that were deleted, and counted, but are still listed.
        self._counted: set[Hashable] = set()
        #: Deletions of second instances that are still listed.
        self._removals: dict[Hashable, CleanupTask] = {}
        #: Other installation -> things that it made for a provider of our name. Replaced as a whole.
        self.others: Mapping[str, int] = {}
        #: Those that were logged.
        self._logged: set[str] = set()
        #: Is a node's instance missing that was there before?
        self._missed = False
        self._busy = threading.Lock()

    def sweep(self) -> bool:
        """One sweep, unless one runs. Blocks; raises what the driver raises when it cannot list.

        :return: something seems to be left over that did not before: another sweep, soon, will tell.
        """
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._sweep()
            return (
                self._left_over.new
                or self._extra.new
                or self._missed
                or gateway.suspects_leaks(self._provider.name, self._provider.adapter)
            )
        finally:
            self._busy.release()

    def _sweep(self) -> None:
        # First the cloud, then ZooKeeper: a node or upload is stored before anything is made for it. In this order both
        # lists cost one: drivers may take the instances among the resources from the list before.
        alive = self._provider.lost.alive()
        instances = self._provider.calls.list_instances()
        resources = self._provider.calls.list_resources()
        self._tell_foreign(resources)
        leaked = self._unknown(resources)
        certain = self._left_over.look(key for _, key in leaked)
        self._counted &= {_identity(resource) for resource, _ in leaked}
        deleted = 0
        for resource, key in leaked:
            if key in certain and not self._provider.idle_now:
                deleted += self._delete(resource)
        self._sweep_extra(instances)
        self._missed = self._provider.lost.look(alive, instances)
        if deleted:
            # They counted as used by others.
            self._provider.invalidateQuotaCache()

    def _tell_foreign(self, resources: list[Resource]) -> None:
        """D-10: what another installation made is left to it, and reported once for each."""
        name = self._provider.name
        self.others = others = statemachine_instance.others((resource.metadata for resource in resources), name)
        for other in sorted(others.keys() - self._logged):
            self.log.warning(
                "Provider %s: %d thing(s) in its cloud belong to installation %s, not to this one (%s): they are left",
                *(
                    name,
                    others[other],
                    other,
                    statemachine_instance.of_installation().get(statemachine_instance.INSTALLATION_KEY),
                ),
            )
        self._logged |= others.keys()

    def _unknown(self, resources: list[Resource]) -> list[tuple[Resource, Hashable]]:
        """Resources of this provider whose node or upload is not in ZooKeeper, and a key to know them again."""
        name = self._provider.name
        nodes: set[str] | None = None
        uploads: set[tuple[str, str]] | None = None
        found: list[tuple[Resource, Hashable]] = []
        for resource in resources:
            node_id = statemachine_instance.node_id_of(resource.metadata, name)
            upload = statemachine_instance.upload_of(resource.metadata, name)
            if node_id is not None:
                if nodes is None:
                    nodes = self._provider.node_ids()
                if node_id not in nodes:
                    found.append((resource, (resource.type, node_id)))
            elif upload is not None and self._may_go(resource):
                if uploads is None:
                    uploads = self._provider.upload_ids()
                if upload not in uploads:
                    found.append((resource, (resource.type, *upload)))
        return found

    def _may_go(self, resource: Resource) -> bool:
        """D-3: records of images may be lost, and imported again; then the images are wanted."""
        wanted = getattr(self._provider.provider, "clean_leaked_images", False)
        # Drivers written for 11.0.0 need not have called the constructor of the base.
        return wanted is True or not getattr(resource, "usable", True)

    def _delete(self, resource: Resource) -> int:
        """Delete one; returns how many went."""
        self.log.warning("Deleting leaked %s, its metadata is %s", resource.type, resource.metadata)
        try:
            gateway.delete_resource(self._provider.name, self._provider.adapter, resource)
        except NotFound:
            return 0
        except Exception as error:
            # The others are deleted all the same.
            self.log.warning(
                "Leaked %s could not be deleted, trying again at the next sweep: %s",
                *(resource.type, error),
                exc_info=None if meaning(error).expected else error,
            )
            return 0
        if _identity(resource) not in self._counted:
            self._counted.add(_identity(resource))
            reports.report_leaks(self._provider.name, resource.plural_metric_name)
        return 1

    def _sweep_extra(self, listed: list[Instance]) -> None:
        """Second instances of a node: both creations worked, and one answer was lost."""
        by_node: dict[str, list[Instance]] = {}
        for instance in listed:
            node_id = statemachine_instance.node_id_of(instance.metadata, self._provider.name)
            if node_id is not None and not instance.deleted:
                by_node.setdefault(node_id, []).append(instance)
        extra: dict[Hashable, Any] = {}
        for node_id, instances in by_node.items():
            if len(instances) > 1:
                used = self._provider.external_id_of(node_id)
                ids = [instance.external_id for instance in instances]
                if used is not None and used in ids:
                    extra.update({(node_id, str(found)): found for found in ids if found != used})
        self._removals = {key: removal for key, removal in self._removals.items() if key in extra}
        for key in self._extra.look(extra):
            if not self._provider.idle_now:
                self._delete_extra(key, extra[key])

    def _delete_extra(self, key: Hashable, external_id: Any) -> None:
        """Delete a second instance, unless that is under way; counted once."""
        removal = self._removals.get(key)
        if removal is not None and removal.is_alive():
            return
        self.log.warning("Deleting instance %s: it is a second one of its node", external_id)
        self._removals[key] = self._provider.delete_orphan(external_id, self._provider.log)
        if removal is None:
            reports.report_leaks(self._provider.name, "instances")


def _identity(resource: Resource) -> Hashable:
    """To know a resource again in the next list; adapters have a name for it, mostly ``id``."""
    told = getattr(resource, "id", None) or getattr(resource, "name", None)
    return resource.type, str(told), str(sorted(resource.metadata.items(), key=str))


class LeakLook:
    """A task of the scheduler: looks for leaks soon, and soon again as long as something new seems to be left over.

    :param executor: runs the looks, which may take minutes: the one thread of some drivers shall not wait for them.
    :param looks: how often at most when looks fail.
    """

    def __init__(self, provider: CloudProviderView, executor: Executor, looks: int) -> None:
        self._provider = provider
        self._executor = executor
        self._looks = looks
        self._begun = False
        self._look: Future[bool] | None = None

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.scheduler.Task`."""
        if self._look is not None:
            if not self._look.done():
                return WHEN_WOKEN_SECONDS
            again, self._look = self._look.result(), None
            if again:
                return LOOK_AGAIN_SECONDS
            self._provider.leak_look_ended()
            return None
        if self._provider.idle_now:
            # Nothing shall wait for a look that comes to nothing.
            self._provider.leak_look_ended()
            return None
        if not self._begun:
            self._begun = True
            return LOOK_AGAIN_SECONDS
        if self._provider.calls.circuit_open:
            # What is left over stays until the cloud answers again.
            return LOOK_AGAIN_SECONDS
        self._looks -= 1
        self._look = self._executor.submit(self._sweep)
        self._look.add_done_callback(lambda _: self._provider.scheduler.wake(self))
        return WHEN_WOKEN_SECONDS

    def _sweep(self) -> bool:
        """One look; blocks. Is another one worth while?"""
        # The regular sweep comes, too.
        with Guard(self._provider.log, "Leaked resources cannot be looked for", level=WARNING, traceback=False):
            return self._provider.sweep_leaks()
        return self._looks > 0
