# SPDX-License-Identifier: Apache-2.0
"""Follows all links of a site, as who clicks on everything."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

if TYPE_CHECKING:
    import httpx2 as httpx
    from starlette.testclient import TestClient

_HOST: Final = "http://nodepool.example:8005"


def crawl(client: TestClient, start: str = "/") -> dict[str, httpx.Response]:
    """Every page and file that a page leads to, by its address."""
    found: dict[str, httpx.Response] = {}
    todo = [start]
    while todo:
        address = todo.pop()
        if address in found:
            continue
        found[address] = answer = client.get(address)
        if answer.headers["content-type"].startswith("text/html"):
            for link in re.findall(r'(?:href|src)="([^"]*)"', answer.text):
                whole = urljoin(_HOST + address, html.unescape(link)).partition("#")[0]
                assert whole.startswith(_HOST), f"{address} leads to {whole}"
                todo.append(whole.removeprefix(_HOST))
    return found
