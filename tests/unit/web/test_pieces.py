# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import anyio
import pytest
from starlette.responses import Response

from nodepool.web.app import PIECE, Pieces


@pytest.mark.parametrize(("length", "pieces"), [(0, 1), (PIECE, 1), (PIECE + 1, 2), (3 * PIECE, 3)])
def test_long_answers(length: int, pieces: int) -> None:
    """They come in pieces that are bounded, and have the same bytes."""
    content = bytes(number % 251 for number in range(length))
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    async def ask() -> None:
        await Pieces(Response(content))({"type": "http"}, receive, send)

    anyio.run(ask)
    assert sent[0]["headers"][0] == (b"content-length", str(length).encode())
    bodies = sent[1:]
    assert b"".join(one["body"] for one in bodies) == content
    assert [one.get("more_body", False) for one in bodies] == [True] * (pieces - 1) + [False]
