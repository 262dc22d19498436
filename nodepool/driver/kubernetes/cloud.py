# SPDX-License-Identifier: Apache-2.0
"""What launches and deletions of one Kubernetes provider share. Its inventory is fed by watches.

First how objects are watched, then `KubeCloud`, then cluster roles that nodes share, then the accounts that launches
wait for.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.rate import HeldTime, working_for
from nodepool.driver.kubernetes import client as kubernetes_client
from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.client import EXPIRED, KubeClient, Object, OtherOfTheName, core, refusal
from nodepool.driver.kubernetes.connection import CONNECT_SECONDS, READ_SECONDS
from nodepool.driver.statemachine import CloudInstance, InstanceCloud, WatchedInventory
from nodepool.driver.statemachine import instance as tags
from nodepool.driver.statemachine.instance import GONE
from nodepool.exceptions import LaunchError, NotFound
from nodepool.guard import Guard
from nodepool.model.node import QuotaInformation
from nodepool.plan.retries import Backoff

log = logging.getLogger("nodepool.driver.kubernetes.KubeCloud")

# `Watch`: shows what changes in one kind of objects, in a thread of its own.

watch_log = logging.getLogger("nodepool.driver.kubernetes.Watch")

#: From a watch that failed to the next one.
RETRY: Final = Backoff(0.25, 15.0)
#: The same for one that was refused: rights may be given later.
REFUSED_SECONDS: Final = 120.0
#: A watch that ends before this without having reported anything is not usual: the next one waits.
SHORT_SECONDS: Final = 1.0


class Listener:
    """What is reported, in the thread of the watch. Must not block for long."""

    def listed(self, kind: str, found: list[Object], started: float) -> None:
        """All objects, when the watch begins.

        :param started: when the list was begun, monotonic seconds.
        """

    def changed(self, kind: str, found: Object, gone: bool) -> None:
        """An object is new, changed, or deleted."""

    def heard(self, kind: str) -> None:
        """The API gave a sign of life."""

    def refused(self, kind: str, error: LaunchError | None) -> None:
        """The API does not let us watch this kind; None = it does again."""


class Watch:
    """Watches one kind of objects from `start` to `stop`.

    Resumes where it was after each end, and lists all objects again only when the API has forgotten that point.

    :param kind: as the listener knows it.
    :param path: of the kind in the API.
    :param selector: of labels; ``fields``: of fields.
    :param held: waits while the watch waits for its turn to call the API.
    """

    def __init__(
        self,
        client: KubeClient,
        kind: str,
        path: str,
        selector: str,
        listener: Listener,
        fields: str = "",
        held: tuple[HeldTime, ...] = (),
    ) -> None:
        self._client = client
        self._kind = kind
        self._path = path
        self._selector = selector
        self._fields = fields
        self._listener = listener
        self._held = held
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        #: Where to resume; "" = nowhere.
        self._version = ""
        self._refused = False
        #: Turns in a row that showed nothing, and failed, ended at once, or with a version that is too old.
        self._vain = 0
        #: Has the watch shown something in this turn?
        self._told = False

    def start(self) -> None:
        """Begin; does not block."""
        name = f"{self._client.provider}-watch-{self._kind}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End soon; the client must be closed, too."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for the end, after `stop`."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            pause = 0.0
            # Whatever it is, the thread goes on: all launches wait for it.
            text = "Provider %s: the watch of %s failed"
            with Guard(watch_log, text, self._client.provider, self._path) as guard, working_for(self._held):
                pause = self.turn()
            if guard.error is not None:
                self._version = ""
                pause = RETRY.longest_seconds
            self._stopped.wait(pause)

    def turn(self) -> float:
        """List if need be, and watch until the stream ends; blocks. Returns the seconds until the next turn."""
        begun, self._told = monotonic(), False
        try:
            if not self._version:
                found, self._version = self._client.list(self._path, self._selector, self._fields)
                self._listener.listed(self._kind, found, begun)
                self._worked()
            begun = monotonic()
            for event in self._client.watch(self._path, self._version, self._selector, self._fields):
                if self._stopped.is_set():
                    break
                self._take(event)
                self._worked()
        except CloudRefused as error:
            return self._was_refused(error)
        except LaunchError as error:
            if self._stopped.is_set():
                return 0.0
            pause = self._in_vain(0)
            level = logging.DEBUG if self._vain == 1 else logging.WARNING
            watch_log.log(level, "%s; watched again in %g s", error, pause)
            return pause
        if monotonic() - begun < SHORT_SECONDS and not self._told:
            return self._in_vain(1)
        self._vain = 0
        return 0.0

    def _in_vain(self, free: int) -> float:
        """Seconds until the next turn. :param free: so many turns in a row are in vain without a pause."""
        self._vain = 1 if self._told else self._vain + 1
        return RETRY.pause(self._vain - free) if self._vain > free else 0.0

    def _take(self, event: Object) -> None:
        kind, found = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            head = f"Provider {self._client.provider}: WATCH {self._path}"
            # client-go takes one without a status for 500, too.
            status = int(found["code"]) if str(found.get("code")).isdecimal() else 500
            raise refusal(head, status, str(found.get("reason") or ""), str(found.get("message") or ""))
        version = (found.get("metadata") or {}).get("resourceVersion")
        if kind == "BOOKMARK":
            self._listener.heard(self._kind)
        elif kind in ("ADDED", "MODIFIED", "DELETED"):
            self._listener.changed(self._kind, found, gone=kind == "DELETED")
        # Only now: what a listener failed with is reported again.
        self._version = str(version or self._version)
        self._told = True

    def _worked(self) -> None:
        if self._refused:
            self._refused = False
            self._listener.refused(self._kind, None)

    def _was_refused(self, error: CloudRefused) -> float:
        self._version = ""
        if error.status == EXPIRED:
            watch_log.info("Provider %s: %s is listed again: %s", self._client.provider, self._path, error.said)
            return self._in_vain(1)
        if not self._refused:
            self._refused = True
            self._listener.refused(self._kind, error)
        return REFUSED_SECONDS


# `KubeCloud`: namespaces of one provider, and what is in them.

#: Paths of what is watched in the whole cluster.
WATCHED: Final = {
    objects.PLACE: kubernetes_client.NAMESPACES,
    objects.POD: kubernetes_client.core("pods"),
    objects.SECRET: kubernetes_client.core("secrets"),
}


#: From one look at a pod or secret that no watch reports to the next.
LOOK: Final = Backoff(0.25, 3.0, factor=1.25)


@dataclass
class AwaitedContent:
    """A launch that waits for its pod, and for its token, where no watch reports them.

    :param pod: name of the pod; None = there is none.
    :param has_token: the token was seen.
    :param look_at: monotonic seconds; before all was made there is nothing to see.
    """

    pod: str | None
    has_token: bool = False
    look_at: float = float("inf")
    looks: int = 0


class KubeCloud(InstanceCloud[objects.KubeRecord], Listener):
    """Namespaces of one provider, and what is in them.

    What the API does not let us watch is asked for, for each namespace whose launch waits for it.

    :param client: of the cluster.
    """

    inventory_class = WatchedInventory
    inventory: WatchedInventory[objects.KubeRecord]
    call_seconds = CONNECT_SECONDS + READ_SECONDS
    #: Where namespaces are listed and deleted.
    places_path: ClassVar[str] = kubernetes_client.NAMESPACES
    #: Paths of kinds that are watched.
    watched: Mapping[str, str] = WATCHED

    def __init__(self, provider: str, client: KubeClient) -> None:
        super().__init__(provider)
        self.client = client
        self.selector = f"{tags.PROVIDER_KEY}={provider}"
        #: The same for lists of namespaces.
        self.selector_of_places = self.selector
        #: None = each namespace has a role of its own, and a pod an account of its own.
        self.shared_roles: SharedRoles | None = None
        #: What a node uses whose objects have some metadata.
        self.need_by: Callable[[Mapping[str, str]], QuotaInformation] = lambda _: QuotaInformation(instances=1)
        self.accounts = DefaultAccounts(client)
        #: Namespaces whose launch waits.
        self._awaited: dict[str, AwaitedContent] = {}
        self.objects = objects.NodeObjects(awaited=self._awaited.__contains__)
        self.inventory.on_start = self._start_watches
        self.inventory.on_end = lambda record: self.tell_lost(record, (GONE, f"{record.id} was deleted"))
        held = (self.inventory.held,)
        self._watches = [
            Watch(client, kind, path, self.selector, self, held=held) for kind, path in self.watched.items()
        ]
        #: Held from the look at all objects of a node until the inventory knows of it: else one watch could put back a
        #: node of which another one has just reported the end.
        self._telling = threading.Lock()
        #: Guards ``_awaited`` and what follows.
        self._kinds_lock = threading.Lock()
        #: Kinds that are not watched.
        self._asked = {kind for kind in WATCHED if kind not in self.watched}
        self.inventory.lists = bool(self._asked)
        #: The unique id of the namespace that was made last under a name.
        self._made: dict[str, str] = {}

    def instance(self, record: objects.KubeRecord) -> CloudInstance:
        return CloudInstance(record, self.need_by(record.metadata), deleted=record.gone)

    # -- watches --

    def _start_watches(self) -> None:
        for watch in self._watches:
            watch.start()

    def listed(self, kind: str, found: list[Object], started: float) -> None:
        views = [view for item in found if (view := _view(kind, item)) is not None]
        with self._telling:
            records, gone = self.objects.replace(kind, views, started)
            if kind == objects.PLACE:
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
            record = self.objects.remove(kind, view) if gone else self.objects.put(kind, view)
            if record is not None:
                self.inventory.put(record)
            elif gone and kind == objects.PLACE:
                self._end(found["metadata"]["name"], found["metadata"].get("uid"))
        if gone and kind == objects.POD and record is not None:
            self.tell_lost(record, (GONE, f"pod {view.name} of namespace {view.place} was deleted"))

    def _end(self, name: str, uid: str | None) -> None:
        """A namespace is deleted. One made after it under its name may have been listed, but not reported, yet."""
        known = self.inventory.get(name)
        if known is None or known.uid == uid:
            self.inventory.remove(name, self.made_anew(name, uid))
        with self._kinds_lock:
            if self._made.get(name) == uid:
                del self._made[name]

    def heard(self, kind: str) -> None:
        if kind == objects.PLACE:
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
        # The end of the one before may have been reported while it was made.
        self.inventory.revive(name)

    def filled(self, name: str) -> None:
        """All that belongs into it was made."""
        with self._kinds_lock:
            content = self._awaited.get(name)
            if content is not None:
                content.look_at = monotonic()

    def made_anew(self, name: str, uid: str | None) -> bool:
        """Was another one made under the name of one that is deleted, of which no watch has reported yet?"""
        with self._kinds_lock:
            return self._made.get(name, uid) != uid

    def over(self, name: str) -> None:
        """A launch has ended, well or badly, or a deletion."""
        with self._kinds_lock:
            self._awaited.pop(name, None)
            self._made.pop(name, None)
        self.accounts.over(name)

    # -- lists --

    def list_instances(self, since: str | None) -> list[objects.KubeRecord]:
        started = monotonic()
        found, _ = self.client.list(self.places_path, self.selector_of_places)
        with self._kinds_lock:
            asked, awaited = set(self._asked), dict(self._awaited)
        views = [view for item in found if self.is_ours(view := self.view_of_place(item), awaited)]
        if objects.PLACE in asked:
            self.objects.replace(objects.PLACE, views, started)
        for view in views:
            content = awaited.get(view.id)
            if content is not None and not view.terminating and monotonic() >= content.look_at:
                self._ask_for_content(view.id, content, asked)
                content.looks += 1
                content.look_at = monotonic() + LOOK.pause(content.looks)
        return [self.objects.record_of(view) for view in views]

    def _ask_for_content(self, name: str, content: AwaitedContent, asked: set[str]) -> None:
        """Ask for what a launch waits for, and no watch tells: the pod, and when that runs the token."""
        try:
            if objects.POD in asked and content.pod is not None:
                found = objects.PodView(self.client.get(f"{kubernetes_client.core('pods', name)}/{content.pod}"))
                self.objects.put(objects.POD, found)
                if not found.verdict.ready:
                    return
            if objects.SECRET in asked and not content.has_token:
                token = objects.token_view(
                    self.client.get(f"{kubernetes_client.core('secrets', name)}/{objects.WORKER}")
                )
                if token is not None:
                    self.objects.put(objects.SECRET, token)
                    content.has_token = bool(token.token)
        except CloudRefused as error:
            # It may be deleted, or our rights in it. That is the matter of its launch: the others wait for this list.
            log.debug("Provider %s: what is in %s cannot be read: %s", self.provider, name, error)

    def get_instance(self, record_id: str) -> objects.KubeRecord:
        view = self.view_of_place(self.client.get(f"{self.places_path}/{record_id}"))
        if not self.is_ours(view, (record_id,)):
            raise NotFound(f"{record_id} is not a namespace of this provider")
        return self.objects.record_of(view)

    def why_ended(self, record: objects.KubeRecord) -> tuple[str, str] | None:
        if record.terminating:
            return "Terminating", f"{record.id} is being deleted"
        if record.pod is not None and (record.pod.terminating or record.pod.verdict.ended):
            return "Pod", record.pod.verdict.problem or f"pod {record.pod.name} is being deleted"
        return None

    def view_of_place(self, found: Object) -> objects.KubeRecord:
        """What is kept of a namespace."""
        return objects.place_view(found)

    def is_ours(self, place: objects.KubeRecord, named: Container[str]) -> bool:
        """Was a namespace made for a node of this provider?

        :param named: names of those that nodes of ours should have.
        """
        return place.metadata.get(tags.PROVIDER_KEY) == self.provider

    # -- deletions --

    def gone_already(self, record_id: str) -> bool:
        """Never. Names are used again: another launcher may have made one, of which no watch has reported here yet."""
        self.inventory.revive(record_id)
        return False

    def delete_instance(self, record_id: str) -> None:
        known = self.inventory.get(record_id)
        if known is not None:
            with contextlib.suppress(OtherOfTheName):
                self.delete_seen(known)
                return
        # What the watches have reported is old, or nothing; and what has the name may belong to another.
        found = self.get_instance(record_id)
        # The end of the one before may be reported yet: it is not the end of this one.
        self.made(record_id, found.uid)
        self.delete_seen(found)

    def delete_seen(self, record: objects.KubeRecord) -> None:
        kubernetes_client.delete(self.client, self.path_of(record), record.uid)

    def path_of(self, record: objects.KubeRecord) -> str:
        """Of what an instance is, in the API."""
        return f"{self.places_path}/{record.id}"


def _view(kind: str, found: Object) -> Any:
    """What is kept of an object; None = nothing, also of one that lacks what all have."""
    try:
        view: Any = objects.VIEWS[kind](found)
    except (KeyError, TypeError, ValueError) as error:
        log.warning("A %s cannot be understood, it is left out: %r", kind, error)
        return None
    return view


# `SharedRoles`: cluster roles that stand for the role in each namespace, so that a node needs one call less (KU-3).
#
# Two launchers may make one at the same moment, and an operator may have made it before: it is used as it is.

shared_roles_log = logging.getLogger("nodepool.driver.kubernetes.SharedRoles")

#: Seconds after which it is tried again whether a cluster role can be made: we may have the right by then.
AGAIN_SECONDS: Final = 600.0


class SharedRoles:
    """Makes them if they are missing. Thread-safe."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        # Looked at again from time to time: they may have been deleted.
        self._made = {is_pod: Fact(functools.partial(self._make, is_pod)) for is_pod in (True, False)}

    def name_of(self, is_pod: bool) -> str | None:
        """The role for what a node gets; None = it must be a role of its namespace. Blocks.

        :param is_pod: a pod, or a whole namespace.
        :raises LaunchError: what the API says.
        """
        return self._made[is_pod].get(AGAIN_SECONDS)

    def forget(self) -> None:
        """One of them is missing."""
        for made in self._made.values():
            made.clear()

    def _make(self, is_pod: bool) -> str | None:
        role = objects.shared_role(is_pod)
        name = str(role["metadata"]["name"])
        try:
            kubernetes_client.create(self._client, kubernetes_client.CLUSTER_ROLES, role)
        except CloudRefused as error:
            if error.status != 403:
                raise
            shared_roles_log.info(
                "Provider %s: each namespace gets a role of its own, without the cluster role %s: %s; give the account "
                "the right to create clusterroles: a node costs a call less",
                *(self._client.provider, name, error),
            )
            return None
        return name


