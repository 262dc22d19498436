# SPDX-License-Identifier: Apache-2.0
"""Pods in OpenShift projects that are there.

First the launch, then the adapter, then the pods of one provider, then the configuration.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from nodepool.driver.framework.cloud_errors import CheckResult, CloudNotFound, CloudRefused, failure
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.kubernetes import client as kubernetes_client
from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.adapter import KubernetesAdapter, Needed, rights
from nodepool.driver.kubernetes.client import KubeClient, Object
from nodepool.driver.kubernetes.cloud import KubeCloud
from nodepool.driver.kubernetes.config import AnyPodPool
from nodepool.driver.kubernetes.create import NamespaceCreation
from nodepool.driver.kubernetes.records import (
    POD,
    KubeInstance,
    KubeRecord,
    TokenView,
    pod_record,
    pod_view,
    told_after,
)
from nodepool.driver.openshift.adapter import AnyOpenShiftProvider, PullingLabel
from nodepool.driver.statemachine import CreationKey, Order
from nodepool.driver.statemachine import instance as tags
from nodepool.exceptions import LaunchError, LaunchStatusException, NotFound
from nodepool.model.config_keys import FILLED_TEXT, REQUIRED, WHOLE, Sections, key
from nodepool.model.quota import QuotaInformation

# `PodCreation`: the launch of a pod in a project that is there (OS-6).


def _pod_name(label: Any, metadata: Mapping[str, str]) -> str:
    return f"{label.name}-{metadata[tags.NODE_KEY]}"


class PodCreation(NamespaceCreation):
    """Makes a pod, and hands out our own credentials."""

    with_name = False

    def __init__(self, cloud: KubeCloud, order: Order) -> None:
        super().__init__(cloud, order)
        self.project = self.metadata[tags.POOL_KEY]
        self.pod_name: str = _pod_name(order.label, self.metadata)

    @classmethod
    def name_of(cls, label: Any, metadata: Mapping[str, str]) -> str:
        return f"{metadata[tags.POOL_KEY]}-{_pod_name(label, metadata)}"

    def create(self, key: CreationKey) -> str:
        self.cloud.awaited(self.name, self.pod_name)
        path = kubernetes_client.core("pods", self.project)
        body = objects.pod(self.pod_name, self.label, self.labels)
        client = self.cloud.client
        made = kubernetes_client.create(client, path, body, self.permit) or client.get(f"{path}/{self.pod_name}")
        if tags.node_id_of(made["metadata"].get("labels"), self.cloud.provider) != self.node_id:
            raise LaunchStatusException(f"{self.where}: there is a pod {self.pod_name} of somebody else")
        self.place_is(made)
        return self.name

    def _has_token(self, record: KubeRecord) -> bool:
        return True

    def instance(self, record: KubeRecord, token: TokenView | None = None) -> KubeInstance:
        # Both may be missing: clients with certificates cannot be handed on.
        access = self.cloud.client.connection.access()
        own = TokenView(self.project, "", access.bearer_token() or "", access.authority() or "")
        found = super().instance(record, own)
        for name in ("token", "ca_crt"):
            if name in found.connection_port:
                found.connection_port[name] = found.connection_port[name] or None
        return found


log = logging.getLogger("nodepool.driver.openshiftpods.Adapter")

POD_RIGHTS: Final = rights("pods", "create delete get list watch")


class OpenShiftPodsAdapter(KubernetesAdapter):
    """One cluster; a pool is a project."""

    creation_class = PodCreation

    def make_cloud(self) -> PodCloud:
        return PodCloud(self.config.name, self.client, self.config.pools)

    def getQuotaLimits(self) -> QuotaInformation:
        """What the quotas of the projects leave, where the account may read them; all pools together."""
        own = []
        for project in self.config.pools:
            quotas = self._listed("resourcequotas", project)
            own.append(objects.of_quotas(quotas, self._listed("pods", project, self.cloud.selector) if quotas else []))
        return objects.together(own)

    def _listed(self, kind: str, project: str, selector: str = "") -> list[kubernetes_client.Object]:
        try:
            found, _ = self.client.list(kubernetes_client.core(kind, project), selector)
        except CloudRefused as error:
            # An account that may not read quotas meets them when a launch is refused, which waits then.
            log.debug("Provider %s: quotas of project %s are not known: %s", self.config.name, project, error)
            return []
        return found

    def preflight(self) -> Iterator[CheckResult]:
        found = list(super().preflight())
        yield from found
        if found[0].ok and self.client.connection.access().bearer_token() is None:
            text = "we log in by a client certificate, which jobs cannot use: their nodes have no token"
            yield failure("token", f"{text}; use a context whose user has a token")

    def needed(self) -> Iterator[Needed]:
        for pool in self.config.pools:
            remedy = f"give the user the role: oc -n {pool} policy add-role-to-user edit USER"
            yield f"project {pool}", pool, POD_RIGHTS, remedy


# `PodCloud`: pods of one provider, in projects that are there.

cloud_log = logging.getLogger("nodepool.driver.openshiftpods.PodCloud")


class PodCloud(KubeCloud):
    """A watch for each project. An instance is a pod, its id ``<project>-<pod>`` (OS-6).

    :param projects: their names.
    """

    def __init__(self, provider: str, client: KubeClient, projects: Iterable[str]) -> None:
        self._projects = sorted(projects, key=len, reverse=True)
        # Kinds of the watches are the projects: each is told of, and refused, by itself.
        self.watched = {project: kubernetes_client.core("pods", project) for project in self._projects}
        super().__init__(provider, client)
        self._asked = set()
        self.inventory.lists = False
        #: Of projects whose pods could not be listed.
        self._repeats = Repeats()

    # -- watches --

    def listed(self, kind: str, found: list[Object], started: float) -> None:
        there = {record.id: record for record in map(self._record, found)}
        for record in there.values():
            self.inventory.put(record)
        for record in self.inventory.known():
            if record.pod is not None and record.pod.place == kind and record.id not in there:
                self.inventory.remove(record.id, self.made_anew(record.id, record.uid), started)

    def changed(self, kind: str, found: Object, gone: bool) -> None:
        record = self._record(found)
        if gone:
            self._end(record.id, record.uid)
        else:
            self.inventory.put(record)

    def heard(self, kind: str) -> None:
        self.inventory.heard()

    def refused(self, kind: str, error: LaunchError | None) -> None:
        super().refused(f"{POD} of project {kind}", error)

    def _record(self, found: Object) -> KubeRecord:
        record = pod_record(pod_view(found))
        known = self.inventory.get(record.id)
        return record if known is None or record.pod is None else pod_record(told_after(known.pod, record.pod))

    # -- lists --

    def list_instances(self, since: str | None) -> list[KubeRecord]:
        found: list[KubeRecord] = []
        errors: list[LaunchError] = []
        for project in self._projects:
            try:
                items, _ = self.client.list(kubernetes_client.core("pods", project), self.selector)
            except CloudRefused as error:
                # One that is missing, or forbidden, must not keep the pods of the others from being seen. What it has
                # is asked for by its name, and that it is in no list proves nothing.
                errors.append(error)
                if self._repeats.worth_saying(project):
                    text = "Provider %s: pods of project %s cannot be listed: %s"
                    cloud_log.warning(text, self.provider, project, error)
                continue
            self._repeats.over(project)
            found += map(self._record, items)
        if errors and len(errors) == len(self._projects):
            raise errors[0]
        return found

    def get_instance(self, record_id: str) -> KubeRecord:
        for project in self._projects:
            if record_id.startswith(f"{project}-"):
                # One project's name may be the beginning of another's (OS-7).
                try:
                    answer = self.client.get(self._path(project, record_id))
                except CloudNotFound:
                    continue
                record = pod_record(pod_view(answer))
                if record.metadata.get(tags.PROVIDER_KEY) == self.provider:
                    return record
        raise NotFound(f"there is no pod {record_id} of this provider")

    def path_of(self, record: KubeRecord) -> str:
        assert record.pod is not None
        return self._path(record.pod.place, record.id)

    def _path(self, project: str, record_id: str) -> str:
        return f"{kubernetes_client.core('pods', project)}/{record_id.removeprefix(f'{project}-')}"


# Configuration of pods in OpenShift projects that are there: that of OpenShift, except for what stands here.


class OpenShiftPodsPool(AnyPodPool):
    """A project."""

    name: str = key(FILLED_TEXT, REQUIRED, "Of the project, which must exist.")
    labels: dict[str, PullingLabel] = key(Sections(PullingLabel), None, "What pods are made of.")


class OpenShiftPodsProviderConfig(AnyOpenShiftProvider[OpenShiftPodsPool]):
    """One ``providers[]`` section with ``driver: openshiftpods``."""

    max_pods: float | None = key(
        WHOLE, None, "Another name of ``max-servers``; it wins if both are given.", default_text="not given"
    )
    _pools: dict[str, OpenShiftPodsPool] = key(Sections(OpenShiftPodsPool), None, "Projects.", name="pools")
