# SPDX-License-Identifier: Apache-2.0
"""A provider of IBM VPC for launchers under test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulators.ibmvpc.images import IMAGE_NAME


def ibmvpc_section(credentials: Path, ssh_port: int) -> dict[str, Any]:
    """A provider with one pool and one label, ``small``; its instances are reached over SSH at their floating IPs.

    :param ssh_port: where they answer.
    """
    image = {
        "name": "debian",
        "username": "root",
        "image-name": IMAGE_NAME,
        "keys": ["zuul"],
        "connection-port": ssh_port,
    }
    label = {"name": "small", "cloud-image": "debian", "profile": "cx2-2x4"}
    return {
        "name": "ibm-a",
        "driver": "ibmvpc",
        "region": "us-south",
        "vpc": "ci",
        "zone": "us-south-1",
        "subnet": "ci-us-south-1",
        "public-ipv4": True,
        "credentials-file": str(credentials),
        "rate": 0,
        "cloud-images": [image],
        "pools": [{"name": "main", "labels": [label]}],
    }
