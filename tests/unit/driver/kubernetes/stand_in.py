# SPDX-License-Identifier: Apache-2.0
"""A client that answers as it is told, for tests of what uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodepool.driver.kubernetes.client import KubeClient
from nodepool.driver.kubernetes.connection import ClusterConnection


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

    def call(
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
