# SPDX-License-Identifier: Apache-2.0
"""Sections of nodepool.yaml for a real control plane."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class KubeProvider:
    """An entry of ``providers`` with one pool; ``section`` and ``pool`` may be changed.

    :param driver: ``kubernetes``, ``openshift`` or ``openshiftpods``.
    :param labels: of the pool.
    """

    def __init__(
        self, driver: str, labels: list[dict[str, Any]], context: str, name: str = "real", pool: str = "main"
    ) -> None:
        self.name = name
        #: Nothing is there before somebody asks for it.
        self.slots = 0
        self.pool: dict[str, Any] = {"name": pool, "labels": labels}
        self.section: dict[str, Any] = {"name": name, "driver": driver, "context": context, "pools": [self.pool]}

    @property
    def labels(self) -> Iterable[str]:
        return [label["name"] for label in self.pool["labels"]]

    def as_config(self) -> dict[str, Any]:
        return self.section


def pod_label(name: str = "pod", **more: Any) -> dict[str, Any]:
    """A label with a pod."""
    return {"name": name, "type": "pod", "image": "docker.io/debian:12", **more}
