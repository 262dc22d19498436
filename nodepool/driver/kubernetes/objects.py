# SPDX-License-Identifier: Apache-2.0
"""The objects of a node: what is made for it (KU-2 to KU-7), as JSON, and what is kept of that as one record a node.

First what is made, then the records, then what a status means, then what a node uses, and what a cluster or a
namespace has room for.
"""

from __future__ import annotations

import base64
import binascii
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.config import dynamic_values
from nodepool.driver.framework.cloud_errors import one_line
from nodepool.driver.kubernetes.config import PodLabel, mangled
from nodepool.driver.statemachine.adapter import Log
from nodepool.driver.statemachine.inventory import CloudRecord
from nodepool.model.node import QuotaInformation
from nodepool.model.request import NodeRequest

#: Label with the name of the node's label.
LABEL_KEY: Final = "nodepool_node_label"
#: Of the service account, and of the secret with its token.
WORKER: Final = "zuul-worker"
#: The service account that the cluster makes in each namespace by itself.
DEFAULT_ACCOUNT: Final = "default"
ROLE: Final = "zuul"
RESTRICTED_ROLE: Final = "zuul-restricted"
BINDING: Final = "zuul-role"
#: Before the names of cluster roles that stand for roles.
SHARED: Final = "nodepool-"
TOKEN_TYPE: Final = "kubernetes.io/service-account-token"
ACCOUNT_KEY: Final = "kubernetes.io/service-account.name"
#: What a container does until its node is deleted.
_COMMAND: Final = ["/bin/sh", "-c"]
_ARGUMENTS: Final = ["while true; do sleep 30; done;"]

Object = dict[str, Any]


def _rule(group: str, resources: str, verbs: str = "create delete get list patch update watch") -> Object:
    """Of a role. Names are separated by spaces."""
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


#: What the user of a namespace may do there (KU-3).
NAMESPACE_RULES: Final = [
    _rule("", "pods pods/exec pods/log pods/portforward services endpoints configmaps secrets"),
    _rule("apps", "deployments replicasets"),
    _rule("batch", "jobs cronjobs"),
]
#: What the user of a pod may do in its namespace.
POD_RULES: Final = [
    _rule("", "pods", "get list"),
    _rule("", "pods/log", "get list"),
    _rule("", "pods/exec pods/portforward"),
]


def labels_of(label: PodLabel, metadata: Mapping[str, str], request: NodeRequest | None, log: Log) -> dict[str, str]:
    """Labels of all that is made for a node: the label's, the dynamic ones, then ours (KU-7).

    A dynamic value is mangled as `nodepool.driver.kubernetes.config.mangled` says.
    """
    found = dict(label.labels)
    for name, value in dynamic_values(label, "dynamic-labels", request, log).items():
        usable = mangled(value)
        if usable != value:
            log.info("Label %s: the value of dynamic-labels %s is stored as %r", label.name, name, usable)
        found[name] = usable
    return {**found, **metadata, LABEL_KEY: label.name}


def marks(labels: Mapping[str, str]) -> dict[str, str]:
    """Those labels that say whose an object is."""
    return {key: value for key, value in labels.items() if key.startswith("nodepool_")}


