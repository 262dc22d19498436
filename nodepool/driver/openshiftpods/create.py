# SPDX-License-Identifier: Apache-2.0
"""`PodCreation`: the launch of a pod in a project that is there (OS-6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nodepool.driver.kubernetes import api, objects
from nodepool.driver.kubernetes.create import NamespaceCreation
from nodepool.driver.kubernetes.instance import KubeInstance
from nodepool.driver.kubernetes.records import KubeRecord, TokenView
from nodepool.driver.statemachine import CreationKey
from nodepool.driver.statemachine import metadata as tags
from nodepool.exceptions import LaunchStatusException

if TYPE_CHECKING:
    from nodepool.driver.kubernetes.cloud import KubeCloud
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest


def _pod_name(label: Any, metadata: Mapping[str, str]) -> str:
    return f"{label.name}-{metadata[tags.NODE_KEY]}"


class PodCreation(NamespaceCreation):
    """Makes a pod, and hands out our own credentials."""

    with_name = False

    def __init__(
        self, cloud: KubeCloud, label: Any, metadata: Mapping[str, str], request: NodeRequest | None, log: Log
    ) -> None:
        super().__init__(cloud, label, metadata, request, log)
        self.project = metadata[tags.POOL_KEY]
        self.pod_name: str = _pod_name(label, metadata)

    @classmethod
    def name_of(cls, label: Any, metadata: Mapping[str, str]) -> str:
        return f"{metadata[tags.POOL_KEY]}-{_pod_name(label, metadata)}"

    def create(self, key: CreationKey) -> str:
        self.cloud.awaited(self.name, self.pod_name)
        path = api.core("pods", self.project)
        body = objects.pod(self.pod_name, self.label, self.labels)
        client = self.cloud.client
        made = api.create(client, path, body, self.permit) or client.get(f"{path}/{self.pod_name}")
        if tags.node_id_of(made["metadata"].get("labels"), self.cloud.provider) != self.node_id:
            raise LaunchStatusException(f"{self.where}: there is a pod {self.pod_name} of somebody else")
        self.place_is(made)
        return self.name

    def _has_token(self, record: KubeRecord) -> bool:
        return True

    def instance(self, record: KubeRecord) -> KubeInstance:
        # Both may be missing: clients with certificates cannot be handed on.
        access = self.cloud.client.connection.access()
        assert record.pod is not None
        token = TokenView(self.project, "", access.bearer_token() or "", access.authority() or "")
        found = KubeInstance(
            record,
            self.label,
            "kubectl",
            access,
            self.cloud.client.connection.context,
            self.with_name,
            token,
        )
        for key in ("token", "ca_crt"):
            if key in found.connection_port:
                found.connection_port[key] = found.connection_port[key] or None
        return found
