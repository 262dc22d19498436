# SPDX-License-Identifier: Apache-2.0
"""How objects end: grace periods, finalizers, dependents, and namespaces with all that is in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from simulators.kubernetes.errors import conflict, forbidden
from simulators.kubernetes.kinds import NAMESPACES, PODS, STORED, ObjectKind
from simulators.kubernetes.store import DELETED, MODIFIED, ObjectEvent, Store

Json = dict[str, Any]


class Lifecycle:
    """Deletes objects.

    :param end_pod: called with a pod that runs and is to end.
    """

    def __init__(self, store: Store, end_pod: Callable[[Json], None]) -> None:
        self._store = store
        self._core = store.core
        self._end_pod = end_pod
        self._sweeping: set[str] = set()
        for kind in STORED:
            if kind.namespaced or kind is NAMESPACES:
                store.table(kind).listeners.append(self._follow)

    def check_namespace(self, kind: ObjectKind, content: Json) -> None:
        """Refuses a new object in a namespace that is not there or about to go.

        :raises Refused: 404 or 403.
        """
        namespace, name = content["metadata"]["namespace"], content["metadata"]["name"]
        found = self._store.get(NAMESPACES, "", namespace)
        if found["metadata"].get("deletionTimestamp"):
            message = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            text = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind, name, text, [cause])

    def delete(self, kind: ObjectKind, content: Json, options: Json) -> Json | None:
        """Deletes an object, now or later.

        :returns: the object if it is still there.
        :raises Refused: 409, it is not the one that the client means.
        """
        metadata = content["metadata"]
        for field, wanted in (options.get("preconditions") or {}).items():
            found = metadata.get(field)
            if found != wanted:
                text = f"Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}"
                raise conflict(kind, metadata["name"], text)
        if kind is NAMESPACES:
            return self._delete_namespace(content)
        if kind is PODS:
            return self._delete_pod(content, options)
        return self._end(kind, content)

    def changed(self, kind: ObjectKind, content: Json) -> None:
        """An object was changed by a client: without finalizers one that was deleted is gone."""
        metadata = content["metadata"]
        if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
            return
        if kind is NAMESPACES:
            if not content["spec"].get("finalizers"):
                self._store.remove(kind, content)
        elif kind is not PODS or metadata.get("deletionGracePeriodSeconds") == 0:
            self._remove(kind, content)

    def _end(self, kind: ObjectKind, content: Json) -> Json | None:
        """The object ends now, unless a finalizer holds it."""
        if not content["metadata"].get("finalizers"):
            self._remove(kind, content)
            return None
        if content["metadata"].get("deletionTimestamp") and content["metadata"]["deletionGracePeriodSeconds"] == 0:
            return content

        def mark(new: Json) -> None:
            new["metadata"].setdefault("deletionTimestamp", self._store.stamp())
            new["metadata"]["deletionGracePeriodSeconds"] = 0

        return self._store.change(kind, content, mark)

    def _remove(self, kind: ObjectKind, content: Json) -> None:
        self._store.remove(kind, content)
        uid, namespace = content["metadata"]["uid"], content["metadata"].get("namespace", "")
        if not namespace:
            return
        # What belongs to it goes in the background.
        for other, dependent in tuple(self._store.contents(namespace)):
            owners = dependent["metadata"].get("ownerReferences") or ()
            if any(owner.get("uid") == uid for owner in owners):
                self.delete(other, dependent, {})

    def _delete_pod(self, pod: Json, options: Json) -> Json | None:
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = pod["spec"]["terminationGracePeriodSeconds"]
        ended = pod["status"]["phase"] in ("Succeeded", "Failed")
        if grace == 0 or ended or not pod["spec"].get("nodeName"):
            return self._end(PODS, pod)
        if pod["metadata"].get("deletionTimestamp"):
            return pod

        def mark(new: Json) -> None:
            when = datetime.fromtimestamp(self._core.now() + grace, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            new["metadata"] |= {"deletionTimestamp": when, "deletionGracePeriodSeconds": grace}

        marked = self._store.change(PODS, pod, mark)
        self._end_pod(marked)
        return marked

    def end_pod(self, pod: Json) -> None:
        """The kubelet says that the pod has ended."""
        found = self._store.find(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]:
            self._end(PODS, found)

    def _delete_namespace(self, content: Json) -> Json:
        if content["metadata"].get("deletionTimestamp"):
            return content

        def mark(new: Json) -> None:
            new["metadata"]["deletionTimestamp"] = self._store.stamp()
            new["status"]["phase"] = "Terminating"

        marked = self._store.change(NAMESPACES, content, mark)
        name = content["metadata"]["name"]
        self._core.after(self._core.knobs.namespace_seconds, "namespaces", lambda: self._begin_sweep(name))
        return marked

    def _begin_sweep(self, namespace: str) -> None:
        if self._store.find(NAMESPACES, "", namespace) is None:
            return
        self._sweeping.add(namespace)
        for kind, content in tuple(self._store.contents(namespace)):
            # It may have gone with another one, or changed.
            present = self._store.find(kind, namespace, content["metadata"]["name"])
            if present is not None:
                self.delete(kind, present, {})
        self._look_after(namespace)

    def _follow(self, event: ObjectEvent) -> None:
        namespace = event.content["metadata"].get("namespace", "")
        if namespace in self._sweeping and event.kind in (DELETED, MODIFIED):
            # Later: whoever removes objects now is not disturbed.
            self._core.after((0.0, 0.0), "namespaces", lambda: self._look_after(namespace))
        elif not namespace and event.kind == DELETED:
            self._sweeping.discard(event.content["metadata"]["name"])

    def _look_after(self, namespace: str) -> None:
        found = self._store.find(NAMESPACES, "", namespace)
        if found is None or namespace not in self._sweeping:
            return
        left = list(self._store.contents(namespace))
        if left:
            self._store.change(NAMESPACES, found, lambda new: _tell_what_is_left(new, left, self._store.stamp()))
            return

        def finish(new: Json) -> None:
            new["spec"]["finalizers"] = []

        finished = self._store.change(NAMESPACES, found, finish)
        if not finished["metadata"].get("finalizers"):
            self._store.remove(NAMESPACES, finished)


def _tell_what_is_left(namespace: Json, left: list[tuple[ObjectKind, Json]], stamp: str) -> None:
    kinds = Counter(kind.resource if kind.group else f"{kind.plural}." for kind, _content in left)
    finalizers = Counter(name for _kind, content in left for name in content["metadata"].get("finalizers") or ())
    resources = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(kinds.items()))
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    conditions = [
        _condition("NamespaceContentRemaining", "SomeResourcesRemain", f"Some resources are remaining: {resources}"),
        _condition(
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain" if held else "ContentHasNoFinalizers",
            f"Some content in the namespace has finalizers remaining: {held}"
            if held
            else "All content-preserving finalizers finished",
            "True" if held else "False",
        ),
    ]
    before = {condition["type"]: condition for condition in namespace["status"].get("conditions") or ()}
    for condition in conditions:
        last = before.get(condition["type"], {})
        same = last.get("status") == condition["status"]
        condition["lastTransitionTime"] = last["lastTransitionTime"] if same else stamp
    namespace["status"]["conditions"] = conditions


def _condition(kind: str, reason: str, message: str, status: str = "True") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}
