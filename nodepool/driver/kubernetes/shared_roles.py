# SPDX-License-Identifier: Apache-2.0
"""`SharedRoles`: cluster roles that stand for the role in each namespace, so that a node needs one call less (KU-3)."""

from __future__ import annotations

import functools

from nodepool.driver.framework.fact import Fact
from nodepool.driver.kubernetes import api, objects
from nodepool.driver.kubernetes.client import KubeClient


class SharedRoles:
    """Makes them if they are missing; one that is there is used as it is. Thread-safe."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        # Looked at again from time to time: somebody may delete one.
        self._made = {is_pod: Fact(functools.partial(self._make, is_pod)) for is_pod in (True, False)}

    def name_of(self, is_pod: bool) -> str:
        """The role for what a node gets; blocks. Raises what the API says.

        :param is_pod: a pod, or a whole namespace.
        """
        return self._made[is_pod].get()

    def forget(self) -> None:
        """One of them is missing."""
        for made in self._made.values():
            made.clear()

    def _make(self, is_pod: bool) -> str:
        role = objects.shared_role(is_pod)
        api.create(self._client, api.CLUSTER_ROLES, role)
        return str(role["metadata"]["name"])
