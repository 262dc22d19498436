# SPDX-License-Identifier: Apache-2.0
"""What a node says before its launch (rule L-1), also with objects of drivers that have less than ours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.statemachine import node_fields
from nodepool.model.node import Node

NO_IMAGES = SimpleNamespace()
FULL = {
    "username": "admin",
    "python_path": "/usr/bin/python3",
    "shell_type": "sh",
    "connection_type": "winrm",
    "connection_port": 5986,
}


def described(label: Any, provider: Any = NO_IMAGES) -> dict[str, Any]:
    node = Node("small")
    node_fields.describe(node, label, provider)
    return {name: getattr(node, name) for name in FULL}


@pytest.mark.parametrize(
    "image",
    [{"cloud_image": SimpleNamespace(**FULL)}, {"diskimage": SimpleNamespace(name="debian", **FULL)}],
    ids=["cloud image", "diskimage"],
)
def test_image(image: dict[str, Any]) -> None:
    assert described(SimpleNamespace(**image)) == FULL


def test_diskimage_of_the_provider() -> None:
    """How to connect says the provider, where it has the image of a label."""
    label = SimpleNamespace(diskimage=SimpleNamespace(name="debian", username="top"), cloud_image=None)
    provider = SimpleNamespace(diskimages={"debian": SimpleNamespace(**FULL)})
    assert described(label, provider) == FULL


def test_image_that_says_little() -> None:
    found = described(SimpleNamespace(cloud_image=SimpleNamespace(username="admin")))
    assert found == {
        "username": "admin",
        "python_path": "auto",
        "shell_type": None,
        "connection_type": "ssh",
        "connection_port": 22,
    }


def test_no_image() -> None:
    """The node stays as it is made."""
    assert described(SimpleNamespace())["username"] == "zuul"
