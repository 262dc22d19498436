# SPDX-License-Identifier: Apache-2.0
"""Sections of AWS providers for launchers under test."""

from __future__ import annotations

from typing import Any


def aws_section(image_id: str, ssh_port: int, name: str = "region-a") -> dict[str, Any]:
    """A provider with one pool and one label, ``small``; its instances are reached over SSH before they are given out.

    :param ssh_port: where they answer.
    """
    image = {"name": "debian", "image-id": image_id, "username": "admin", "connection-port": ssh_port}
    label = {"name": "small", "cloud-image": "debian", "instance-type": "t3.small", "key-name": "zuul"}
    return {
        "name": name,
        "driver": "aws",
        "region-name": "us-east-1",
        "rate": 0,
        "cloud-images": [image],
        "pools": [{"name": "main", "labels": [label]}],
    }
