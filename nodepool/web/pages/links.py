# SPDX-License-Identifier: Apache-2.0
"""Where values in tables lead to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodepool.web.pages.frame import address


def of_pool(value: Any, _row: Mapping[str, Any]) -> str:
    """``<provider>/<pool>``, or the provider alone."""
    return address("providers", str(value).partition("/")[0])


def of_provider(value: Any, _row: Mapping[str, Any]) -> str:
    return address("providers", str(value))


def of_label(value: Any, _row: Mapping[str, Any]) -> str:
    return address("labels", str(value))


def of_node(value: Any, _row: Mapping[str, Any]) -> str:
    return address("nodes", str(value))


def of_request(value: Any, _row: Mapping[str, Any]) -> str:
    return address("requests", str(value))


def of_tenant(value: Any, _row: Mapping[str, Any]) -> str:
    """The requests of a tenant."""
    return address("requests", tenant=str(value))
