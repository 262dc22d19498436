# SPDX-License-Identifier: Apache-2.0
"""A provider of Azure for launchers under test."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def azure_section(auth_path: Path, ssh_port: int) -> dict[str, Any]:
    """A provider with one pool and one label, ``small``; its VMs are reached over SSH before they are given out.

    :param ssh_port: where they answer.
    """
    image = {
        "name": "debian",
        "username": "zuul",
        "key": "ssh-ed25519 AAAA",
        "image-filter": {"name": "debian-12"},
        "connection-port": ssh_port,
    }
    label = {"name": "small", "cloud-image": "debian", "hardware-profile": {"vm-size": "Standard_B1s"}}
    return {
        "name": "azure-a",
        "driver": "azure",
        "location": "northeurope",
        "resource-group": "nodepool",
        "resource-group-location": "northeurope",
        "auth-path": str(auth_path),
        "network": "ci",
        "rate": 0,
        "cloud-images": [image],
        "pools": [{"name": "main", "labels": [label]}],
    }
