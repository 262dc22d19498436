# SPDX-License-Identifier: Apache-2.0
"""People who look at the web pages: each has a stream of events, which sends the part of its page that changes.

``python -m benchmarks.support.viewers URL COUNT`` prints a line when all of them look, and ends with SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2 as httpx

from tests.support.launcher import ROOT
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

#: What they look at, each one of them.
LISTS: Final = ("requests", "nodes", "")
#: As in ``static/live.js``: a page asks for its part if the stream has not sent it for so long.
OLD_SECONDS: Final = 30.0
#: As in ``static/charts.js``.
CHARTS_SECONDS: Final = 20.0
LOOKING: Final = "looking"
PART: Final = {"HX-Request": "true"}
#: What a page says of its stream, and of the snapshot that it shows.
_STREAM: Final = re.compile(rb'data-stream="\./([^"]*)" data-snapshot="(\d+)"')
_ADDRESS: Final = re.compile(r"Web server at (http://127\.0\.0\.1:\d+)/")


@contextmanager
def viewers(daemon: ChildProcess, count: int, directory: Path) -> Iterator[None]:
    """Inside, so many people look at the pages of a daemon, in a process of their own."""
    # Real ones have machines of their own: what they compute must not take the processor from what is measured.
    command = ["nice", "-n", "19", sys.executable, "-m", "benchmarks.support.viewers", address_of(daemon), str(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = ChildProcess(command, directory / "viewers.log", env=environment)
    process.start()
    try:
        wait_for("viewers look", lambda: LOOKING in process.log_text())
        yield
    finally:
        process.stop(signal.SIGTERM)


def address_of(daemon: ChildProcess) -> str:
    """Of the web pages of a daemon. Blocks until it serves them."""
    wait_for("web pages", lambda: _ADDRESS.search(daemon.log_text()) is not None)
    found = _ADDRESS.search(daemon.log_text())
    assert found is not None
    return found[1]


async def look(client: httpx.AsyncClient, path: str, looking: asyncio.Event) -> None:
    """One of them. Ends when it is cancelled."""
    page = await client.get(f"/{path}")
    found = _STREAM.search(page.content)
    assert found is not None, f"/{path} has no part that changes"
    shown = asyncio.Event()
    tasks = [asyncio.create_task(_ask_again(client, path, shown))]
    if not path:
        tasks.append(asyncio.create_task(_draw_again(client)))
    try:
        async with client.stream("GET", f"/{found[1].decode()}", timeout=None) as stream:
            looking.set()
            async for piece in stream.aiter_bytes():
                if b"event: hello" in piece and b'"snapshot":%s' % found[2] not in piece.replace(b" ", b""):
                    await client.get(f"/{path}", headers=PART)
                if b"event: part" in piece:
                    shown.set()
    finally:
        for task in tasks:
            task.cancel()


async def _ask_again(client: httpx.AsyncClient, path: str, shown: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(OLD_SECONDS)
        if not shown.is_set():
            await client.get(f"/{path}", headers=PART)
        shown.clear()


async def _draw_again(client: httpx.AsyncClient) -> None:
    """As ``static/charts.js``."""
    known: dict[str, str] = {}
    while True:
        answer = await client.get("/charts.json?range=1h", headers=known)
        known = {"If-None-Match": answer.headers["etag"]}
        await asyncio.sleep(CHARTS_SECONDS)


async def look_all(url: str, count: int) -> None:
    """All of them, until SIGTERM."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 0)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        started = [asyncio.Event() for _ in range(count)]
        people = [
            asyncio.create_task(look(client, LISTS[number % len(LISTS)], looking))
            for number, looking in enumerate(started)
        ]
        for looking in started:
            await looking.wait()
        print(LOOKING, flush=True)
        await asyncio.gather(*people)


if __name__ == "__main__":
    asyncio.run(look_all(sys.argv[1], int(sys.argv[2])))
