# SPDX-License-Identifier: Apache-2.0
"""OpenShift: what differs from Kubernetes.

First projects for namespaces: projects and the launch in one, then the adapter, then how a project says whose it is,
then the configuration. Then pods in projects that are there, in the same order.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CheckResult, CloudNotFound, CloudRefused, CloudSetup, failure
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.kubernetes import client as kubernetes_client
from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.adapter import KubernetesAdapter, Needed, rights
from nodepool.driver.kubernetes.client import KubeClient, NotYet, Object
from nodepool.driver.kubernetes.cloud import WATCHED, KubeCloud
from nodepool.driver.kubernetes.config import AnyPodPool, AnyPodProvider, PodLabel, pods_only, usable_label
from nodepool.driver.kubernetes.create import NamespaceCreation
from nodepool.driver.statemachine import CloudInstance, CreationKey, Order
from nodepool.driver.statemachine import instance as tags
from nodepool.exceptions import LaunchError, LaunchStatusException, NotFound
from nodepool.model.config_keys import ANY_MAPPING, FILLED_TEXT, REQUIRED, WHOLE, ListOf, OneOf, Sections, key
from nodepool.model.node import QuotaInformation

# `ProjectCloud`: projects of one provider, and what is in them.

#: Our rights in a project come within so many seconds after it was made.
RIGHTS_SECONDS: Final = 10.0
#: With more projects than these, those that are not listed are forgotten: other launchers delete some.
MANY_PROJECTS: Final = 1000


class ProjectCloud(KubeCloud):
    """Who may only ask for projects sees only those of its own, and may watch nothing in the whole cluster.

    Projects are listed, one list for all launches. Pods and secrets are watched where the account may do that; else
    each launch asks for its own.
    """

    places_path: ClassVar[str] = kubernetes_client.PROJECTS

    def __init__(self, provider: str, client: KubeClient) -> None:
        self.watched = {kind: path for kind, path in WATCHED.items() if kind != objects.PLACE}
        super().__init__(provider, client)
        # Projects do not have our labels.
        self.selector_of_places = ""
        #: Guards what follows.
        self._rights_lock = threading.Lock()
        #: Projects in which we had rights, and since when we have none in one in which we never had any.
        self._allowed: set[str] = set()
        self._refused_since: dict[str, float] = {}

    def view_of_place(self, found: dict[str, Any]) -> objects.KubeRecord:
        return project_view(found)

    def is_ours(self, place: objects.KubeRecord, named: Container[str]) -> bool:
        # A template of the cluster may leave out the description: then the name says it.
        return super().is_ours(place, named) or (not objects.marks(place.metadata) and place.id in named)

    def list_instances(self, since: str | None) -> list[objects.KubeRecord]:
        found = super().list_instances(since)
        # Only projects in which we have rights are listed.
        names = {record.id for record in found}
        with self._rights_lock:
            known = self._allowed | names
            self._allowed = names if len(known) > MANY_PROJECTS else known
        return found

    def get_instance(self, record_id: str) -> objects.KubeRecord:
        with self._without_rights_gone(record_id):
            found = super().get_instance(record_id)
        with self._rights_lock:
            self._allowed.add(record_id)
        return found

    def delete_seen(self, record: objects.KubeRecord) -> None:
        try:
            super().delete_seen(record)
        except CloudRefused as error:
            if error.status != 403:
                raise
            # Says whether the rights went with the project, or have not come yet.
            self.get_instance(record.id)
            # It is there: only its deletion is forbidden.
            raise

    def awaited(self, name: str, pod: str | None) -> None:
        super().awaited(name, pod)
        # One of the same name may have been there before.
        with self._rights_lock:
            self._allowed.discard(name)
            self._refused_since.pop(name, None)

    def _is_gone(self, name: str) -> bool:
        """Is a project deleted in which we have no rights, or have they not come yet?"""
        now = monotonic()
        with self._rights_lock:
            gone = name in self._allowed or now - self._refused_since.setdefault(name, now) >= RIGHTS_SECONDS
            if gone:
                self._refused_since.pop(name, None)
        return gone

    @contextmanager
    def _without_rights_gone(self, name: str) -> Iterator[None]:
        """The rights in a project go with it: of one that is deleted OpenShift says 403, not 404.

        So it does of a project that was made a moment ago, and in which we have no rights yet.
        """
        try:
            yield
        except CloudRefused as error:
            if error.status != 403:
                raise
            if self._is_gone(name):
                raise CloudNotFound(str(error), 404, error.said) from error
            raise NotYet(f"{error}; it does not exist any more, or our rights have not come yet") from error


# `ProjectCreation`: the launch of a node in a project of its own, with or without a pod (OS-1 to OS-4).

_RBAC: Final = "/apis/authorization.openshift.io/v1/namespaces"
#: Role of the service account in its project, and the name of the binding.
ADMIN: Final = "admin"
BINDING: Final = "admin-0"


class ProjectCreation(NamespaceCreation):
    """Asks for a project, and makes what belongs into it."""

    place_connection: ClassVar[str] = "project"
    # OS-4
    with_name: ClassVar[bool] = False

    def make_place(self) -> None:
        body = project_request(self.name, self.labels, self.label.annotations)
        made = kubernetes_client.create(self.cloud.client, kubernetes_client.PROJECT_REQUESTS, body, self.permit)
        if made is None:
            try:
                found = self.found_place(kubernetes_client.PROJECTS)
            except CloudSetup as error:
                # Our rights have not come yet, or have ended with the project of the attempt before, which still ends.
                raise NotYet(str(error)) from error
            self.check_place(found)
        else:
            # A template of the cluster may leave out what says whose it is.
            self.place_is(made)

    def rights_of(self, account: str) -> list[tuple[str, kubernetes_client.Object]]:
        binding = {
            "apiVersion": "authorization.openshift.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": BINDING, "namespace": self.name, "labels": objects.marks(self.labels)},
            "roleRef": {"name": ADMIN},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.name}],
        }
        return [(f"{_RBAC}/{self.name}/rolebindings", binding)]

    def not_yet(self, error: Exception) -> bool:
        # A moment passes until we may work in a project that was made for us.
        return super().not_yet(error) or (self._left is not None and isinstance(error, CloudSetup))

    def instance(self, record: objects.KubeRecord) -> CloudInstance:
        found = super().instance(record)
        # OS-4
        found.host_id = None
        return found


class OpenShiftAdapter(KubernetesAdapter):
    """One cluster."""

    cloud_class = ProjectCloud
    creation_class = ProjectCreation

    def needed(self) -> Iterator[Needed]:
        remedy = "give the user the role: oc adm policy add-cluster-role-to-user self-provisioner USER"
        yield "rights", "", PROJECT_RIGHTS, remedy


_PROJECT_GROUP: Final = "project.openshift.io"
PROJECT_RIGHTS: Final = [
    *rights("projectrequests", "create", _PROJECT_GROUP),
    *rights("projects", "list", _PROJECT_GROUP),
]

# How a project says whose it is. Pure functions.
#
# OpenShift does not take over labels of the request, and a project's owner may not add any. What it does take over is
# the description.

DESCRIPTION: Final = "openshift.io/description"


def project_request(name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    """A request for a project."""
    return {
        "apiVersion": "project.openshift.io/v1",
        "kind": "ProjectRequest",
        **objects.namespace(name, labels, annotations),
        "displayName": name,
        "description": " ".join(f"{key}={value}" for key, value in sorted(objects.marks(labels).items())),
    }


def project_view(found: Object) -> objects.KubeRecord:
    """What is kept of a project: its marks may stand in the description."""
    view = objects.place_view(found)
    if objects.marks(view.metadata):
        return view
    description = str((found["metadata"].get("annotations") or {}).get(DESCRIPTION) or "")
    pairs = (word.partition("=") for word in description.split())
    marks = objects.marks({key: value for key, found_sign, value in pairs if found_sign})
    return dataclasses.replace(view, metadata={**view.metadata, **marks})


# Configuration: that of Kubernetes, except for what stands here.


def references(found: list[Any]) -> list[dict[str, Any]]:
    """Names of secrets, as they stand in a pod."""
    return [{"name": entry} if isinstance(entry, str) else entry for entry in found]


class PullingLabel(PodLabel):
    """A pod whose image may need credentials."""

    image_pull_secrets: list[dict[str, Any]] = key(
        ListOf(OneOf((FILLED_TEXT, ANY_MAPPING))),
        [],
        "Secrets with which the image is pulled: their names, or ``- name: my-secret``.",
        convert=references,
    )


class OpenShiftLabel(PullingLabel):
    """How to make a project, or a pod in one of its own."""

    type: str = key(
        FILLED_TEXT,
        REQUIRED,
        "``pod``: a job gets a pod in a project of its own; any other text: it gets an empty project.",
        read=False,
    )

    makes_pod = staticmethod(lambda label: label.get("type") == "pod")
    checks = (usable_label, functools.partial(pods_only, makes_pod))


class OpenShiftPool(AnyPodPool):
    """A slice of the cluster. Projects are named ``<pool>-<node id>``."""

    labels: dict[str, OpenShiftLabel] = key(Sections(OpenShiftLabel), None, "What nodes are made of.")


OpenShiftPoolT = TypeVar("OpenShiftPoolT", bound=AnyPodPool)


class AnyOpenShiftProvider(AnyPodProvider[OpenShiftPoolT]):
    """Keys of both drivers."""

    context: str = key(
        FILLED_TEXT, REQUIRED, "Of the kubeconfig, which says how to reach a cluster and who we are there."
    )
    max_projects: float | None = key(
        WHOLE, None, "Old name of ``max-servers``; it wins if both are given.", default_text="not given"
    )


class OpenShiftProviderConfig(AnyOpenShiftProvider[OpenShiftPool]):
    """One ``providers[]`` section with ``driver: openshift``."""

    _pools: dict[str, OpenShiftPool] = key(Sections(OpenShiftPool), None, "The pools of the provider.", name="pools")


# Pods in projects that are there (driver ``openshiftpods``): first the launch, then the adapter, then the pods of one
# provider, then the configuration.

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
            raise LaunchStatusException(f"{self.where}: there is a pod {self.pod_name} of another owner")
        self.place_is(made)
        return self.name

    def _has_token(self, record: objects.KubeRecord) -> bool:
        return True

    def token_of(self, record: objects.KubeRecord) -> objects.TokenView:
        # Both may be missing: clients with certificates cannot be handed on.
        access = self.cloud.client.connection.access()
        return objects.TokenView(self.project, "", access.bearer_token(), access.authority())


POD_RIGHTS: Final = rights("pods", "create delete get list watch")


class OpenShiftPodsAdapter(KubernetesAdapter):
    """One cluster; a pool is a project."""

    creation_class = PodCreation

    def make_cloud(self) -> PodCloud:
        return PodCloud(self.config.name, self.client, self.config.pools)

    def getQuotaLimits(self) -> QuotaInformation:
        """What the quotas of the projects leave, where the account may read them; all pools together."""
        return objects.together(map(self._limits_of, self.config.pools))

    def _limits_of(self, project: str) -> QuotaInformation:
        try:
            quotas, _ = self.client.list(kubernetes_client.core("resourcequotas", project))
            path = kubernetes_client.core("pods", project)
            pods = self.client.list(path, self.cloud.selector)[0] if quotas else []
        except CloudRefused as error:
            # An account that may not read quotas meets them when a launch is refused, which waits then.
            cloud_log.debug("Provider %s: quotas of project %s are not known: %s", self.config.name, project, error)
            return super().getQuotaLimits()
        return objects.of_quotas(quotas, pods)

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
        # Kinds of the watches are the projects: each is watched, and refused, by itself.
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
        super().refused(f"{objects.POD} of project {kind}", error)

    def _record(self, found: Object) -> objects.KubeRecord:
        record = objects.pod_record(objects.PodView(found))
        known = self.inventory.get(record.id)
        return (
            record
            if known is None or record.pod is None
            else objects.pod_record(objects.told_after(known.pod, record.pod))
        )

    # -- lists --

    def list_instances(self, since: str | None) -> list[objects.KubeRecord]:
        found: list[objects.KubeRecord] = []
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

    def get_instance(self, record_id: str) -> objects.KubeRecord:
        for project in self._projects:
            if record_id.startswith(f"{project}-"):
                # One project's name may be the beginning of another's (OS-7).
                try:
                    answer = self.client.get(self._path(project, record_id))
                except CloudNotFound:
                    continue
                record = objects.pod_record(objects.PodView(answer))
                if record.metadata.get(tags.PROVIDER_KEY) == self.provider:
                    return record
        raise NotFound(f"there is no pod {record_id} of this provider")

    def path_of(self, record: objects.KubeRecord) -> str:
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
