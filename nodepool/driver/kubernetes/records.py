# SPDX-License-Identifier: Apache-2.0
"""What is kept of the objects of nodes, and how it becomes one record a node."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from nodepool.clock import monotonic
from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.verdicts import Verdict, of_pod, why_terminating

#: Kinds of objects that are kept.
PLACE: Final = "place"
POD: Final = "pod"
SECRET: Final = "secret"


@dataclass(frozen=True)
class PlaceView:
    """A namespace or project.

    :param held_by: why it is still there, if it is being deleted.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    terminating: bool
    held_by: str = ""


@dataclass(frozen=True)
class PodView:
    """A pod.

    :param host: the cluster's node that it runs on.
    """

    name: str
    place: str
    uid: str
    labels: Mapping[str, str]
    terminating: bool
    verdict: Verdict
    host: str | None = None


@dataclass(frozen=True)
class TokenView:
    """A secret with a token; both are secret enough not to be shown.

    :param token: as text.
    :param ca: base64, as in the secret.
    """

    place: str
    uid: str
    token: str = field(repr=False, default="")
    ca: str = field(repr=False, default="")


@dataclass(frozen=True)
class KubeRecord:
    """Everything of one node: the framework's ``InventoryRecord``.

    :param id: name of the namespace or project; of pods in projects that are there ``<project>-<pod>``.
    :param uid: of what ``id`` names.
    """

    id: str
    uid: str
    metadata: Mapping[str, str]
    terminating: bool = False
    held_by: str = ""
    pod: PodView | None = None
    token: TokenView | None = None
    gone: bool = False
    updated: str = ""

    @property
    def status(self) -> str:
        """For people."""
        if self.terminating:
            return f"Terminating: {self.held_by}" if self.held_by else "Terminating"
        if self.pod is not None and self.pod.verdict.problem:
            return self.pod.verdict.problem
        return "Active"


def place_view(found: dict[str, Any]) -> PlaceView:
    """Of a namespace or project, as the API gives it."""
    meta = found["metadata"]
    phase = (found.get("status") or {}).get("phase")
    terminating = bool(meta.get("deletionTimestamp")) or phase == "Terminating"
    held_by = why_terminating(found) if terminating else ""
    return PlaceView(meta["name"], str(meta.get("uid")), dict(meta.get("labels") or {}), terminating, held_by)


def pod_view(found: dict[str, Any]) -> PodView:
    meta = found["metadata"]
    return PodView(
        meta["name"],
        meta["namespace"],
        str(meta.get("uid")),
        dict(meta.get("labels") or {}),
        bool(meta.get("deletionTimestamp")),
        of_pod(found),
        (found.get("spec") or {}).get("nodeName"),
    )


def token_view(found: dict[str, Any]) -> TokenView | None:
    """Of a secret; None = it is none with a token of ours."""
    meta, data = found["metadata"], found.get("data") or {}
    if found.get("type") != objects.TOKEN_TYPE or meta["name"] != objects.WORKER:
        return None
    try:
        token = base64.b64decode(data.get("token") or "").decode()
    except (binascii.Error, UnicodeDecodeError):
        token = ""
    return TokenView(meta["namespace"], str(meta.get("uid")), token, str(data.get("ca.crt") or ""))


VIEWS: Final = {PLACE: place_view, POD: pod_view, SECRET: token_view}


