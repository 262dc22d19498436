# SPDX-License-Identifier: Apache-2.0
"""What is known of one provider (reference/commands 2)."""

from __future__ import annotations

from nodepool.listing.pools import provider_image_table, provider_node_table
from nodepool.model.node import Node


def test_images() -> None:
    images = [("debian", "0000000003", ["0000000001", "0000000002"]), ("debian", "0000000004", [])]
    assert provider_image_table(images).rows == [list(row) for row in images]


def test_nodes() -> None:
    node = Node("small")
    node.id, node.external_id = "0000000007", "server"
    assert provider_node_table([node]).rows == [["0000000007", "server"]]
