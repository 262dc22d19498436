# SPDX-License-Identifier: Apache-2.0
"""The build logs of a builder (WP-49)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx2 as httpx
import pytest
from starlette.testclient import TestClient

from nodepool.config.objects import Config
from nodepool.fast_json import loads
from nodepool.web.logs import TAIL_BYTES, LogSite, make_logs_app
from nodepool.web.parts import logs_part
from tests.support.web_crawl import crawl
from tests.unit.web.rig import BASE, SECONDS, serving, set_constants

if TYPE_CHECKING:
    from nodepool.builder.supervisor import ImageBuilder

BUILD, ENDED = "0" * 32, "1" * 32
NAME, OTHER = f"debian-{BUILD}", f"arch-{ENDED}"


class Builder:
    """Its logs, and which builds run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running = {BUILD}
        self.app = make_logs_app(LogSite("b1", "1.2.3", str(directory), lambda: self.running, lambda: 1e9))
        self.client = TestClient(self.app, base_url=BASE)

    def write(self, text: str | bytes, name: str = NAME) -> None:
        """Add to a log."""
        with (self.directory / f"{name}.log").open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def test_list_and_logs(builder: Builder) -> None:
    """WP-49: the page of a log leads to the stream while its build runs."""
    assert "No log is there." in builder.client.get("/").text
    builder.write("12345")
    builder.write("x", OTHER)
    pages = crawl(builder.client)
    assert {answer.status_code for answer in pages.values()} == {200}
    assert pages[f"/logs/{NAME}/text"].text == "12345"
    assert pages["/"].text.count(">building</td>") == 1
    assert f'data-stream="../logs/{NAME}/stream?from=5"' in pages[f"/logs/{NAME}"].text
    assert "data-stream" not in pages[f"/logs/{OTHER}"].text


def test_hostile_log(builder: Builder) -> None:
    """WP-49"""
    builder.write("<script>alert(1)</script>\x1b[31m\u202e\n\tafter\n".encode() + b"\xff")
    text = builder.client.get(f"/logs/{NAME}").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [31m \n\tafter\n\ufffd" in text


def test_end_of_a_long_log(builder: Builder) -> None:
    """WP-49: the page has its end, from the begin of a line on; all of it is a link away."""
    builder.running.clear()
    builder.write("".join(f"line {number}\n" for number in range(20_000)))
    text = builder.client.get(f"/logs/{NAME}").text
    assert len(text) < TAIL_BYTES + 10_000
    assert "line 19999\n" in text
    assert '"0">line ' in text
    assert builder.client.get(f"/logs/{NAME}/text").text.startswith("line 0\n")


@pytest.mark.parametrize(
    "name", ["nothing", f"none-{BUILD}", "%2e%2e%2fpasswd", f"..%2Flogs%2Fdebian-{BUILD}", "%00", "."]
)
def test_no_such_log(builder: Builder, name: str) -> None:
    """WP-49"""
    builder.write("x")
    assert builder.client.get(f"/logs/{name}").status_code == 404
    assert builder.client.get(f"/logs/{name}/text").status_code == 404


@pytest.mark.parametrize("end", ["of the build", "of the server"])
def test_what_is_added_while_the_build_runs(builder: Builder, end: str) -> None:
    """WP-49: half a character waits for its other half. The stream ends with the build, or with the server."""
    builder.write(b"old a" + b"\xc3")
    url = f"/logs/{NAME}/stream?from=4"
    with (
        serving(lambda: builder.app) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=SECONDS) as client,
        client.stream("GET", url) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        messages = blocks(answer)
        assert next(messages) == ["id: 5", 'data: "a"']
        builder.write(b"\xa4two\n")
        number, data = next(messages)
        assert (number, loads(data.removeprefix("data: ").encode())) == ("id: 11", "ätwo\n")
        if end == "of the build":
            builder.running.clear()
        else:
            server.stop()
        assert list(messages) == ([["event: end", "data: {}"]] if end == "of the build" else [])


def blocks(answer: httpx.Response) -> Iterator[list[str]]:
    """The lines of each message."""
    found: list[str] = []
    for line in answer.iter_lines():
        if line:
            found.append(line)
        else:
            yield found
            found = []


def test_stream_goes_on_and_is_bounded(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-49: a client that comes back goes on where it was."""
    builder.running.clear()
    builder.write("one\ntwo\n")
    with builder.client as client:
        answer = client.get(f"/logs/{NAME}/stream?from=0", headers={"Last-Event-ID": "4"})
        assert answer.text == 'id: 8\ndata: "two\\n"\n\nevent: end\ndata: {}\n\n'
        assert client.get(f"/logs/{NAME}/stream?from=x").status_code == 400
        set_constants(monkeypatch, LogSite, MOST_VIEWERS=0)
        assert client.get(f"/logs/{NAME}/stream").status_code == 503


@pytest.mark.parametrize(("port", "login", "serves"), [(0, False, False), (8006, False, True), (8006, True, False)])
def test_builder_serves_them(port: int, login: bool, serves: bool, caplog: pytest.LogCaptureFixture) -> None:
    """WP-49: only with a port, and not where a login is required."""
    config = Config()
    config.webapp_builder_port, config.webapp_require_login = port, login
    with caplog.at_level(logging.ERROR, "nodepool.web"):
        part = logs_part(cast("ImageBuilder", None), config)
    assert (part is not None and not part.current.is_alive()) == serves
    assert ("webapp.auth.require-login" in caplog.text) == login
