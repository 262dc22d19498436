# SPDX-License-Identifier: Apache-2.0
"""Which form of an answer is preferred; what Nodepool 11.0.0 answers to each header was looked at."""

from __future__ import annotations

import pytest

from nodepool.web.answers import prefers_json

JSON = "application/json"


@pytest.mark.parametrize(
    "header",
    [
        JSON,
        "APPLICATION/JSON",
        "application/*",
        f"{JSON};q=0.9, text/plain;q=0.8",
        f"{JSON}, */*;q=0.1",
        f"{JSON};q=0.5, text/html;q=0",
        f"{JSON}; q=1.0, text/plain;q=0.999",
        f"{JSON};charset=utf-8",
        f",{JSON},",
    ],
)
def test_json_wins(header: str) -> None:
    assert prefers_json(header)


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "*/*", "text/*", "text/html", "text/plain", "image/png", "*", "garbage", "application/vnd+json"),
        *(f"{JSON}, text/plain", f"{JSON}, text/html", f"text/html;q=0.5,{JSON};q=0.5", "text/plain;q=0, */*"),
        *(f"{JSON};q=0", f"{JSON};q=x", f"{JSON}, text/plain;q=2", f"{JSON};q=0.1234", f"{JSON}, *;q=0.1"),
        *("application/xml, */*;q=0.1", f"{JSON};q=-1", f"{JSON};q=1.001", f"{JSON};"),
    ],
)
def test_text_wins(header: str | None) -> None:
    """A tie, no preference, and what cannot be read."""
    assert not prefers_json(header)
