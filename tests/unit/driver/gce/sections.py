# SPDX-License-Identifier: Apache-2.0
"""Provider sections."""

from __future__ import annotations

import copy
from typing import Any

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.gce import GceDriver
from nodepool.driver.gce.config import GceProviderConfig

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
    made = copy.deepcopy(_SECTION)
    made |= {name.replace("_", "-"): value for name, value in provider.items()}
    made["pools"][0] |= pool or {}
    made["pools"][0]["labels"][0] |= label or {}
    return made


def load(data: dict[str, Any]) -> GceProviderConfig:
    """Load a section in a configuration that has its labels and images."""
    whole = Config()
    for image in data.get("diskimages", []):
        whole.diskimages[image["name"]] = DiskImage(image["name"])
        whole.diskimages[image["name"]].username = "builder"
    for pool in data["pools"]:
        for label in pool.get("labels", []):
            whole.labels[label["name"]] = Label(label["name"])
    made = GceDriver().getProviderConfig(data)
    made.getSchema()(data)
    made.load(whole)
    return made


def label_of(config: GceProviderConfig) -> Any:
    return config.pools["main"].labels["small"]
