# SPDX-License-Identifier: Apache-2.0
"""The section of nodepool.yaml for a real cloud."""

from __future__ import annotations

import os

from tests.functional.openstack.cloud import RealCloud
from tests.support.section_provider import SectionProvider


class OpenStackProvider(SectionProvider):
    """An entry of ``providers`` with one pool and one label, ``small``."""

    def __init__(self, cloud: RealCloud) -> None:
        image = {
            "name": "ready",
            "image-name": cloud.image(),
            "username": os.environ.get("NODEPOOL_TEST_OPENSTACK_USER", "zuul"),
        }
        label = {"name": "small", "cloud-image": "ready", "flavor-name": cloud.flavor()}
        networks = {"networks": found} if (found := cloud.networks()) else {}
        super().__init__(
            {
                "name": "real",
                "driver": "openstack",
                "cloud": cloud.name,
                "rate": 0,
                "boot-timeout": 300,
                "cloud-images": [image],
                "pools": [{"name": "main", "labels": [label], **networks}],
            }
        )
