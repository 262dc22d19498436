# SPDX-License-Identifier: Apache-2.0
"""Counts the places of Nodepool's nodes, and what their pods request."""

from __future__ import annotations

from simulators.base.observer import NODE_KEY, PROVIDER_KEY, Observer
from simulators.kubernetes.kinds import NAMESPACES, PODS
from simulators.kubernetes.quotas import pod_amounts
from simulators.kubernetes.store import ADDED, DELETED, ObjectEvent, Store

_MIB = 1024 * 1024


class NodePlaces:
    """Tells an observer of them. A node lives from its namespace to the end of the namespace's deletion.

    A namespace without the labels of a node may be a project of OpenShift: there each pod with these labels is a node.
    """

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
        namespace = metadata["namespace"]
        own = f"{namespace}/{metadata['name']}"
        if event.kind == DELETED:
            self.observer.absent(own)
        elif event.kind == ADDED and NODE_KEY in labels:
            amounts = pod_amounts(event.content)
            cores, ram = amounts["requests.cpu"], amounts["requests.memory"] // _MIB
            place = namespace if self.observer.has(namespace) else own
            self.observer.present(place, labels, int(cores), int(ram))
