# SPDX-License-Identifier: Apache-2.0
"""Configuration of pods in OpenShift projects that are there: that of OpenShift, except for what stands here."""

from __future__ import annotations

from typing import Any

from nodepool.driver.kubernetes.config import AnyPodPool
from nodepool.driver.openshift.config import AnyOpenShiftProvider, PullingLabel
from nodepool.model.config_keys import FILLED_TEXT, REQUIRED, WHOLE, Sections, key


class OpenShiftPodsPool(AnyPodPool):
    """A project."""

    name: str = key(FILLED_TEXT, REQUIRED, "Of the project, which must exist.")
    labels: dict[str, PullingLabel] = key(Sections(PullingLabel), None, "What pods are made of.")


class OpenShiftPodsProviderConfig(AnyOpenShiftProvider[OpenShiftPodsPool]):
    """One ``providers[]`` section with ``driver: openshiftpods``."""

    max_pods: float | None = key(
        WHOLE, None, "Another name of ``max-servers``; it wins if both are given.", default_text="not given"
    )
    _pools: dict[str, OpenShiftPodsPool] = key(Sections(OpenShiftPodsPool), None, "Projects.", name="pools")

    @property
    def default_max_servers(self) -> float:
        return super().default_max_servers if self.max_pods is None else self.max_pods

    @staticmethod
    def is_pod(label: dict[str, Any]) -> bool:
        return True
