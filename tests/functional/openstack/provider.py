# SPDX-License-Identifier: Apache-2.0
"""The section of nodepool.yaml for a real cloud."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tests.functional.openstack.cloud import RealCloud


class OpenStackProvider:
    """An entry of ``providers`` with one pool and one label; ``section``, ``pool`` and ``label`` may be changed.

    :param label: name of its label.
    """

    def __init__(self, cloud: RealCloud, name: str = "real", label: str = "small") -> None:
        self.name = name
        #: Nothing is there before somebody asks for it.
        self.slots = 0
        self.label: dict[str, Any] = {"name": label, "cloud-image": "ready", "flavor-name": cloud.flavor()}
        self.pool: dict[str, Any] = {"name": "main", "labels": [self.label]}
        if cloud.networks():
            self.pool["networks"] = cloud.networks()
        image = {
            "name": "ready",
            "image-name": cloud.image(),
            "username": os.environ.get("NODEPOOL_TEST_OPENSTACK_USER", "zuul"),
        }
        self.section: dict[str, Any] = {
            "name": name,
            "driver": "openstack",
            "cloud": cloud.name,
            "rate": 0,
            "boot-timeout": 300,
            "cloud-images": [image],
            "pools": [self.pool],
        }

    @property
    def labels(self) -> Iterable[str]:
        return [label["name"] for label in self.pool["labels"]]

    def as_config(self) -> dict[str, Any]:
        return self.section
