# SPDX-License-Identifier: Apache-2.0
"""A client that answers as a test says, for tests of what uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodepool.driver.kubernetes import KubernetesDriver
from nodepool.driver.kubernetes.client import KubeClient
from nodepool.driver.kubernetes.config import KubernetesProviderConfig, PodLabel
from nodepool.driver.kubernetes.connection import ClusterConnection
from tests.support.provider_sections import load_section


class StandIn(KubeClient):
    """Remembers calls; answers are taken from lists, an exception is raised."""

    def __init__(self) -> None:
        super().__init__(ClusterConnection("cluster", None))
        self.calls: list[tuple[str, str, Any]] = []
        #: By method and path.
        self.answers: dict[tuple[str, str], Any] = {}
        self.lists: list[Any] = []
        self.streams: list[Any] = []
        #: Versions that watches asked for.
        self.versions: list[str] = []

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        permit: Callable[[], None] = lambda: None,
    ) -> Any:
        permit()
        self.calls.append((method, path, body))
        answer = self.answers.get((method, path), {"metadata": {"uid": "made", **(body or {}).get("metadata", {})}})
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def list(self, path: str, selector: str = "", fields: str = "") -> tuple[list[Any], str]:
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found: tuple[list[Any], str] = answer
        return found

    def watch(self, path: str, version: str, selector: str = "", fields: str = "") -> Iterator[Any]:
        self.versions.append(version)
        for event in self.streams.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event


METADATA = {"nodepool_node_id": "7", "nodepool_pool_name": "main", "nodepool_provider_name": "cluster"}


def label_of(pool: dict[str, Any] | None = None, **keys: Any) -> PodLabel:
    """A label as it is loaded."""
    label = {"name": "pod", "type": "pod", **({} if "spec" in keys else {"image": "debian"}), **keys}
    pools = [{"name": "main", "labels": [label], **(pool or {})}]
    section = {"name": "cluster", "driver": "kubernetes", "pools": pools}
    provider: KubernetesProviderConfig = load_section(KubernetesDriver(), section)
    return provider.pools["main"].labels["pod"]
