# SPDX-License-Identifier: Apache-2.0
"""What launches and deletions of one Kubernetes provider share. Its inventory is fed by watches.

First `KubeCloud`, then when to look at what no watch reports, then cluster roles that nodes share, then the accounts
that launches wait for.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.rate import HeldTime, HeldTogether, held_work
from nodepool.driver.kubernetes import client as kubernetes_client
from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.client import CONNECT_SECONDS, READ_SECONDS, KubeClient, OtherOfTheName, core
from nodepool.driver.kubernetes.objects import DEFAULT_ACCOUNT
from nodepool.driver.kubernetes.records import (
    PLACE,
    POD,
    SECRET,
    VIEWS,
    KubeRecord,
    NodeObjects,
    PlaceView,
    place_view,
    pod_view,
    token_view,
)
from nodepool.driver.kubernetes.watch import Listener, Watch
from nodepool.driver.statemachine import CloudInstance, InstanceCloud, WatchedInventory
from nodepool.driver.statemachine import instance as tags
from nodepool.driver.statemachine.cloud import GONE
from nodepool.exceptions import LaunchError, NotFound
from nodepool.model.quota import QuotaInformation

log = logging.getLogger("nodepool.driver.kubernetes.KubeCloud")

#: Paths of what is watched in the whole cluster.
WATCHED: Final = {
    PLACE: kubernetes_client.NAMESPACES,
    POD: kubernetes_client.core("pods"),
    SECRET: kubernetes_client.core("secrets"),
}

Object = dict[str, Any]


class KubeCloud(InstanceCloud[KubeRecord], Listener):
    """Namespaces of one provider, and what is in them.

    What the API does not let us watch is asked for, for each namespace whose launch waits for it.

    :param client: of the cluster.
    """

    inventory_class = WatchedInventory
    inventory: WatchedInventory[KubeRecord]
    call_seconds = CONNECT_SECONDS + READ_SECONDS
    #: Where namespaces are listed and deleted.
    places_path: ClassVar[str] = kubernetes_client.NAMESPACES
    #: Paths of kinds that are watched.
    watched: ClassVar[dict[str, str]] = WATCHED

    def __init__(self, provider: str, client: KubeClient) -> None:
        super().__init__(provider)
        self.client = client
        self.clock: Callable[[], float] = monotonic
        self.selector = f"{tags.PROVIDER_KEY}={provider}"
        #: The same for lists of namespaces.
        self.selector_of_places = self.selector
        #: None = each namespace has a role of its own.
        self.shared_roles: SharedRoles | None = None
        #: Do jobs of pods use the account that the cluster makes in each namespace?
        self.shares_accounts = False
        #: What a node uses whose objects have some metadata.
        self.need_by: Callable[[Mapping[str, str]], QuotaInformation] = lambda _: QuotaInformation(instances=1)
        self.accounts = DefaultAccounts(client)
        self.objects = NodeObjects(awaited=self._is_awaited)
        self.inventory.on_start = self._start_watches
        self.inventory.on_end = lambda record: self.tell_lost(record, (GONE, f"{record.id} was deleted"))
        held = (self.inventory.held,)
        self._watches = [
            Watch(client, kind, path, self.selector, self, held=held) for kind, path in self.watched.items()
        ]
        #: Held from the look at all objects of a node until the inventory knows of it: else one watch could put back a
        #: node of which another one has just told the end.
        self._telling = threading.Lock()
        #: Guards what follows.
        self._kinds_lock = threading.Lock()
        #: Kinds that are not watched.
        self._asked = {kind for kind in WATCHED if kind not in self.watched}
        self.inventory.lists = bool(self._asked)
        #: Namespaces whose launch waits.
        self._awaited: dict[str, AwaitedContent] = {}
        #: The unique id of the namespace that was made last under a name.
        self._made: dict[str, str] = {}

    def instance(self, record: KubeRecord) -> CloudInstance:
        return CloudInstance(record, self.need_by(record.metadata), deleted=record.gone)

    # -- watches --

    def _start_watches(self) -> None:
        for watch in self._watches:
            watch.start()

    def listed(self, kind: str, found: list[Object], started: float) -> None:
        views = [view for item in found if (view := _view(kind, item)) is not None]
        with self._telling:
            records, gone = self.objects.replace(kind, views, started)
            if kind == PLACE:
                self.inventory.listed(records, started)
                for name, uid in gone.items():
                    self._end(name, uid)
            else:
                for record in records:
                    self.inventory.put(record)

    def changed(self, kind: str, found: Object, gone: bool) -> None:
        view = _view(kind, found)
        if view is None:
            return
        with self._telling:
            record = self.objects.remove(view) if gone else self.objects.put(view)
            if record is not None:
                self.inventory.put(record)
            elif gone and kind == PLACE:
                self._end(found["metadata"]["name"], found["metadata"].get("uid"))
        if gone and kind == POD and record is not None:
            self.tell_lost(record, (GONE, f"pod {view.name} of namespace {view.place} was deleted"))

    def _end(self, name: str, uid: str | None) -> None:
        """A namespace is gone. One that was made after it under its name may have been listed, but not told, yet."""
        known = self.inventory.get(name)
        if known is None or known.uid == uid:
            self.inventory.remove(name, self.made_anew(name, uid))
        with self._kinds_lock:
            if self._made.get(name) == uid:
                del self._made[name]

    def heard(self, kind: str) -> None:
        if kind == PLACE:
            self.inventory.heard()

    def refused(self, kind: str, error: LaunchError | None) -> None:
        with self._kinds_lock:
            if error is None:
                self._asked.discard(kind)
            else:
                self._asked.add(kind)
            self.inventory.lists = bool(self._asked)
        if error is None:
            log.info("Provider %s: %ss are watched now", self.provider, kind)
        else:
            log.info("Provider %s: %ss cannot be watched, each launch asks for its own: %s", self.provider, kind, error)

    def stop(self) -> None:
        for watch in self._watches:
            watch.stop()
        self.accounts.stop()
        super().stop()
        for watch in self._watches:
            watch.join()
        self.accounts.join()

    def close(self) -> None:
        self.client.close()

    # -- launches --

    def awaited(self, name: str, pod: str | None) -> None:
        """A launch begins."""
        self.inventory.revive(name)
        with self._kinds_lock:
            self._awaited[name] = AwaitedContent(pod)

    def made(self, name: str, uid: str) -> None:
        """Its namespace was made."""
        with self._kinds_lock:
            self._made[name] = uid
        # The end of the one before may have been told while it was made.
        self.inventory.revive(name)

    def filled(self, name: str) -> None:
        """All that belongs into it was made."""
        with self._kinds_lock:
            content = self._awaited.get(name)
            if content is not None:
                content.made(self.clock())

    def made_anew(self, name: str, uid: str | None) -> bool:
        """Was another one made under the name of one that is gone, of which no watch has told yet?"""
        with self._kinds_lock:
            return self._made.get(name, uid) != uid

    def _is_awaited(self, name: str) -> bool:
        with self._kinds_lock:
            return name in self._awaited

    def over(self, name: str) -> None:
        """A launch has ended, well or badly, or a deletion."""
        with self._kinds_lock:
            self._awaited.pop(name, None)
            self._made.pop(name, None)
        self.accounts.over(name)

    # -- lists --

    def list_instances(self, since: str | None) -> list[KubeRecord]:
        started = monotonic()
        found, _ = self.client.list(self.places_path, self.selector_of_places)
        with self._kinds_lock:
            asked, awaited = set(self._asked), dict(self._awaited)
        views = [view for item in found if self.is_ours(view := self.view_of_place(item), awaited)]
        if PLACE in asked:
            self.objects.replace(PLACE, views, started)
        for view in views:
            content = awaited.get(view.name)
            if content is not None and not view.terminating and content.is_due(self.clock()):
                self._ask_for_content(view.name, content, asked)
                content.looked(self.clock())
        return [self.objects.record_of(view) for view in views]

    def _ask_for_content(self, name: str, content: AwaitedContent, asked: set[str]) -> None:
        """Ask for what a launch waits for, and no watch tells: the pod, and when that runs the token."""
        try:
            if POD in asked and content.pod is not None:
                found = pod_view(self.client.get(f"{kubernetes_client.core('pods', name)}/{content.pod}"))
                self.objects.put(found)
                if not found.verdict.ready:
                    return
            if SECRET in asked and not content.has_token:
                token = token_view(self.client.get(f"{kubernetes_client.core('secrets', name)}/{objects.WORKER}"))
                if token is not None:
                    self.objects.put(token)
                    content.has_token = bool(token.token)
        except CloudRefused as error:
            # It may be gone, or our rights in it. That is the matter of its launch: the others wait for this list.
            log.debug("Provider %s: what is in %s cannot be read: %s", self.provider, name, error)

    def get_instance(self, record_id: str) -> KubeRecord:
        view = self.view_of_place(self.client.get(f"{self.places_path}/{record_id}"))
        if not self.is_ours(view, (record_id,)):
            raise NotFound(f"{record_id} is not a namespace of this provider")
        return self.objects.record_of(view)

    def why_ended(self, record: KubeRecord) -> tuple[str, str] | None:
        if record.terminating:
            return "Terminating", f"{record.id} is being deleted"
        if record.pod is not None and (record.pod.terminating or record.pod.verdict.ended):
            return "Pod", record.pod.verdict.problem or f"pod {record.pod.name} is being deleted"
        return None

    def view_of_place(self, found: Object) -> PlaceView:
        """What is kept of a namespace."""
        return place_view(found)

    def is_ours(self, view: PlaceView, named: Container[str]) -> bool:
        """Was a namespace made for a node of this provider?

        :param named: names of those that nodes of ours should have.
        """
        return view.labels.get(tags.PROVIDER_KEY) == self.provider

    # -- deletions --

    def gone_already(self, record_id: str) -> bool:
        """Never. Names are used again: another launcher may have made one, of which no watch has told here yet."""
        self.inventory.revive(record_id)
        return False

    def delete_instance(self, record_id: str) -> None:
        known = self.inventory.get(record_id)
        if known is not None:
            with contextlib.suppress(OtherOfTheName):
                self.delete_seen(known)
                return
        # What the watches have told is old, or nothing; and what has the name may belong to somebody else.
        found = self.get_instance(record_id)
        # The end of the one before may be told yet: it is not the end of this one.
        self.made(record_id, found.uid)
        self.delete_seen(found)

    def delete_seen(self, record: KubeRecord) -> None:
        kubernetes_client.delete(self.client, self.path_of(record), record.uid)

    def path_of(self, record: KubeRecord) -> str:
        """Of what an instance is, in the API."""
        return f"{self.places_path}/{record.id}"


def _view(kind: str, found: Object) -> Any:
    """What is kept of an object; None = nothing, also of one that lacks what all have."""
    try:
        view: Any = VIEWS[kind](found)
    except (KeyError, TypeError, ValueError) as error:
        log.warning("A %s cannot be understood, it is left out: %r", kind, error)
        return None
    return view


# `AwaitedContent`: when to look at what was made for a node, where no watch reports it. Pure functions.

#: From one look at a pod or secret to the next: this part of the time since it was made, within these limits. So the
#: number of looks grows with the logarithm of that time, however many other launches make lists come often.
PAUSE_SHARE: Final = 0.25
SHORTEST_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 3.0

_NEVER: Final = float("inf")


@dataclass
class AwaitedContent:
    """A launch that waits for its pod, and for its token. All times are monotonic seconds.

    :param pod: name of the pod; None = there is none.
    :param has_token: the token was seen.
    """

    pod: str | None
    has_token: bool = False
    since: float = _NEVER
    look_at: float = _NEVER

    def made(self, now: float) -> None:
        """All was made; before that there is nothing to see."""
        self.since = self.look_at = now

    def is_due(self, now: float) -> bool:
        """Look now?"""
        return now >= self.look_at

    def looked(self, now: float) -> None:
        """It was looked at, and more must come."""
        self.look_at = now + min(LONGEST_SECONDS, max(SHORTEST_SECONDS, (now - self.since) * PAUSE_SHARE))


# `SharedRoles`: cluster roles that stand for the role in each namespace, so that a node needs one call less (KU-3).
#
# Two launchers may make one at the same moment, and an operator may have made it before: it is used as it is, unless it
# gives other rights than nodes need.

shared_roles_log = logging.getLogger("nodepool.driver.kubernetes.SharedRoles")

#: Seconds after which it is tried again whether a cluster role can be made: somebody may have given us the right.
AGAIN_SECONDS: Final = 600.0


class SharedRoles:
    """Makes them if they are missing. Thread-safe.

    :param required: False = nodes get a role of their namespace where a cluster role cannot be used.
    """

    def __init__(self, client: KubeClient, *, required: bool, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._required = required
        self._clock = clock
        # Looked at again from time to time: somebody may delete one.
        self._made = {is_pod: Fact(functools.partial(self._make, is_pod), clock) for is_pod in (True, False)}
        #: Names of those that are not used: a change is logged once.
        self._unused: set[str] = set()
        #: Until when none is used, because a binding to one was refused. Monotonic seconds.
        self._not_before = float("-inf")

    def name_of(self, is_pod: bool) -> str | None:
        """The role for what a node gets; None = it must be a role of its namespace. Blocks.

        :param is_pod: a pod, or a whole namespace.
        :raises LaunchError: what the API says.
        """
        if self._clock() < self._not_before:
            return None
        return self._made[is_pod].get(AGAIN_SECONDS)

    def forget(self) -> None:
        """One of them is missing."""
        for made in self._made.values():
            made.clear()

    def binding_refused(self, error: CloudRefused) -> None:
        """A binding to one of them was refused: it may give rights now that we do not have ourselves."""
        if not self._required:
            self._not_before = self._clock() + AGAIN_SECONDS
            self.forget()
            shared_roles_log.info(
                "Provider %s: for a while each namespace gets a role of its own: %s", self._client.provider, error
            )

    def _make(self, is_pod: bool) -> str | None:
        role = objects.shared_role(is_pod)
        name = str(role["metadata"]["name"])
        try:
            made = kubernetes_client.create(self._client, kubernetes_client.CLUSTER_ROLES, role)
        except CloudRefused as error:
            if self._required or error.status != 403:
                raise
            self._unusable(
                name, f"{error}; give the account the right to create clusterroles: a node costs a call less"
            )
            return None
        if made is None and not self._required and self._gives_others(name, role):
            self._unusable(name, "it is there, and gives other rights than nodes need; correct or delete it")
            return None
        if name in self._unused:
            self._unused.discard(name)
            shared_roles_log.info(
                "Provider %s: nodes get their rights from the cluster role %s now", self._client.provider, name
            )
        return name

    def _gives_others(self, name: str, role: kubernetes_client.Object) -> bool:
        """Does one that is there give other rights than ours? If we may not read it, nobody knows: it is used."""
        try:
            found = self._client.call("GET", f"{kubernetes_client.CLUSTER_ROLES}/{name}")
        except CloudRefused:
            return False
        return bool(_rights(found.get("rules") or []) != _rights(role["rules"]))

    def _unusable(self, name: str, why: str) -> None:
        if name not in self._unused:
            self._unused.add(name)
            shared_roles_log.info(
                "Provider %s: each namespace gets a role of its own, without the cluster role %s: %s",
                *(self._client.provider, name, why),
            )


def _rights(rules: list[kubernetes_client.Object]) -> set[tuple[str, str, str, str]]:
    """What rules allow, however it is written: group, resource, verb, and of which objects if not of all."""
    return {
        (group, resource, verb, name)
        for rule in rules
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for verb in rule.get("verbs") or ()
        for name in rule.get("resourceNames") or ("",)
    }


# `DefaultAccounts`: wakes launches when the cluster has made the service account of their namespace.
#
# The API takes no pod before that. The controller that makes it is limited to some 20 namespaces a second, so pods of a
# burst would be sent again and again. Before Kubernetes 1.24 a pod that gets a token also waits until the account names
# a secret with one.

accounts_log = logging.getLogger("nodepool.driver.kubernetes.DefaultAccounts")


KIND: Final = "account"


class DefaultAccounts(Listener):
    """One watch of these accounts; it begins with the first launch that waits. Thread-safe.

    :param client: of the cluster.
    """

    def __init__(self, client: KubeClient) -> None:
        self._provider = client.provider
        self._held = HeldTogether(self._work)
        fields = f"metadata.name={DEFAULT_ACCOUNT}"
        self._watch = Watch(client, KIND, core("serviceaccounts"), "", self, fields, (self._held,))
        #: Guards what follows.
        self._lock = threading.Lock()
        self._started = self._stopped = False
        #: Does the watch tell of accounts?
        self._watching = False
        #: Does the cluster take no pod before the account has a token?
        self._tokens_needed = False
        #: Namespaces whose launch waits; those of them that have an account, and whether that has a token.
        self._waiting: dict[str, _WaitingLaunch] = {}
        self._there: dict[str, bool] = {}

    def wait_for(self, namespace: str, wake: Callable[[], None], token: bool = True) -> None:
        """A launch begins, before it makes its namespace.

        :param wake: called in the thread of the watch; must not block.
        :param token: does the pod get a token of the account?
        """
        work = held_work()
        with self._lock:
            self._waiting[namespace] = _WaitingLaunch(wake, token, work)
            self._there.pop(namespace, None)
            starts = not self._started and not self._stopped
            if starts:
                self._started = True
                self._watch.start()
        self._held.join(work)

    def over(self, namespace: str) -> None:
        """The launch has ended, or its pod was made."""
        with self._lock:
            self._waiting.pop(namespace, None)
            self._there.pop(namespace, None)

    def is_missing(self, namespace: str) -> bool:
        """Has the cluster not made the account, or its token, yet? False = it has, or nobody knows."""
        with self._lock:
            waiting = self._waiting.get(namespace)
            if waiting is None or not self._watching:
                return False
            has_token = self._there.get(namespace)
            return has_token is None or (self._tokens_needed and waiting.token and not has_token)

    def need_tokens(self) -> None:
        """The cluster has refused a pod because the account has no token."""
        with self._lock:
            self._tokens_needed = True

    def stop(self) -> None:
        """End; the client must be closed, too."""
        with self._lock:
            self._stopped = True
        self._watch.stop()

    def join(self) -> None:
        """Wait for the end, after `stop`."""
        self._watch.join()

    def _work(self) -> list[HeldTime]:
        with self._lock:
            return [held for waiting in self._waiting.values() for held in waiting.work]

    # -- what the watch tells --

    def listed(self, kind: str, found: list[Object], started: float) -> None:
        with self._lock:
            self._watching = True
            # Those of namespaces that went while nobody was told of it.
            for namespace in self._there.keys() - {_namespace_of(account) for account in found}:
                del self._there[namespace]
            woken = [wake for account in found if (wake := self._made(account)) is not None]
        for wake in woken:
            wake()

    def changed(self, kind: str, found: Object, gone: bool) -> None:
        with self._lock:
            if gone:
                self._there.pop(_namespace_of(found), None)
                return
            wake = self._made(found)
        if wake is not None:
            wake()

    def refused(self, kind: str, error: LaunchError | None) -> None:
        with self._lock:
            self._watching = error is None
            waiting = [waiting.wake for waiting in self._waiting.values()]
        if error is not None:
            accounts_log.info(
                "Provider %s: accounts cannot be watched, pods are sent until they are taken: %s", self._provider, error
            )
            for wake in waiting:
                wake()

    def _made(self, account: Object) -> Callable[[], None] | None:
        """Who is to be woken. Called with the lock."""
        namespace = _namespace_of(account)
        waiting = self._waiting.get(namespace)
        has_token = any("-token-" in str(secret.get("name")) for secret in account.get("secrets") or [])
        if waiting is None or self._there.get(namespace) == has_token:
            return None
        is_news = namespace not in self._there or (self._tokens_needed and waiting.token)
        self._there[namespace] = has_token
        return waiting.wake if is_news else None


class _WaitingLaunch(NamedTuple):
    """A launch; see `DefaultAccounts.wait_for`."""

    wake: Callable[[], None]
    token: bool
    work: tuple[HeldTime, ...]


def _namespace_of(account: Object) -> str:
    return str((account.get("metadata") or {}).get("namespace"))
