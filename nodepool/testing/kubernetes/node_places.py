# SPDX-License-Identifier: Apache-2.0
"""Counts the namespaces of Nodepool's nodes, and what their pods request."""

from __future__ import annotations

from nodepool.testing.kubernetes.kinds import NAMESPACES, PODS
from nodepool.testing.kubernetes.quotas import pod_amounts
from nodepool.testing.kubernetes.store import ADDED, DELETED, ObjectEvent, Store
from nodepool.testing.simulator.observer import NODE_KEY, PROVIDER_KEY, Observer

_MIB = 1024 * 1024


class NodePlaces:
    """Tells an observer of them. A node lives from its namespace to the end of the namespace's deletion."""

    def __init__(self, store: Store) -> None:
        self.observer = Observer()
        store.table(NAMESPACES).listeners.append(self._namespace)
        store.table(PODS).listeners.append(self._pod)

    def _namespace(self, event: ObjectEvent) -> None:
        metadata = event.content["metadata"]
        labels = metadata.get("labels") or {}
        if event.kind == DELETED:
            self.observer.absent(metadata["name"])
        elif event.kind == ADDED and NODE_KEY in labels and PROVIDER_KEY in labels:
            self.observer.present(metadata["name"], labels, 0, 0)

    def _pod(self, event: ObjectEvent) -> None:
        metadata = event.content["metadata"]
        labels = metadata.get("labels") or {}
        if event.kind == ADDED and NODE_KEY in labels and self.observer.has(metadata["namespace"]):
            amounts = pod_amounts(event.content)
            cores, ram = amounts["requests.cpu"], amounts["requests.memory"] // _MIB
            self.observer.present(metadata["namespace"], labels, int(cores), int(ram))