# `DefaultAccounts`: wakes launches when the cluster has made the service account of their namespace.
#
# The API takes no pod before that. The controller that makes it is limited to some 20 namespaces a second, so pods of a
# burst would be sent again and again.

accounts_log = logging.getLogger("nodepool.driver.kubernetes.DefaultAccounts")


KIND: Final = "account"


class DefaultAccounts(Watch, Listener):
    """One watch of these accounts; it begins with the first launch that waits. Thread-safe.

    :param client: of the cluster.
    """

    def __init__(self, client: KubeClient) -> None:
        #: Guards what follows.
        self._lock = threading.Lock()
        #: Namespaces that have their account; None = the watch does not tell.
        self._there: set[str] | None = None
        #: By namespace: wakes its launch.
        self._waiting: dict[str, Callable[[], None]] = {}
        super().__init__(client, KIND, core("serviceaccounts"), "", self, f"metadata.name={objects.DEFAULT_ACCOUNT}")

    def wait_for(self, namespace: str, wake: Callable[[], None]) -> None:
        """A launch begins, before it makes its namespace. What was reported of the attempt before does not count.

        :param wake: called in the thread of the watch; must not block.
        """
        with self._lock:
            self._waiting[namespace] = wake
            (self._there or set()).discard(namespace)
            if self._thread is None and not self._stopped.is_set():
                self.start()

    def over(self, namespace: str) -> None:
        """The launch has ended, or its pod was made."""
        with self._lock:
            self._waiting.pop(namespace, None)

    def is_missing(self, namespace: str) -> bool:
        """Has the cluster not made the account yet? False = it has, or that is not known."""
        with self._lock:
            return self._there is not None and namespace in self._waiting and namespace not in self._there

    # -- what the watch tells --

    def listed(self, kind: str, found: list[Object], started: float) -> None:
        there = {_namespace_of(account) for account in found}
        with self._lock:
            new, self._there = there - (self._there or set()), there
            wakes = [wake for namespace, wake in self._waiting.items() if namespace in new]
        for wake in wakes:
            wake()

    def changed(self, kind: str, found: Object, gone: bool) -> None:
        namespace = _namespace_of(found)
        with self._lock:
            there = self._there if self._there is not None else set()
            wake = None if gone or namespace in there else self._waiting.get(namespace)
            (there.discard if gone else there.add)(namespace)
        if wake is not None:
            wake()

    def refused(self, kind: str, error: LaunchError | None) -> None:
        if error is None:
            # The list that was allowed has reported all.
            return
        text = "Provider %s: accounts cannot be watched, pods are sent until they are taken: %s"
        accounts_log.info(text, self._client.provider, error)
        with self._lock:
            self._there, wakes = None, list(self._waiting.values())
        for wake in wakes:
            wake()


def _namespace_of(account: Object) -> str:
    return str((account.get("metadata") or {}).get("namespace"))
