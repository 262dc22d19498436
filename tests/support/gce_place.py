# SPDX-License-Identifier: Apache-2.0
"""A provider of Google Compute Engine for launchers under test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulators.gce.cloud import BUCKET, FAMILY, ZONE
from simulators.gce.links import IMAGE_PROJECT, PROJECT


def gce_section(key_file: Path, url: str, ssh_port: int = 22, name: str = "gce-a") -> dict[str, Any]:
    """A provider with one pool and one label, ``small``; its instances are reached over SSH before they are given out.

    :param key_file: of the service account; ``url``: of Compute Engine and of Cloud Storage.
    :param ssh_port: where the instances answer.
    """
    image = {
        "name": "debian",
        "image-project": IMAGE_PROJECT,
        "image-family": FAMILY,
        "username": "zuul",
        "key": "ssh-ed25519 AAAA",
        "connection-port": ssh_port,
    }
    label = {"name": "small", "cloud-image": "debian", "instance-type": "n1-standard-1"}
    return {
        "name": name,
        "driver": "gce",
        "project": PROJECT,
        "region": "us-central1",
        "zone": ZONE,
        "endpoint": url,
        "object-storage": {"bucket-name": BUCKET, "endpoint": url},
        "credentials-file": str(key_file),
        "rate": 0,
        "cloud-images": [image],
        "pools": [{"name": "main", "labels": [label]}],
    }
