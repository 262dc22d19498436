# SPDX-License-Identifier: Apache-2.0
"""The launch of a node in a namespace of its own, with or without a pod (KU-2).

First `NamespaceCreation`, then how its pod is followed.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.kubernetes import client, objects
from nodepool.driver.kubernetes.client import NotYet
from nodepool.driver.kubernetes.cloud import KubeCloud
from nodepool.driver.kubernetes.config import PodLabel
from nodepool.driver.kubernetes.objects import KubeRecord, PodView, TokenView, need_of
from nodepool.driver.statemachine import CloudInstance, CreationKey, CreationMachine, DeletionMachine, Instance, Order
from nodepool.driver.statemachine import instance as tags
from nodepool.driver.statemachine.adapter import Log
from nodepool.exceptions import LaunchError, LaunchStatusException
from nodepool.guard import OnError
from nodepool.plan.retries import Backoff

#: For what the cluster makes by itself a moment after the namespace.
NOT_YET: Final = Backoff(0.05, 1.0)
NOT_YET_TIMES: Final = 30
#: So long a pod is not sent while it is known that its namespace has no account; then it is sent all the same.
ACCOUNT_SECONDS: Final = 30.0
#: Of the instance itself, among unique ids.
_PLACE: Final = ""


#: A namespace that is still there after so long is reported, with what holds it.
STUCK_SECONDS: Final = 60.0


class KubeDeletion(DeletionMachine[KubeRecord]):
    """Deletes a namespace, a project or a pod. Its record stays until the API says that it does not exist any more."""

    cloud: KubeCloud
    _reported: str = ""

    def busy(self, error: LaunchError) -> bool:
        return isinstance(error, NotYet)

    def begun(self, record: KubeRecord) -> bool:
        return record.terminating

    def advance(self) -> Any:
        result = super().advance()
        if self.complete and self.external_id is not None:
            self.cloud.over(self.external_id)
        record = None if self.complete or self.external_id is None else self.cloud.inventory.get(self.external_id)
        stuck = record is not None and record.terminating and monotonic() - self.start_time >= STUCK_SECONDS
        if record is not None and stuck and record.status != self._reported:
            self._reported = record.status
            self.log.warning("%s is still there, %s", record.id, record.status)
        return result


class NamespaceCreation(CreationMachine[KubeRecord]):
    """Makes a namespace and what belongs into it, and waits until it can be used.

    Names are keys: what is sent again finds what was made before.
    """

    idempotent = True
    deletion_class = KubeDeletion
    cloud: KubeCloud
    label: PodLabel
    #: Type of the connection without a pod, as Zuul knows it.
    place_connection: ClassVar[str] = "namespace"
    #: Does the connection have the old key ``name``, too?
    with_name: ClassVar[bool] = True

    def __init__(self, cloud: KubeCloud, order: Order) -> None:
        super().__init__(cloud, order)
        label = order.label
        self.labels = objects.labels_of(label, self.metadata, order.request, order.log)
        self.name = self.name_of(label, self.metadata)
        self.pod_name: str | None = label.name if label.is_pod else None
        self._judge = PodJudge(self.where, order.log)
        #: What is still to be made in the namespace; None = the namespace is, too. Of the thread that creates.
        self._left: deque[tuple[str, client.Object]] | None = None
        #: Unique ids of what was made, by path of its kind; what is missing is not known: its answer was lost.
        self._uids: dict[str, str] = {}
        #: Do the watches know that this launch waits for what they tell?
        self._awaits = False
        #: How often a creation was put off.
        self._put_off = 0
        #: When the pod is sent although its namespace has no account as far as we know; None = it is not its turn yet.
        self._try_at: float | None = None
        #: Was the pod put off until the account is there?
        self._awaits_account = False

    @classmethod
    def name_of(cls, label: Any, metadata: Mapping[str, str]) -> str:
        """The id of the instance of a node."""
        return f"{metadata[tags.POOL_KEY]}-{metadata[tags.NODE_KEY]}"

    def id_in_advance(self) -> str:
        return self.name

    # -- what is made --

    def create(self, key: CreationKey) -> str:
        if self._left is None:
            self._await_what_comes()
            self.make_place()
            self._left = deque(self.content())
        # One that is sent again goes on with the object that was not made, or not answered.
        while self._left:
            path, body = self._left[0]
            if self._is_turn_of("pods"):
                if self.cloud.accounts.is_missing(self.name) and self._account_pause() > 0:
                    # The API would refuse it.
                    text = f"the cluster has not made the service account of namespace {self.name}"
                    raise NotYet(f"{self.where}: {text}")
                self._try_at = None
            self.keep_uid(path, client.create(self.cloud.client, path, body, self.permit))
            self._left.popleft()
        self.cloud.filled(self.name)
        return self.name

    def _await_what_comes(self) -> None:
        """Before the first order. What was reported since then must not be forgotten when it is sent again."""
        if self._awaits:
            return
        self._awaits = True
        self.cloud.awaited(self.name, self.pod_name)
        account = (self.label.spec or {}).get("serviceAccountName") or objects.DEFAULT_ACCOUNT
        if self.pod_name is not None and account == objects.DEFAULT_ACCOUNT:
            self.cloud.accounts.wait_for(self.name, lambda: self.wake())

    def content(self) -> list[tuple[str, client.Object]]:
        """What is made in the namespace, in this order: path and object."""
        name, labels = self.name, self.labels
        # Is the account that the cluster makes that of the job? Its rights must not be those of whatever runs in the
        # namespace: there may be no pod but ours, and that must have no token of it. A ``spec`` is used as it is.
        by_cluster = self.cloud.shared_roles is not None and self.pod_name is not None and self.label.spec is None
        account = objects.DEFAULT_ACCOUNT if by_cluster else objects.WORKER
        secret = (client.core("secrets", name), objects.token_secret(labels, account))
        found = []
        if not by_cluster:
            found += [(client.core("serviceaccounts", name), objects.service_account(labels)), secret]
        found += self.rights_of(account)
        if self.pod_name is not None:
            pod = objects.pod(self.pod_name, self.label, labels, token=not by_cluster)
            found.append((client.core("pods", name), pod))
        if by_cluster:
            # The API takes a pod only when the account is there. A secret that comes before the account is deleted.
            found.append(secret)
        return found

    def rights_of(self, account: str) -> list[tuple[str, client.Object]]:
        """What gives an account of the namespace the rights of the job (KU-3)."""
        name, labels, is_pod = self.name, self.labels, self.label.is_pod
        roles = self.cloud.shared_roles
        shared = None if roles is None else roles.name_of(is_pod)
        found = []
        if shared is None:
            found.append((f"{client.RBAC}/{name}/roles", objects.role(labels, is_pod)))
        binding = objects.role_binding(name, labels, is_pod, shared, account)
        found.append((f"{client.RBAC}/{name}/rolebindings", binding))
        return found

    def make_place(self) -> None:
        """Make the namespace, or find it as made by a call whose answer was lost."""
        body = objects.namespace(self.name, self.labels, self.label.annotations)
        made = client.create(self.cloud.client, client.NAMESPACES, body, self.permit)
        self.check_place(made or self.found_place(client.NAMESPACES))

    def found_place(self, path: str) -> client.Object:
        """The namespace or project of our name that was there."""
        # Its account may have been reported before this launch waited for it.
        self.cloud.accounts.over(self.name)
        found: client.Object = self.cloud.client.get(f"{path}/{self.name}")
        return found

    def check_place(self, found: client.Object) -> None:
        """Is a namespace of our name ours?"""
        view = self.cloud.view_of_place(found)
        if tags.node_id_of(view.metadata, self.cloud.provider) != self.node_id:
            raise LaunchStatusException(f"{self.where}: there is a namespace {self.name} of another owner")
        if view.terminating:
            raise LaunchStatusException(f"{self.where}: namespace {self.name} is being deleted: {view.held_by}")
        self.place_is(found)

    def place_is(self, found: client.Object) -> None:
        """The instance of this launch is there."""
        self.keep_uid(_PLACE, found)
        self.cloud.made(self.name, str(found["metadata"].get("uid")))

    def keep_uid(self, path: str, made: client.Object | None) -> None:
        """An object was made; None = it was there already."""
        uid = None if made is None else (made.get("metadata") or {}).get("uid")
        if uid:
            self._uids[path] = uid

    def put_off(self, error: Exception) -> float | None:
        """Waits for what the cluster makes by itself; no thread does."""
        if self._put_off >= NOT_YET_TIMES or not self.not_yet(error):
            return None
        self.waits_for = str(error)
        self.log.debug("Not yet: %s", error)
        self._awaits_account = self._is_turn_of("pods") and self.cloud.accounts.is_missing(self.name)
        if self._awaits_account:
            return self._account_pause()
        self._put_off += 1
        return NOT_YET.pause(self._put_off)

    def hurries(self) -> bool:
        return self._awaits_account and not self.cloud.accounts.is_missing(self.name)

    def _is_turn_of(self, plural: str) -> bool:
        return bool(self._left and self._left[0][0].endswith(f"/{plural}"))

    def _account_pause(self) -> float:
        """Seconds until the pod is sent all the same, because what is stated of the account may be wrong."""
        now = monotonic()
        if self._try_at is None:
            self._try_at = now + ACCOUNT_SECONDS
        return max(0.0, self._try_at - now)

    def not_yet(self, error: Exception) -> bool:
        """Was an object refused only because the cluster is not ready for it?"""
        return isinstance(error, NotYet)

    def advance(self) -> Any:
        with OnError(lambda _: self.cloud.over(self.name)):
            return super().advance()

    def refused(self, error: Exception) -> Exception:
        if not isinstance(error, CloudRefused) or error.status != 404:
            return error
        roles = self.cloud.shared_roles
        if roles is not None and "clusterrole" in error.said.lower():
            # The next attempt makes it again.
            roles.forget()
            return error
        return LaunchStatusException(f"{self.where}: namespace {self.name} was deleted by another program")

    # -- what is waited for --

    def lets_go_on(self, record: KubeRecord | None) -> bool:
        own = None if record is None else self._own(record)
        if own is None:
            return record is None
        if own.terminating:
            return True
        if self.pod_name is None or (own.pod is not None and own.pod.verdict.ready):
            return self._has_token(own)
        # Where nothing is watched the token is not asked for before the pod runs.
        return self._judge.worth_a_look(own.pod)

    def seen(self, record: KubeRecord) -> Instance | bool:
        own = self._own(record)
        if own is None:
            self.waits_for = f"the cluster has reported only another {record.id}, of the attempt before"
            return False
        if own.terminating:
            raise LaunchStatusException(f"{self.where}: namespace {own.id} is being deleted by another program")
        self.waits_for = ""
        if self.pod_name is not None:
            runs = self._judge.look(own.pod)
            self.waits_for = self._judge.waits_for
            if not runs:
                self.next_advance_seconds = self._judge.next_look(self.next_advance_seconds)
                return False
        if not self._has_token(own):
            self.waits_for = "the cluster has not made a token for the service account"
            return False
        self.cloud.over(self.name)
        return self.instance(own)

    def instance(self, record: KubeRecord) -> CloudInstance:
        """A node that can be used, as the framework, and Zuul, sees it (KU-8, KU-9; reference/zookeeper 5.5)."""
        label, connection, token = self.label, self.cloud.client.connection, self.token_of(record)
        access = connection.access()
        port = {"namespace": token.place, "host": access.host, "skiptls": access.skip_tls, "token": token.token}
        port |= {"user": objects.WORKER}
        if not access.skip_tls:
            port["ca_crt"] = token.ca
        if self.with_name:
            port["name"] = token.place
        given: dict[str, Any] = {"cloud": connection.context, "connection_port": port}
        given |= {"connection_type": self.place_connection, "has_address": record.pod is not None}
        if self.pod_name is not None and record.pod is not None:
            port["pod"] = record.pod.name
            given |= {"connection_type": "kubectl", "interface_ip": record.pod.name, "host_id": record.pod.host}
        image = {"python_path": label.python_path, "shell_type": label.shell_type}
        return CloudInstance(record, need_of(label), ready=True, **image, **given)

    def token_of(self, record: KubeRecord) -> TokenView:
        """What is handed out."""
        assert record.token is not None
        return record.token

    def _own(self, record: KubeRecord) -> KubeRecord | None:
        """What of a record is of this attempt: watches may tell of the last one, too. None = nothing."""
        if self._uids.get(_PLACE, record.uid) != record.uid:
            return None
        pod, token = record.pod, record.token
        if pod is not None and self._uids.get(client.core("pods", self.name), pod.uid) != pod.uid:
            pod = None
        if token is not None and self._uids.get(client.core("secrets", self.name), token.uid) != token.uid:
            token = None
        return dataclasses.replace(record, pod=pod, token=token)

    def _has_token(self, record: KubeRecord) -> bool:
        return record.token is not None and bool(record.token.token)


# `PodJudge`: follows the pod of one launch: says what keeps it, and ends the launch when it never will run.

#: How long to wait for what may mend itself in a moment.
MENDING_SECONDS: Final = 10.0


class PodJudge:
    """For one launch.

    :param where: whose launch it is, for texts.
    """

    def __init__(self, where: str, log: Log) -> None:
        self._where = where
        self._log = log
        self._uid: str | None = None
        self._told = ""
        #: Since when the pod is in trouble that ends the launch if it lasts.
        self._trouble_since: float | None = None
        #: What keeps the pod, in the cluster's words.
        self.waits_for = ""

    def worth_a_look(self, pod: PodView | None) -> bool:
        """Is what was reported of the pod worth a step?"""
        if pod is None:
            return self._uid is not None
        return pod.terminating or pod.verdict.ready or bool(pod.verdict.problem)

    def look(self, pod: PodView | None) -> bool:
        """Does the pod run?

        :raises LaunchStatusException: it never will.
        """
        if pod is None:
            if self._uid is not None:
                raise LaunchStatusException(f"{self._where}: the pod was deleted by another program")
            return False
        self._uid = pod.uid
        verdict = pod.verdict
        if pod.terminating:
            raise LaunchStatusException(f"{self._where}: the pod is being deleted by others")
        now = monotonic()
        self._trouble_since = (self._trouble_since or now) if verdict.later else None
        if verdict.fatal or now - (self._trouble_since or now) >= MENDING_SECONDS:
            raise LaunchStatusException(f"{self._where}: the pod cannot run: {verdict.problem}")
        self.waits_for = verdict.problem
        if verdict.problem and verdict.problem != self._told:
            self._told = verdict.problem
            self._log.warning("The pod cannot run yet: %s", verdict.problem)
        return verdict.ready

    def next_look(self, otherwise: float | None) -> float | None:
        """When to look again though nothing was reported, in seconds."""
        if self._trouble_since is None:
            return otherwise
        left = max(0.0, self._trouble_since + MENDING_SECONDS - monotonic())
        return left if otherwise is None else min(left, otherwise)
