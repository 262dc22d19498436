# SPDX-License-Identifier: Apache-2.0
"""What is kept of the objects of nodes, and how it becomes one record a node.

First the records, then what a status means, then the instance as the framework sees it.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import one_line
from nodepool.driver.kubernetes import objects
from nodepool.driver.statemachine import CloudInstance
from nodepool.model.node import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.kubernetes.config import PodLabel
    from nodepool.driver.kubernetes.connection import ClusterAccess

#: Kinds of objects that are kept.
PLACE: Final = "place"
POD: Final = "pod"
SECRET: Final = "secret"


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
    """Everything of one node: the framework's ``InventoryRecord``. Of a namespace alone it has no pod and no token.

    :param id: name of the namespace or project; of pods in projects that are there ``<project>-<pod>``.
    :param uid: of what ``id`` names; ``metadata``: its labels.
    :param held_by: why it is still there, if it is being deleted.
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


def place_view(found: dict[str, Any]) -> KubeRecord:
    """Of a namespace or project, as the API gives it."""
    meta = found["metadata"]
    phase = (found.get("status") or {}).get("phase")
    terminating = bool(meta.get("deletionTimestamp")) or phase == "Terminating"
    held_by = why_terminating(found) if terminating else ""
    return KubeRecord(meta["name"], str(meta.get("uid")), dict(meta.get("labels") or {}), terminating, held_by)


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
View = KubeRecord | PodView | TokenView


class NodeObjects:
    """Objects of nodes that have a namespace or project each. ``_lock`` guards them.

    Names are used again, and kinds are watched each by itself: a pod or token of the present attempt may be told before
    the end of the namespace of the last one, and the other way round. Launches take what has their unique ids.

    :param awaited: does a launch wait for what is told of a namespace? Must not block. Then it may be told already.
    """

    def __init__(self, awaited: Callable[[str], bool]) -> None:
        self._awaited = awaited
        self._lock = threading.Lock()
        #: By kind, and by namespace.
        self._kept: dict[str, dict[str, Any]] = {PLACE: {}, POD: {}, SECRET: {}}
        #: When each namespace was shown, or the list began that had it.
        self._told: dict[str, float] = {}

    def put(self, kind: str, view: View) -> KubeRecord | None:
        """Keep what was told; the record of its node, None = its namespace is not known."""
        with self._lock:
            kept, name = self._kept[kind], _place_of(view)
            before = kept.get(name)
            if kind == PLACE:
                if before is not None and before.uid != view.uid:
                    self._forget_content(name)
                self._told[name] = monotonic()
            kept[name] = told_after(before, view)
            return self._record(name)

    def remove(self, kind: str, view: View) -> KubeRecord | None:
        """An object is gone; what is left of its node, None = the node is."""
        with self._lock:
            kept, name = self._kept[kind], _place_of(view)
            if name not in kept or kept[name].uid == view.uid:
                kept.pop(name, None)
                if kind == PLACE:
                    self._told.pop(name, None)
                    self._forget_content(name)
            return self._record(name)

    def replace(self, kind: str, views: Iterable[View], started: float) -> tuple[list[KubeRecord], dict[str, str]]:
        """A list of a kind; the records that are there now, and the namespaces that are not any more: name and uid.

        :param started: when the list was begun, monotonic seconds. It says nothing of namespaces that were told later.
        """
        gone: dict[str, str] = {}
        listed = {_place_of(view): view for view in views}
        with self._lock:
            if kind == PLACE:
                gone = self._replace_places(listed, started)
            else:
                before = self._kept[kind]
                self._kept[kind] = {name: told_after(before.get(name), view) for name, view in listed.items()}
            return [self._with_content(place) for place in self._kept[PLACE].values()], gone

    def _replace_places(self, listed: Mapping[str, View], started: float) -> dict[str, str]:
        """Called with the lock; the namespaces that are not any more.

        Pods and tokens of a namespace that is not known yet are kept: it is listed, or told, after them.
        """
        gone: dict[str, str] = {}
        places = self._kept[PLACE]
        for name, before in list(places.items()):
            if self._told[name] > started:
                continue
            view = listed.get(name)
            if view is None or view.uid != before.uid:
                self._forget_content(name)
            if view is None:
                del places[name], self._told[name]
                gone[name] = before.uid
        for name, view in listed.items():
            if self._told.get(name, started) <= started:
                places[name] = view
                self._told[name] = started
        return gone

    def record_of(self, place: KubeRecord) -> KubeRecord:
        """The record of a namespace that was listed: as it was told, if that is the same one."""
        with self._lock:
            known = self._kept[PLACE].get(place.id)
            return self._with_content(known if known is not None and known.uid == place.uid else place)

    def _forget_content(self, name: str) -> None:
        """A namespace is gone, or another one has its name. Called with the lock."""
        if self._awaited(name):
            # It may be that of the next one, which no watch would tell again.
            return
        for kind in (POD, SECRET):
            self._kept[kind].pop(name, None)

    def _record(self, name: str) -> KubeRecord | None:
        place = self._kept[PLACE].get(name)
        return None if place is None else self._with_content(place)

    def _with_content(self, place: KubeRecord) -> KubeRecord:
        return replace(place, pod=self._kept[POD].get(place.id), token=self._kept[SECRET].get(place.id))


