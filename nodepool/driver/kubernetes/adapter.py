# SPDX-License-Identifier: Apache-2.0
"""What the framework asks of a cluster of Kubernetes (reference/driver 9).

First `KubernetesAdapter`, then the deletion of what was made for a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.driver.kubernetes import objects, preflight
from nodepool.driver.kubernetes.client import NODES, KubeClient, Object, core
from nodepool.driver.kubernetes.cloud import KubeCloud, SharedRoles
from nodepool.driver.kubernetes.connection import ClusterConnection
from nodepool.driver.kubernetes.create import NamespaceCreation
from nodepool.driver.kubernetes.errors import NotYet
from nodepool.driver.kubernetes.objects import LABEL_KEY
from nodepool.driver.kubernetes.records import KubeRecord, ListedInstance, need_of
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, Adapter, Creation, DeletionMachine, Resource
from nodepool.driver.statemachine import instance as tags
from nodepool.exceptions import LaunchError, NotFound
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.framework.checks import CheckResult
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: Type of a resource, in logs and metrics (KU-12).
NODE: Final = "node"


class KubeResource(Resource):
    """A namespace, project or pod that says whose it is."""

    def __init__(self, record: KubeRecord) -> None:
        super().__init__(dict(record.metadata), NODE)
        self.id = record.id
        self.record = record


class KubernetesAdapter(Adapter):
    """One cluster. Making it imports the package ``kubernetes``, and does not ask the cluster.

    :param client: for tests.
    """

    advance_threads = 8
    cloud_class: ClassVar[type[KubeCloud]] = KubeCloud
    creation_class: ClassVar[type[NamespaceCreation]] = NamespaceCreation

    def __init__(self, provider_config: Any, client: KubeClient | None = None) -> None:
        super().__init__(provider_config)
        self.config = provider_config
        self.client = client or KubeClient(ClusterConnection(provider_config.name, provider_config.context))
        self.cloud = self.make_cloud()
        self.use(self.cloud)
        shared = self.config.shared_roles
        self.cloud.shares_accounts = shared is not False or self.config.default_account
        if shared is not False:
            self.cloud.shared_roles = SharedRoles(self.client, required=shared is True)

    def make_cloud(self) -> KubeCloud:
        return self.cloud_class(self.config.name, self.client)

    def stop(self) -> None:
        self.cloud.stop()

    # -- machines --

    def getCreateStateMachine(
        self,
        hostname: str,
        label: Any,
        image_external_id: Any,
        metadata: dict[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
    ) -> NamespaceCreation:
        return self.creation_class(self.cloud, label, metadata, request, log)

    def idInAdvance(self, hostname: str, label: Any, metadata: dict[str, str]) -> str:
        return self.creation_class.name_of(label, metadata)

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> KubeDeletion:
        return KubeDeletion(self.cloud, external_id if isinstance(external_id, str) else None, log)

    # -- lists --

    def listInstances(self) -> list[ListedInstance]:
        cloud = self.cloud
        records = cloud.inventory.all(max_age=0.0)
        return [ListedInstance(record, self._use_of(record), cloud.why_ended(record)) for record in records]

    def unansweredCreations(self) -> Iterable[Creation]:
        return self.cloud.unanswered()

    def listResources(self) -> Iterator[KubeResource]:
        for record in self.cloud.inventory.all(SWEEP_LIST_SECONDS):
            if not record.terminating:
                yield KubeResource(record)

    def deleteResource(self, resource: Resource) -> None:
        assert isinstance(resource, KubeResource)
        try:
            # By the time of this call another launcher may have made a new one of the name.
            self.cloud.delete_seen(resource.record)
        except NotFound:
            return

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        if not self.config.cluster_room:
            return super().getQuotaLimits()
        nodes, _ = self.client.list(NODES)
        pods, _ = self.client.list(core("pods"))
        return objects.of_cluster(nodes, pods, self._counted_for)

    def _counted_for(self, pod: Object) -> objects.Amounts:
        """What is counted for the node of a pod; nothing if it is not ours."""
        found = pod["metadata"].get("labels") or {}
        if tags.node_id_of(found, self.config.name) is None:
            return {}
        return self._need_by(found).quota["compute"]

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return need_of(label)

    # -- trouble --

    def preflight(self) -> Iterator[CheckResult]:
        return preflight.of_kubernetes(self.config, self.client)

    def _use_of(self, record: KubeRecord) -> QuotaInformation:
        return self._need_by(record.metadata)

    def _need_by(self, metadata: Mapping[str, str]) -> QuotaInformation:
        """What a node uses whose objects have this metadata."""
        pool = self.config.pools.get(metadata.get(tags.POOL_KEY))
        label = None if pool is None else pool.labels.get(metadata.get(LABEL_KEY))
        return QuotaInformation(instances=1) if label is None else need_of(label)


# `KubeDeletion`: the deletion of a namespace, a project or a pod, until it does not exist any more.

#: A namespace that is still there after so long is reported, with what holds it.
STUCK_SECONDS: Final = 60.0


class KubeDeletion(DeletionMachine[KubeRecord]):
    """Its record stays until the API says that it is gone."""

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
        stuck = record is not None and record.terminating and self.clock() - self.start_time >= STUCK_SECONDS
        if record is not None and stuck and record.status != self._reported:
            self._reported = record.status
            self.log.warning("%s is still there, %s", record.id, record.status)
        return result
