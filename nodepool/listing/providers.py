# SPDX-License-Identifier: Apache-2.0
"""What is known of one provider: its images and its nodes (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from nodepool.listing.table import Column, Table

if TYPE_CHECKING:
    from nodepool.model.node import Node

_IMAGE_COLUMNS: Final = (
    Column("Image Name", "image"),
    Column("Build ID", "build_id"),
    Column("Upload IDs", "upload_ids"),
)
_NODE_COLUMNS: Final = (Column("ID", "id"), Column("Server ID", "server_id"))


def provider_image_table(images: Iterable[tuple[str, str, list[str]]]) -> Table:
    """:param images: image, build id and upload ids of each build that has or had uploads in the provider."""
    return Table(_IMAGE_COLUMNS, [list(row) for row in images])


def provider_node_table(nodes: Iterable[Node]) -> Table:
    """:param nodes: of the provider."""
    return Table(_NODE_COLUMNS, [[node.id, node.external_id] for node in nodes])
