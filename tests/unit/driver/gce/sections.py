# SPDX-License-Identifier: Apache-2.0
"""Provider sections."""

from __future__ import annotations

from typing import Any

from nodepool.driver.gce import GceDriver
from nodepool.driver.gce.config import GceProviderConfig
from tests.support.provider_sections import load_section, section_with

PROVIDER = "north"
#: Of the simulated cloud, as is the project.
ZONES = ["us-central1-a", "us-central1-b"]
PROJECT = "nodepool-ci"

_SECTION: dict[str, Any] = {
    "name": PROVIDER,
    "driver": "gce",
    "project": PROJECT,
    "region": "us-central1",
    "zone": ZONES[0],
    "rate": 0,
    "cloud-images": [
        {
            "name": "debian",
            "image-project": "debian-cloud",
            "image-family": "debian-12",
            "username": "zuul",
            "key": "ssh-ed25519 AAAA",
        }
    ],
    "pools": [
        {"name": "main", "labels": [{"name": "small", "cloud-image": "debian", "instance-type": "n2-standard-2"}]}
    ],
}


def section(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **provider: Any) -> dict[str, Any]:
    """A provider section with one label.

    :param label: more keys of it; ``pool`` and ``provider`` likewise, with ``-`` for ``_``.
    """
    return section_with(_SECTION, label, pool, **provider)


def load(data: dict[str, Any]) -> GceProviderConfig:
    """Load a section in a configuration that has its labels and images."""
    made: GceProviderConfig = load_section(GceDriver(), data)
    return made


def label_of(config: GceProviderConfig) -> Any:
    return config.pools["main"].labels["small"]
