# SPDX-License-Identifier: Apache-2.0
"""`nodepool.zk.components.COMPONENT_REGISTRY` of 11.0.0, and its `nodepool.model_api`."""

from __future__ import annotations

from typing import Any, Final

from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import MODEL_API, system_model_api

__all__ = ["COMPONENT_REGISTRY", "MODEL_API", "GlobalRegistry"]


class GlobalRegistry:
    """Says which data model the running system speaks."""

    def __init__(self) -> None:
        self.registry: ZooKeeperClient | None = None

    def create(self, zk_client: Any) -> ZooKeeperClient:
        """Look with this connection from now on."""
        client: ZooKeeperClient = getattr(zk_client, "client", zk_client)
        self.registry = client
        return client

    def clearRegistry(self) -> None:
        """Look no more."""
        self.registry = None

    @property
    def model_api(self) -> int:
        """The lowest level of all registered components; that of this release while nobody knows. May block."""
        level = None if self.registry is None else system_model_api(self.registry)
        return MODEL_API if level is None else level


COMPONENT_REGISTRY: Final = GlobalRegistry()
