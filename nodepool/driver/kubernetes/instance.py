# SPDX-License-Identifier: Apache-2.0
"""`KubeInstance`: a namespace or pod as the framework, and Zuul, sees it (KU-8, KU-9; reference/zookeeper 5.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.records import KubeRecord, TokenView
from nodepool.driver.statemachine import Instance
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.kubernetes.access import ClusterAccess
    from nodepool.driver.kubernetes.config import PodLabel


class KubeInstance(Instance):
    """A node that can be used.

    :param label: of the launch.
    :param connection: type of the connection.
    :param context: of the kubeconfig.
    :param with_name: the old key ``name`` of the connection, too.
    :param token: what is handed out; None = what the secret of the namespace says.
    """

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
        super().__init__()
        token = token or record.token
        assert token is not None
        pod = record.pod
        self.ready = True
        self.external_id = record.id
        self.metadata = dict(record.metadata)
        self.cloud = context
        self.connection_type = connection
        self.python_path = label.python_path
        self.shell_type = label.shell_type
        self.has_address = pod is not None
        self.connection_port = connection_port(access, token.place, token.token, token.ca)
        if with_name:
            self.connection_port["name"] = token.place
        if pod is not None and connection == "kubectl":
            self.interface_ip = pod.name
            self.host_id = pod.host
            self.connection_port["pod"] = pod.name
        self._used = need_of(label)

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used


class ListedInstance(Instance):
    """A namespace that was listed.

    :param used: what its node uses.
    :param ends: see `Instance`.
    """

    def __init__(self, record: KubeRecord, used: QuotaInformation, ends: tuple[str, str] | None) -> None:
        super().__init__()
        self.ends = ends
        self.external_id = record.id
        self.deleted = record.gone
        self.metadata = dict(record.metadata)
        self._used = used

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used


def connection_port(access: ClusterAccess, place: str, token: str | None, authority: str | None) -> dict[str, Any]:
    """How Zuul reaches the node.

    :param authority: certificate of the cluster's authority, in base64.
    """
    found: dict[str, Any] = {
        "namespace": place,
        "host": access.host,
        "skiptls": access.skip_tls,
        "token": token,
        "user": objects.WORKER,
    }
    if not access.skip_tls:
        found["ca_crt"] = authority
    return found


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
