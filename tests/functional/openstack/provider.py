# SPDX-License-Identifier: Apache-2.0
"""The section of nodepool.yaml for a real cloud."""

from __future__ import annotations

import os
from typing import Any

from tests.functional.openstack.cloud import RealCloud
from tests.support.section_provider import SectionProvider


class OpenStackProvider(SectionProvider):
    """An entry of ``providers`` with one pool and one label; ``section``, ``pool`` and ``label`` may be changed.

    :param label: name of its label.
    """

    def __init__(self, cloud: RealCloud, name: str = "real", label: str = "small") -> None:
        self.label: dict[str, Any] = {"name": label, "cloud-image": "ready", "flavor-name": cloud.flavor()}
        self.pool: dict[str, Any] = {"name": "main", "labels": [self.label]}
        if cloud.networks():
            self.pool["networks"] = cloud.networks()
        image = {
            "name": "ready",
            "image-name": cloud.image(),
            "username": os.environ.get("NODEPOOL_TEST_OPENSTACK_USER", "zuul"),
        }
        section = {"name": name, "driver": "openstack", "cloud": cloud.name, "rate": 0, "boot-timeout": 300}
        super().__init__({**section, "cloud-images": [image], "pools": [self.pool]})
