# SPDX-License-Identifier: Apache-2.0
"""Where Zuul's pages have what a request is for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from nodepool.model.request import origin_of

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest


def zuul_links(record: NodeRequest, zuul_url: str | None) -> dict[str, str]:
    """``buildset`` and ``status`` page of the tenant -> address, those that are known.

    :param zuul_url: where Zuul's pages are; None = not known.
    """
    tenant = origin_of(record).get("tenant")
    if zuul_url is None or tenant is None:
        return {}
    data = record.requestor_data
    buildset = data.get("build_set_uuid") if isinstance(data, dict) else None
    base = f"{zuul_url.rstrip('/')}/t/{_quoted(tenant)}"
    found = {"status": f"{base}/status"}
    if isinstance(buildset, str) and buildset:
        found = {"buildset": f"{base}/buildset/{_quoted(buildset)}", **found}
    return found


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")