class NodeObjects:
    """Objects of nodes that have a namespace or project each. ``_lock`` guards them.

    Names are used again, and kinds are watched each by itself: a pod or token of the present attempt may be told before
    the end of the namespace of the last one, and the other way round. Launches take what has their unique ids.

    :param awaited: does a launch wait for what is told of a namespace? Must not block. Then it may be told already.
    """

    def __init__(
        self, clock: Callable[[], float] = monotonic, awaited: Callable[[str], bool] = lambda name: False
    ) -> None:
        self._clock = clock
        self._awaited = awaited
        self._lock = threading.Lock()
        self._places: dict[str, PlaceView] = {}
        #: When each of them was told, or the list began that had it.
        self._told: dict[str, float] = {}
        self._pods: dict[str, PodView] = {}
        self._tokens: dict[str, TokenView] = {}

    def put(self, view: PlaceView | PodView | TokenView) -> KubeRecord | None:
        """Keep what was told; the record of its node, None = its namespace is not known."""
        with self._lock:
            if isinstance(view, PlaceView):
                name = view.name
                before = self._places.get(name)
                if before is not None and before.uid != view.uid:
                    self._forget_content(name)
                self._places[name] = view
                self._told[name] = self._clock()
            elif isinstance(view, PodView):
                name = view.place
                self._pods[name] = told_after(self._pods.get(name), view)
            else:
                name = view.place
                self._tokens[name] = view
            return self._record(name)

    def remove(self, view: PlaceView | PodView | TokenView) -> KubeRecord | None:
        """An object is gone; what is left of its node, None = the node is."""
        with self._lock:
            if isinstance(view, PlaceView):
                known = self._places.get(view.name)
                if known is None or known.uid == view.uid:
                    self._places.pop(view.name, None)
                    self._told.pop(view.name, None)
                    self._forget_content(view.name)
                return self._record(view.name)
            kept: dict[str, Any] = self._pods if isinstance(view, PodView) else self._tokens
            if view.place in kept and kept[view.place].uid == view.uid:
                del kept[view.place]
            return self._record(view.place)

    def replace(
        self, kind: str, views: Iterable[PlaceView | PodView | TokenView], started: float
    ) -> tuple[list[KubeRecord], dict[str, str]]:
        """A list of a kind; the records that are there now, and the namespaces that are not any more: name and uid.

        :param started: when the list was begun, monotonic seconds. It says nothing of namespaces that were told later.
        """
        gone: dict[str, str] = {}
        with self._lock:
            if kind == PLACE:
                gone = self._replace_places({view.name: view for view in views if isinstance(view, PlaceView)}, started)
            elif kind == POD:
                pods = (view for view in views if isinstance(view, PodView))
                self._pods = {view.place: told_after(self._pods.get(view.place), view) for view in pods}
            else:
                self._tokens = {view.place: view for view in views if isinstance(view, TokenView)}
            records = [record for name in self._places if (record := self._record(name)) is not None]
            return records, gone

    def _replace_places(self, listed: dict[str, PlaceView], started: float) -> dict[str, str]:
        """Called with the lock; the namespaces that are not any more.

        Pods and tokens of a namespace that is not known yet are kept: it is listed, or told, after them.
        """
        gone: dict[str, str] = {}
        for name, before in list(self._places.items()):
            if self._told[name] > started:
                continue
            view = listed.get(name)
            if view is None or view.uid != before.uid:
                self._forget_content(name)
            if view is None:
                del self._places[name], self._told[name]
                gone[name] = before.uid
        for name, view in listed.items():
            if self._told.get(name, started) <= started:
                self._places[name] = view
                self._told[name] = started
        return gone

    def record_of(self, view: PlaceView) -> KubeRecord:
        """The record of a namespace that was listed: as it was told, if that is the same one."""
        with self._lock:
            known = self._places.get(view.name)
            same = known if known is not None and known.uid == view.uid else view
            return _made_of(same, self._pods.get(view.name), self._tokens.get(view.name))

    def get(self, name: str) -> KubeRecord | None:
        """The record of a node."""
        with self._lock:
            return self._record(name)

    def _forget_content(self, name: str) -> None:
        """A namespace is gone, or another one has its name. Called with the lock."""
        if self._awaited(name):
            # It may be that of the next one, which no watch would tell again.
            return
        self._pods.pop(name, None)
        self._tokens.pop(name, None)

    def _record(self, name: str) -> KubeRecord | None:
        place = self._places.get(name)
        if place is None:
            return None
        return _made_of(place, self._pods.get(name), self._tokens.get(name))


def _made_of(place: PlaceView, pod: PodView | None, token: TokenView | None) -> KubeRecord:
    return KubeRecord(place.name, place.uid, place.labels, place.terminating, place.held_by, pod, token)


def told_after(before: PodView | None, now: PodView) -> PodView:
    """What is known of a pod with what was told before.

    That it never will run stays true until it does. The kubelet says why an image cannot be had only for a moment
    (``ErrImagePull``), and then that it tries again (``ImagePullBackOff``). A launch may look after both.
    """
    if before is None or before.uid != now.uid or not before.verdict.fatal or now.verdict.fatal or now.verdict.ready:
        return now
    return replace(now, verdict=before.verdict)


def pod_record(view: PodView) -> KubeRecord:
    """The record of a pod in a project that is there."""
    return KubeRecord(f"{view.place}-{view.name}", view.uid, view.labels, view.terminating, pod=view)
