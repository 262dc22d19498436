# SPDX-License-Identifier: Apache-2.0
"""Looks for what is left over in the cloud, and deletes it (behaviour.md D-2 to D-5)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from nodepool.driver.statemachine import metadata
from nodepool.exceptions import NotFound
from nodepool.metrics import leaks

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.driver.statemachine.instance import Instance, Resource
    from nodepool.driver.statemachine.provider import StateMachineProvider


class LeakSweep:
    """What seems to be left over in two sweeps, one after the other, is. Used by one thread at a time."""

    def __init__(self, provider: StateMachineProvider, log: Log) -> None:
        self._provider = provider
        self.log = log
        self._suspects: set[Hashable] = set()
        self._extra: set[Hashable] = set()

    def sweep(self) -> None:
        """One sweep. Blocks; raises what the driver raises when it cannot list."""
        # First the cloud, then ZooKeeper: a node or upload is stored before anything is made for it.
        resources = self._provider.calls.list_resources()
        leaked = self._unknown(resources)
        deleted = 0
        for resource, key in leaked:
            if key in self._suspects and not self._provider.idle_now:
                deleted += self._delete(resource)
        self._suspects = {key for _, key in leaked}
        self._sweep_extra_instances()
        if deleted:
            # They counted as used by others.
            self._provider.invalidateQuotaCache()

    def _unknown(self, resources: list[Resource]) -> list[tuple[Resource, Hashable]]:
        """Resources of this provider whose node or upload is not in ZooKeeper, and a key to know them again."""
        name = self._provider.name
        nodes: set[str] | None = None
        uploads: set[tuple[str, str]] | None = None
        found: list[tuple[Resource, Hashable]] = []
        for resource in resources:
            node_id = metadata.node_id_of(resource.metadata, name)
            upload = metadata.upload_of(resource.metadata, name)
            if node_id is not None:
                if nodes is None:
                    nodes = self._provider.node_ids()
                if node_id not in nodes:
                    found.append((resource, (resource.type, node_id)))
            elif upload is not None:
                if uploads is None:
                    uploads = self._provider.upload_ids()
                if upload not in uploads:
                    found.append((resource, (resource.type, *upload)))
        return found

    def _delete(self, resource: Resource) -> int:
        """Delete one; returns how many went."""
        self.log.warning("Deleting leaked %s, its metadata is %s", resource.type, resource.metadata)
        try:
            self._provider.adapter.deleteResource(resource)
        except NotFound:
            return 0
        except Exception:
            self.log.exception("Leaked %s could not be deleted, trying again at the next sweep", resource.type)
            return 0
        leaks.report(self._provider.name, resource.plural_metric_name)
        return 1

    def _sweep_extra_instances(self) -> None:
        """Second instances of a node: both creations worked, and one answer was lost."""
        by_node: dict[str, list[Instance]] = {}
        for instance in self._provider.calls.list_instances():
            node_id = metadata.node_id_of(instance.metadata, self._provider.name)
            if node_id is not None and not instance.deleted:
                by_node.setdefault(node_id, []).append(instance)
        extra: dict[Hashable, Any] = {}
        for node_id, instances in by_node.items():
            if len(instances) > 1:
                used = self._provider.external_id_of(node_id)
                ids = [instance.external_id for instance in instances]
                if used is not None and used in ids:
                    extra.update({(node_id, str(found)): found for found in ids if found != used})
        for key, external_id in extra.items():
            if key in self._extra and not self._provider.idle_now:
                self.log.warning("Deleting instance %s: it is a second one of its node", external_id)
                self._provider.delete_orphan(external_id, self._provider.log)
                leaks.report(self._provider.name, "instances")
        self._extra = set(extra)
