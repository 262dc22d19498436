# SPDX-License-Identifier: Apache-2.0
"""What clients send (rule WP-92); the rest is in ``test_writes``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from nodepool.web.answers import ApiProblem
from nodepool.web.writes import read_body


def read(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Read the body that comes in these messages."""
    left: Iterator[dict[str, Any]] = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left)

    headers = [(b"content-type", b"application/json; charset=utf-8")]
    return asyncio.run(read_body(Request({"type": "http", "method": "POST", "headers": headers}, receive)))


def test_in_pieces() -> None:
    pieces = [b'{"reason"', b': "why"}']
    messages = [{"type": "http.request", "body": piece, "more_body": piece is pieces[0]} for piece in pieces]
    assert read(messages) == {"reason": "why"}


def test_client_goes() -> None:
    """Half of a body is none, and no error of ours."""
    with pytest.raises(ApiProblem, match="not complete") as caught:
        read([{"type": "http.request", "body": b'{"rea', "more_body": True}, {"type": "http.disconnect"}])
    assert caught.value.status == 400