def _place_of(view: View) -> str:
    return view.id if isinstance(view, KubeRecord) else view.place


def told_after(before: Any, now: Any) -> Any:
    """What is known of an object, with what was shown before. That matters for pods only.

    That it never will run stays true until it does. The kubelet says why an image cannot be had only for a moment
    (``ErrImagePull``), and then that it tries again (``ImagePullBackOff``). A launch may look after both.
    """
    if before is None or before.uid != now.uid or not isinstance(now, PodView):
        return now
    if not before.verdict.fatal or now.verdict.fatal or now.verdict.ready:
        return now
    return replace(now, verdict=before.verdict)


def pod_record(view: PodView) -> KubeRecord:
    """The record of a pod in a project that is there."""
    return KubeRecord(f"{view.place}-{view.name}", view.uid, view.labels, view.terminating, pod=view)


# What the status of a pod, or of a namespace, means. Pure functions.

#: These end by nobody's help but that of who wrote the label.
_FATAL: Final = frozenset({"InvalidImageName", "ErrImageNeverPull", "CrashLoopBackOff"})
#: These may mend themselves in a moment, e.g. when a controller copies a secret into the namespace.
_FATAL_LATER: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "PostStartHookError"}
)
#: An image that cannot be pulled: what the registry says decides.
_PULL: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"})
_TROUBLE: Final = _FATAL | _FATAL_LATER | _PULL
#: What a registry says when trying again does not help.
_NO_IMAGE: Final = (
    *("not found", "manifest unknown", "does not exist", "unauthorized", "access denied", "access forbidden"),
    *("authentication required", "authorization failed", "no basic auth credentials", "invalid reference format"),
    *("no match for platform", "no matching manifest"),
)


class Verdict(NamedTuple):
    """What a pod has come to.

    :param ready: it runs.
    :param problem: why it does not, in the cluster's words; "" = nothing is known to be wrong.
    :param fatal: it never will.
    :param later: it never will if this goes on for a few seconds.
    :param ended: it ran, or was evicted; no container of it starts again.
    """

    ready: bool = False
    problem: str = ""
    fatal: bool = False
    later: bool = False
    ended: bool = False


def of_pod(pod: dict[str, Any]) -> Verdict:
    """What the status of a pod means."""
    status = _dict(pod.get("status"))
    phase = str(status.get("phase") or "Pending")
    if phase in ("Failed", "Succeeded"):
        return Verdict(problem=_ended(phase, status), fatal=True, ended=True)
    statuses = list(_statuses(status))
    for name, state in statuses:
        found = _waiting(name, state)
        if found is not None:
            return found
    ended = next((_exit(name, state) for name, state in _statuses(status, init=False) if state.get("terminated")), "")
    if ended:
        # With a restartPolicy of its own it may come again, as another one.
        return Verdict(problem=ended, fatal=_dict(pod.get("spec")).get("restartPolicy") == "Never")
    if phase == "Running":
        return Verdict(ready=True)
    return Verdict(problem=_unscheduled(status))


def _waiting(name: str, state: dict[str, Any]) -> Verdict | None:
    """What it means that a container waits; None = nothing."""
    waiting = _dict(state.get("waiting"))
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason not in _TROUBLE:
        # Most events of a watch tell of containers that are well.
        return None
    text = one_line(f"container {name}: {reason}: {message}" if message else f"container {name}: {reason}")
    if reason in _FATAL:
        return Verdict(problem=text, fatal=True)
    if reason in _FATAL_LATER:
        return Verdict(problem=text, later=True)
    return Verdict(problem=text, fatal=any(found in message.lower() for found in _NO_IMAGE))


