# SPDX-License-Identifier: Apache-2.0
"""`ProjectCreation`: the launch of a node in a project of its own, with or without a pod (OS-1 to OS-4)."""

from __future__ import annotations

from typing import ClassVar, Final

from nodepool.driver.framework.cloud_errors import CloudSetup
from nodepool.driver.kubernetes import api, objects
from nodepool.driver.kubernetes.create import NamespaceCreation
from nodepool.driver.kubernetes.errors import NotYet
from nodepool.driver.kubernetes.instance import KubeInstance
from nodepool.driver.kubernetes.records import KubeRecord
from nodepool.driver.openshift.projects import project_request

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
        made = api.create(self.cloud.client, api.PROJECT_REQUESTS, body, self.permit)
        if made is None:
            self.check_place(self._project_of_our_name())
        else:
            # A template of the cluster may leave out what says whose it is.
            self.place_is(made)

    def _project_of_our_name(self) -> api.Object:
        try:
            return self.found_place(api.PROJECTS)
        except CloudSetup as error:
            # Our rights have not come yet, or have gone with the project of the attempt before, which is still going.
            raise NotYet(str(error)) from error

    def rights_of(self, account: str) -> list[tuple[str, api.Object]]:
        binding = {
            "apiVersion": "authorization.openshift.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": BINDING, "namespace": self.name, "labels": objects.marks(self.labels)},
            "roleRef": {"name": ADMIN},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.name}],
        }
        return [(api.openshift_rbac("rolebindings", self.name), binding)]

    def not_yet(self, error: Exception) -> bool:
        # A moment passes until we may work in a project that was made for us.
        return super().not_yet(error) or (self.has_place and isinstance(error, CloudSetup))

    def instance(self, record: KubeRecord) -> KubeInstance:
        found = super().instance(record)
        # OS-4
        found.host_id = None
        return found
