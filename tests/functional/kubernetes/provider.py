# SPDX-License-Identifier: Apache-2.0
"""Sections of nodepool.yaml for a real control plane."""

from __future__ import annotations

from typing import Any

from tests.support.section_provider import SectionProvider


class KubeProvider(SectionProvider):
    """An entry of ``providers`` with one pool.

    :param driver: ``kubernetes``, ``openshift`` or ``openshiftpods``.
    :param labels: of the pool.
    """

    def __init__(self, driver: str, labels: list[dict[str, Any]], context: str, pool: str = "main") -> None:
        pools = [{"name": pool, "labels": labels}]
        super().__init__({"name": "real", "driver": driver, "context": context, "pools": pools})


def pod_label(name: str = "pod", **more: Any) -> dict[str, Any]:
    """A label with a pod."""
    return {"name": name, "type": "pod", "image": "docker.io/debian:12", **more}