def _ended(phase: str, status: dict[str, Any]) -> str:
    words = [str(status[key]) for key in ("reason", "message") if status.get(key)]
    words += [_exit(name, state) for name, state in _statuses(status) if state.get("terminated")]
    return one_line(f"the pod is {phase}: {'; '.join(words)}" if words else f"the pod is {phase}")


def _exit(name: str, state: dict[str, Any]) -> str:
    ended = _dict(state.get("terminated"))
    words = [str(ended[key]) for key in ("reason", "message") if ended.get(key)]
    said = f" ({': '.join(words)})" if words else ""
    return one_line(f"container {name} ended with exit code {ended.get('exitCode')}{said}")


def _unscheduled(status: dict[str, Any]) -> str:
    """Why no node of the cluster took the pod, in the scheduler's words; "" = it did, or has not been tried."""
    for condition in status.get("conditions") or []:
        found = _dict(condition)
        if found.get("type") == "PodScheduled" and found.get("status") == "False":
            return one_line(f"{found.get('reason')}: {found.get('message')}")
    return ""


def _statuses(status: dict[str, Any], init: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
    """Containers and their states."""
    for key in ("initContainerStatuses", "containerStatuses") if init else ("containerStatuses",):
        for found in status.get(key) or []:
            yield str(_dict(found).get("name")), _dict(_dict(found).get("state"))


def why_terminating(namespace: dict[str, Any]) -> str:
    """What keeps a namespace that is being deleted, as far as its status says; "" = nothing does."""
    status = _dict(namespace.get("status"))
    words = []
    for condition in status.get("conditions") or []:
        found = _dict(condition)
        if found.get("status") == "True" and str(found.get("type")).startswith("Namespace"):
            words.append(f"{found.get('reason')}: {found.get('message')}")
    finalizers = [str(name) for name in _dict(namespace.get("metadata")).get("finalizers") or []]
    if finalizers:
        words.append(f"finalizers {', '.join(finalizers)}")
    return one_line("; ".join(words))


def _dict(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


# `KubeInstance`: a namespace or pod as the framework, and Zuul, sees it (KU-8, KU-9; reference/zookeeper 5.5).


class KubeInstance(CloudInstance):
    """A node that can be used.

    :param label: of the launch.
    :param connection: type of the connection.
    :param context: of the kubeconfig.
    :param with_name: the old key ``name`` of the connection, too.
    :param token: what is handed out; None = what the secret of the namespace says.
    """

    #: How Zuul reaches the node.
    connection_port: dict[str, Any]

    def __init__(
        self,
        record: KubeRecord,
        label: PodLabel,
        connection: str,
        access: ClusterAccess,
        context: str | None,
        with_name: bool = True,
        token: TokenView | None = None,
    ) -> None:
        token = token or record.token
        assert token is not None
        port = {"namespace": token.place, "host": access.host, "skiptls": access.skip_tls, "token": token.token}
        port |= {"user": objects.WORKER}
        if not access.skip_tls:
            port["ca_crt"] = token.ca
        if with_name:
            port["name"] = token.place
        pod, given = record.pod, {"cloud": context, "connection_type": connection, "connection_port": port}
        if pod is not None and connection == "kubectl":
            port["pod"] = pod.name
            given |= {"interface_ip": pod.name, "host_id": pod.host}
        image = {"python_path": label.python_path, "shell_type": label.shell_type}
        super().__init__(record, need_of(label), ready=True, has_address=pod is not None, **image, **given)


def need_of(label: PodLabel) -> QuotaInformation:
    """What a node of a label uses."""
    more: dict[str, float] = {str(name): amount for name, amount in label.extra_resources.items()}
    if label.storage:
        more["ephemeral-storage"] = label.storage
    if label.gpu and label.gpu_resource:
        more[label.gpu_resource] = label.gpu
    need = QuotaInformation(instances=1, cores=label.cpu or 0, ram=label.memory or 0)
    for name, amount in more.items():
        need.quota["compute"][name] = need.quota["compute"].get(name, 0) + amount
    return need
