# SPDX-License-Identifier: Apache-2.0
"""What becomes of pods: the scheduler, and the kubelet of every node."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

from simulators.base.rules import Range
from simulators.kubernetes import pod_status, quantities
from simulators.kubernetes import settings as outcomes
from simulators.kubernetes.errors import Refused, forbidden
from simulators.kubernetes.kinds import ACCOUNTS, NODES, PODS
from simulators.kubernetes.quotas import pod_amounts
from simulators.kubernetes.settings import PodRule
from simulators.kubernetes.store import ADDED, DELETED, ObjectEvent, Store

Json = dict[str, Any]

#: Annotations of a pod, which say what becomes of it: those of the tests on a real control plane.
OUTCOME, START_SECONDS, STOP_SECONDS = (
    f"kubernetes-rig/{name}" for name in ("outcome", "start-seconds", "stop-seconds")
)


def complete_pod(content: Json) -> None:
    """Defaults, as the API server adds them."""
    spec = content["spec"]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in spec["containers"]:
        latest = ":" not in container["image"].rpartition("/")[2] or container["image"].endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        resources = container.setdefault("resources", {})
        for resource, amount in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(resource, amount)
        for group in ("requests", "limits"):
            for resource, amount in (resources.get(group) or {}).items():
                resources[group][resource] = str(amount)
    content["status"] = {"phase": "Pending"}


class PodController:
    """Schedules pods and plays their life. The caller holds the core's lock."""

    def __init__(self, store: Store, ended: Callable[[Json], None]) -> None:
        self._store = store
        self._core = store.core
        self._ended = ended
        self._addresses = itertools.count(2)
        self._used: dict[str, Counter[str]] = {}
        #: Node of each pod that takes room there, by uid.
        self._placed: dict[str, str] = {}
        #: Pods that fit nowhere, by uid.
        self._waiting: dict[str, Json] = {}
        self._rules: dict[str, PodRule] = {}
        store.table(PODS).listeners.append(self._follow)
        store.table(NODES).listeners.append(lambda _event: self._look_again())

    def admit(self, pod: Json) -> None:
        """Refuses a pod whose service account is not there, or has no token for it (before 1.24).

        :raises Refused: 403, 500.
        """
        namespace, account = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
        found = self._store.find(ACCOUNTS, namespace, account)
        if found is None:
            text = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            raise forbidden(PODS, pod["metadata"]["name"], text)
        mounts = pod["spec"].get("automountServiceAccountToken", True) and self._core.knobs.token_secrets_by_itself
        if mounts and not any("-token-" in secret["name"] for secret in found.get("secrets") or []):
            text = f'No API token found for service account "{account}"'
            retry = "retry after the token is automatically created and added to the service account"
            raise Refused(500, f"{text}, {retry}", "ServerTimeout")

    def _follow(self, event: ObjectEvent) -> None:
        pod = event.content
        uid = pod["metadata"]["uid"]
        if event.kind == ADDED:
            rule = self._rule(pod)
            if rule is not None:
                self._rules[uid] = rule
            self._core.after(self._core.knobs.schedule_seconds, "schedule", lambda: self._schedule(pod))
        elif event.kind == DELETED:
            self._waiting.pop(uid, None)
            self._rules.pop(uid, None)
            self._release(pod)
        elif pod["status"]["phase"] in ("Succeeded", "Failed"):
            self._release(pod)

    def _rule(self, pod: Json) -> PodRule | None:
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        for rule in self._core.knobs.pods:
            if fnmatchcase(name, rule.pod) and self._core.applies(rule, "pod faults"):
                return rule
        outcome = (metadata.get("annotations") or {}).get(OUTCOME)
        return PodRule(outcome=outcome) if outcome in outcomes.OUTCOMES else None

    # -- the scheduler --

    def _schedule(self, seen: Json) -> None:
        pod = self._present(seen)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return
        node, reason = self._place(pod)
        stamp = self._store.stamp()
        if node is None:
            self._waiting[pod["metadata"]["uid"]] = pod
            self._store.change(PODS, pod, lambda new: pod_status.unschedulable(new, reason, stamp))
            return
        self._waiting.pop(pod["metadata"]["uid"], None)
        name = node["metadata"]["name"]
        self._used.setdefault(name, Counter()).update(_requests(pod))
        self._placed[pod["metadata"]["uid"]] = name

        def bind(new: Json) -> None:
            new["spec"]["nodeName"] = name
            pod_status.scheduled(new, stamp)

        bound = self._store.change(PODS, pod, bind)
        self._core.after((0.0, 0.0), "kubelet", lambda: self._create(bound))

    def _place(self, pod: Json) -> tuple[Json | None, str]:
        wanted, selector = _requests(pod), pod["spec"].get("nodeSelector") or {}
        obstacles: Counter[str] = Counter()
        nodes = list(self._store.all(NODES))
        for node in nodes:
            labels = node["metadata"].get("labels") or {}
            if any(labels.get(key) != value for key, value in selector.items()):
                obstacles["node(s) didn't match Pod's node affinity/selector"] += 1
                continue
            used = self._used.get(node["metadata"]["name"], Counter())
            room = node["status"]["allocatable"]
            short = [what for what in wanted if used[what] + wanted[what] > quantities.parse(room.get(what, 0))]
            if not short:
                return node, ""
            for what in short:
                obstacles["Too many pods" if what == "pods" else f"Insufficient {what}"] += 1
        texts = ", ".join(f"{count} {text}" for text, count in sorted(obstacles.items()))
        return None, f"0/{len(nodes)} nodes are available: {texts}."

    def _look_again(self) -> None:
        for pod in tuple(self._waiting.values()):
            self._core.after((0.0, 0.0), "schedule", lambda pod=pod: self._schedule(pod))  # type: ignore[misc]

    def _release(self, pod: Json) -> None:
        """The pod needs no room any more. A pod that ended is deleted later: twice does nothing."""
        place = self._placed.pop(pod["metadata"]["uid"], None)
        if place is not None:
            self._used[place].subtract(_requests(pod))
            self._look_again()

    # -- the kubelet --

    def _create(self, seen: Json) -> None:
        pod = self._present(seen)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        stamp = self._store.stamp()
        created = self._store.change(PODS, pod, lambda new: pod_status.creating(new, stamp))
        rule = self._rules.get(pod["metadata"]["uid"])
        if rule is None or rule.outcome != outcomes.PENDING:
            seconds = self._wish(created, START_SECONDS, self._core.knobs.start_seconds)
            self._core.after(seconds, "start", lambda: self._start(created))

    def _start(self, seen: Json) -> None:
        pod = self._present(seen)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        rule = self._rules.get(pod["metadata"]["uid"], PodRule())
        if rule.outcome in pod_status.WAITING:
            self._wait(pod, rule, first=True)
            return
        if rule.outcome == outcomes.RUNNING or rule.after_seconds > 0:
            stamp, address = (
                self._store.stamp(),
                f"10.244.{next(self._addresses) // 250 % 250}.{next(self._addresses) % 250}",
            )
            running = self._store.change(PODS, pod, lambda new: pod_status.running(new, address, stamp))
            self._core.events["pods running"] += 1
            if rule.outcome != outcomes.RUNNING:
                self._core.after((rule.after_seconds, rule.after_seconds), "end", lambda: self._end(running, rule))
            return
        self._end(pod, rule)

    def _end(self, seen: Json, rule: PodRule) -> None:
        pod = self._present(seen)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        failed, stamp = rule.outcome == outcomes.FAILED, self._store.stamp()
        policy = pod["spec"]["restartPolicy"]
        if policy == "Always" or (policy == "OnFailure" and failed):
            self._store.change(PODS, pod, lambda new: pod_status.crashed(new, failed, stamp))
            return
        self._store.change(PODS, pod, lambda new: pod_status.ended(new, failed, stamp))

    def _wait(self, pod: Json, rule: PodRule, first: bool) -> None:
        stamp = self._store.stamp()
        waiting = self._store.change(PODS, pod, lambda new: pod_status.waiting(new, rule, first, stamp))
        if first and rule.outcome == outcomes.IMAGE_PULL_ERROR:
            self._core.after(self._core.knobs.backoff_seconds, "back-off", lambda: self._back_off(waiting, rule))
        if first and rule.mends_seconds is not None:
            self._core.after((rule.mends_seconds, rule.mends_seconds), "mend", lambda: self._mend(waiting))

    def _back_off(self, seen: Json, rule: PodRule) -> None:
        pod = self._present(seen)
        if pod is not None and pod["status"]["phase"] == "Pending" and not pod["metadata"].get("deletionTimestamp"):
            self._wait(pod, rule, first=False)

    def _mend(self, seen: Json) -> None:
        pod = self._present(seen)
        if pod is not None:
            self._rules.pop(pod["metadata"]["uid"], None)
            self._start(pod)

    def stop(self, pod: Json) -> None:
        """The pod was deleted: its containers end."""
        rule = self._rules.get(pod["metadata"]["uid"])
        if rule is not None and rule.stuck:
            return
        seconds = (0.0, 0.0)
        if pod["status"]["phase"] == "Running":
            grace = pod["metadata"]["deletionGracePeriodSeconds"]
            least, most = self._wish(pod, STOP_SECONDS, self._core.knobs.stop_seconds)
            seconds = (min(least, grace), min(most, grace))
        self._core.after(seconds, "stop", lambda: self._ended(pod))

    def release_stuck(self) -> None:
        """Pods that are stuck in Terminating end."""
        for pod in tuple(self._store.all(PODS)):
            if pod["metadata"].get("deletionTimestamp"):
                self._ended(pod)

    def _wish(self, pod: Json, name: str, usual: Range) -> Range:
        text = (pod["metadata"].get("annotations") or {}).get(name)
        try:
            return (float(text), float(text)) if text is not None else usual
        except ValueError:
            return usual

    def _present(self, seen: Json) -> Json | None:
        """The pod as it is now; None = it is gone, perhaps with another one in its place."""
        pod = self._store.find(PODS, seen["metadata"]["namespace"], seen["metadata"]["name"])
        return pod if pod is not None and pod["metadata"]["uid"] == seen["metadata"]["uid"] else None


def _requests(pod: Json) -> Counter[str]:
    wanted: Counter[str] = Counter({"pods": 1})
    for name, amount in pod_amounts(pod).items():
        group, _, resource = name.partition(".")
        if group == "requests":
            wanted[resource] += Fraction(amount)  # type: ignore[assignment]
    return wanted
