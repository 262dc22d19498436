# SPDX-License-Identifier: Apache-2.0
"""Values of the configuration that are made of the request that causes a launch (L-15). Pure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest

#: Request fields that dynamic values may use (reference/configuration 5), and where they come from.
_REQUEST_FIELDS: Final = {
    "id": "id",
    "labels": "node_types",
    "requestor": "requestor",
    "requestor_data": "requestor_data",
    "relative_priority": "relative_priority",
    "event_id": "event_id",
    "created_time": "created_time",
    "tenant_name": "tenant_name",
}


def dynamic_value(template: Any, request: NodeRequest | None) -> str | None:
    """Format a dynamic value from the request that causes a launch; None = it cannot be formatted."""
    values = {name: getattr(request, source, None) for name, source in _REQUEST_FIELDS.items()}
    try:
        return str(template).format(request=SimpleNamespace(**values))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
