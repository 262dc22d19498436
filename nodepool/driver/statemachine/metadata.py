# SPDX-License-Identifier: Apache-2.0
"""The metadata by which Nodepool recognises its resources in a cloud (rule D-1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PROVIDER_KEY: Final = "nodepool_provider_name"
POOL_KEY: Final = "nodepool_pool_name"
NODE_KEY: Final = "nodepool_node_id"
BUILD_KEY: Final = "nodepool_build_id"
UPLOAD_KEY: Final = "nodepool_upload_id"


def for_node(node_id: str, pool_name: str, provider_name: str) -> dict[str, str]:
    """What is stored with an instance, and with all that is made for it."""
    return {NODE_KEY: node_id, POOL_KEY: pool_name, PROVIDER_KEY: provider_name}


def node_id_of(found: Mapping[str, Any] | None, provider_name: str) -> str | None:
    """The node that a thing in the cloud was made for; None = it is not of this provider, or not of a node."""
    if not found or found.get(PROVIDER_KEY) != provider_name:
        return None
    node_id = found.get(NODE_KEY)
    return str(node_id) if node_id else None


def upload_of(found: Mapping[str, Any] | None, provider_name: str) -> tuple[str, str] | None:
    """Build id and upload id of an image; None = it is not of this provider, or not an image of ours."""
    if not found or found.get(PROVIDER_KEY) != provider_name:
        return None
    build, upload = found.get(BUILD_KEY), found.get(UPLOAD_KEY)
    return (str(build), str(upload)) if build and upload else None