def namespace(name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    """A namespace; a request for a project takes the same metadata."""
    return {"metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations)}}


def service_account(labels: Mapping[str, str]) -> Object:
    return {"metadata": {"name": WORKER, "labels": marks(labels)}}


def token_secret(labels: Mapping[str, str], account: str = WORKER) -> Object:
    """A secret into which the cluster writes a token of the service account, bound to both: it ends with them.

    The account must be there, else the cluster deletes the secret.
    """
    return {
        "type": TOKEN_TYPE,
        "metadata": {"name": WORKER, "labels": marks(labels), "annotations": {ACCOUNT_KEY: account}},
    }


def role(labels: Mapping[str, str], is_pod: bool) -> Object:
    name, rules = (RESTRICTED_ROLE, POD_RULES) if is_pod else (ROLE, NAMESPACE_RULES)
    return {"metadata": {"name": name, "labels": marks(labels)}, "rules": rules}


def shared_role(is_pod: bool) -> Object:
    """A cluster role with the same rights. A binding in a namespace gives them in that namespace only."""
    made = role({}, is_pod)
    return {"metadata": {"name": SHARED + made["metadata"]["name"]}, "rules": made["rules"]}


def role_binding(
    place: str, labels: Mapping[str, str], is_pod: bool, shared: str | None = None, account: str = WORKER
) -> Object:
    """:param place: the namespace.
    :param shared: the cluster role that is bound; None = the role of the namespace.
    :param account: the service account that gets it.
    """
    return {
        "metadata": {"name": BINDING, "labels": marks(labels)},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": place}],
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole" if shared else "Role",
            "name": shared or (RESTRICTED_ROLE if is_pod else ROLE),
        },
    }


def pod(name: str, label: PodLabel, labels: Mapping[str, str], token: bool = True) -> Object:
    """The pod of a node (KU-4 to KU-6). A ``spec`` of the label is used as it is.

    :param labels: as `labels_of` makes them.
    :param token: let the cluster put a token of the namespace's account into the container, as it does by itself.
    """
    spec = label.spec
    if spec is None:
        spec = _spec(label) if token else {**_spec(label), "automountServiceAccountToken": False}
    return {"metadata": {"name": name, "labels": dict(labels), "annotations": dict(label.annotations)}, "spec": spec}


def _spec(label: PodLabel) -> Object:
    container: Object = {
        "name": label.name,
        "image": label.image,
        "imagePullPolicy": label.image_pull,
        "command": _COMMAND,
        "args": _ARGUMENTS,
        "env": label.env,
    }
    resources = _resources(label)
    if resources:
        container["resources"] = resources
    if label.privileged is not None:
        container["securityContext"] = {"privileged": label.privileged}
    if label.volume_mounts:
        container["volumeMounts"] = label.volume_mounts
    # A container that ends is a node that failed: started again it would not be the node that the job knows.
    spec: Object = {"containers": [container], "restartPolicy": "Never"}
    optional = {
        "nodeSelector": label.node_selector,
        "schedulerName": label.scheduler_name,
        "volumes": label.volumes,
        "imagePullSecrets": getattr(label, "image_pull_secrets", None),
    }
    return {**spec, **{key: value for key, value in optional.items() if value}}


def _resources(label: PodLabel) -> Object:
    """Requests and limits, as Kubernetes writes quantities."""
    requests = _amounts(label.cpu, label.memory, label.storage)
    limits = _amounts(label.cpu_limit, label.memory_limit, label.storage_limit)
    if label.gpu and label.gpu_resource:
        requests[label.gpu_resource] = limits[label.gpu_resource] = f"{label.gpu:.2f}"
    return {key: found for key, found in (("requests", requests), ("limits", limits)) if found}


def _amounts(cpu: int | None, memory: int | None, storage: int | None) -> dict[str, str]:
    found = {
        "cpu": str(cpu) if cpu else "",
        "memory": f"{memory}Mi" if memory else "",
        "ephemeral-storage": f"{storage}M" if storage else "",
    }
    return {key: text for key, text in found.items() if text}


# What is kept.

#: Kinds of objects that are kept.
PLACE: Final = "place"
POD: Final = "pod"
SECRET: Final = "secret"


class PodView(CloudRecord):
    """A pod, as the API gives it.

    :ivar host: the cluster's node that it runs on.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        meta = found["metadata"]
        self.name: str = meta["name"]
        self.place: str = meta["namespace"]
        self.uid = str(meta.get("uid"))
        self.labels: Mapping[str, str] = dict(meta.get("labels") or {})
        self.terminating = bool(meta.get("deletionTimestamp"))
        self.verdict = of_pod(found)
        self.host: str | None = (found.get("spec") or {}).get("nodeName")


@dataclass(frozen=True)
class TokenView:
    """A secret with a token; both are secret enough not to be shown.

    :param token: as text; ``ca``: base64, as in the secret. None = there is none.
    """

    place: str
    uid: str
    token: str | None = field(repr=False, default="")
    ca: str | None = field(repr=False, default="")


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


def token_view(found: dict[str, Any]) -> TokenView | None:
    """Of a secret; None = it is none with a token of ours."""
    meta, data = found["metadata"], found.get("data") or {}
    if found.get("type") != TOKEN_TYPE or meta["name"] != WORKER:
        return None
    try:
        token = base64.b64decode(data.get("token") or "").decode()
    except (binascii.Error, UnicodeDecodeError):
        token = ""
    return TokenView(meta["namespace"], str(meta.get("uid")), token, str(data.get("ca.crt") or ""))


VIEWS: Final = {PLACE: place_view, POD: PodView, SECRET: token_view}
View = KubeRecord | PodView | TokenView


class NodeObjects:
    """Objects of nodes that have a namespace or project each. ``_lock`` guards them.

    Names are used again, and kinds are watched each by itself: a pod or token of the present attempt may be seen before
    the end of the namespace of the last one, and the other way round. Launches take what has their unique ids.

    :param awaited: does a launch wait for news of a namespace? Must not block. Then it may be reported already.
    """

    def __init__(self, awaited: Callable[[str], bool]) -> None:
        self._awaited = awaited
        self._lock = threading.Lock()
        #: By kind, and by namespace.
        self._kept: dict[str, dict[str, Any]] = {PLACE: {}, POD: {}, SECRET: {}}
        #: When each namespace was shown, or the list began that had it.
        self._told: dict[str, float] = {}

    def put(self, kind: str, view: View) -> KubeRecord | None:
        """Keep what was reported; the record of its node, None = its namespace is not known."""
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
        """An object is deleted; what is left of its node, None = the node is."""
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

        :param started: when the list was begun, monotonic seconds. It says nothing of namespaces that were seen later.
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

        Pods and tokens of a namespace that is not known yet are kept: it is listed, or reported, after them.
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
        """The record of a namespace that was listed: as it was reported, if that is the same one."""
        with self._lock:
            known = self._kept[PLACE].get(place.id)
            return self._with_content(known if known is not None and known.uid == place.uid else place)

    def _forget_content(self, name: str) -> None:
        """A namespace is deleted, or another one has its name. Called with the lock."""
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
    return now._replace(verdict=before.verdict)


def pod_record(view: PodView) -> KubeRecord:
    """The record of a pod in a project that is there."""
    return KubeRecord(f"{view.place}-{view.name}", view.uid, view.labels, view.terminating, pod=view)


# What the status of a pod, or of a namespace, means. Pure functions.

#: Phases of pods that run no more, and use nothing.
ENDED: Final = ("Failed", "Succeeded")
#: These end by no one's help but that of who wrote the label.
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
    if phase in ENDED:
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


# What a cluster, or a namespace, has room for, in the units of labels. Pure functions.
#
# Amounts in Kubernetes are texts such as ``500m``, ``2Gi`` and ``1e3``. Those of labels are cores, MiB of memory and MB
# of ephemeral storage; other resources, such as GPUs, are counted as they are.

#: A node with a taint of these effects takes only pods that tolerate it.
_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
#: Names of resources in Kubernetes, ours, and how many of the first make one of the second.
_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "cpu": ("cores", 1.0),
    "memory": ("ram", 1024.0 * 1024.0),
    "ephemeral-storage": ("ephemeral-storage", 1000.0 * 1000.0),
    "pods": ("instances", 1.0),
}

#: Amounts by our name of the resource.
Amounts = Mapping[str, float]


def _ours(found: Any) -> dict[str, float]:
    """Amounts in our units; what is no quantity is left out."""
    # Only where limits are asked for: the package takes long to import.
    from kubernetes.utils import quantity

    # It has no type hints.
    parse: Any = quantity.parse_quantity
    amounts: dict[str, float] = {}
    for name, text in _dict(found).items():
        own, unit = _UNITS.get(name, (name, 1.0))
        try:
            amounts[own] = float(parse(text)) / unit
        except ValueError:
            continue
    return amounts


def _sum(found: Iterable[Amounts]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for amounts in found:
        for name, amount in amounts.items():
            total[name] += amount
    return total


def _left(amounts: Amounts, taken: Amounts) -> dict[str, float]:
    """What is left of amounts; not less than nothing."""
    return {name: max(0.0, amount - taken.get(name, 0.0)) for name, amount in amounts.items()}


def requests_of(pod: Object) -> dict[str, float]:
    """What a pod requests: all containers together, or the greatest of those that run before them.

    One that has ended uses nothing.
    """
    if _dict(pod.get("status")).get("phase") in ENDED:
        return {}
    spec = _dict(pod.get("spec"))
    before, at_once = (
        [_ours(_dict(container.get("resources")).get("requests")) for container in spec.get(kind) or []]
        for kind in ("initContainers", "containers")
    )
    total = _sum([{"instances": 1.0}, *at_once])
    for amounts in before:
        for name, amount in amounts.items():
            total[name] = max(total.get(name, 0.0), amount)
    return _sum([total, _ours(spec.get("overhead"))])


def _takes_pods(node: Object) -> bool:
    """Does a node of the cluster take pods that tolerate nothing?"""
    spec, conditions = _dict(node.get("spec")), _dict(node.get("status")).get("conditions") or []
    if spec.get("unschedulable") or any(taint.get("effect") in _KEEPS_AWAY for taint in spec.get("taints") or []):
        return False
    return all(found.get("status") == "True" for found in conditions if found.get("type") == "Ready")


def of_cluster(
    nodes: Iterable[Object], pods: Iterable[Object], counted_for: Callable[[Object], Amounts]
) -> QuotaInformation:
    """What Nodepool may use of a cluster: what its nodes can allocate, without what others request.

    :param pods: of all namespaces.
    :param counted_for: what Nodepool counts by itself for a pod; nothing if the pod is not ours. Only what a pod
        requests beyond that is used by others.
    """
    taking = filter(_takes_pods, nodes)
    room = {node["metadata"]["name"]: _ours(_dict(node.get("status")).get("allocatable")) for node in taking}
    there = (pod for pod in pods if _dict(pod.get("spec")).get("nodeName") in room)
    used = _sum(_left(requests_of(pod), counted_for(pod)) for pod in there)
    return QuotaInformation(default=math.inf, **_left(_sum(room.values()), used))


def of_quotas(quotas: Iterable[Object], pods: Iterable[Object]) -> QuotaInformation:
    """What Nodepool may use of a namespace, as far as its resource quotas limit requests.

    :param pods: ours in the namespace: what they request is in what the quotas say is used.
    """
    ours = _sum(map(requests_of, pods))
    limits: dict[str, float] = {}
    for quota in quotas:
        spec, status = _dict(quota.get("spec")), _dict(quota.get("status"))
        if spec.get("scopes") or spec.get("scopeSelector"):
            # Which pods it concerns depends on more than what they request.
            continue
        others = _left(_requested(status.get("used")), ours)
        for name, limit in _left(_requested(status.get("hard") or spec.get("hard")), others).items():
            limits[name] = min(limits.get(name, math.inf), limit)
    return QuotaInformation(default=math.inf, **limits)


def _requested(found: Any) -> dict[str, float]:
    """Of what a quota names, the requests and the number of pods."""
    named: dict[str, Any] = {}
    # Sorted: ``requests.cpu`` is the same as ``cpu``, and counts if both are there.
    for name, text in sorted(_dict(found).items()):
        short = "pods" if name == "count/pods" else name.removeprefix("requests.")
        if short != name or name in _UNITS:
            named[short] = text
    return _ours(named)


def together(limits: Iterable[QuotaInformation]) -> QuotaInformation:
    """What several namespaces have room for: a resource that one of them does not limit is not limited."""
    total, *others = list(limits) or [QuotaInformation(default=math.inf)]
    for each in others:
        total.add(each)
    return total
