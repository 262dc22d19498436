# SPDX-License-Identifier: Apache-2.0
"""WP-49: the build logs of a builder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from starlette.testclient import TestClient

from nodepool.web import logs
from nodepool.web.logs import LogPages, LogSite, LogTail, make_logs_app, tail
from tests.support.web_crawl import crawl

BUILD = "0" * 32
NAME = f"debian-{BUILD}"


class Builder:
    """Its logs, and which builds run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: set[str] = set()
        self.site = LogSite("b1.example.org", "1.2.3", str(directory), lambda: self.running, lambda: 1e9)
        self.client = TestClient(make_logs_app(self.site), base_url="http://nodepool.example:8005")

    def write(self, text: str | bytes, name: str = NAME) -> None:
        """Add to a log."""
        with (self.directory / f"{name}.log").open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def log(self) -> str:
        answer = self.client.get(f"/logs/{NAME}")
        assert answer.status_code == 200
        return answer.text

    def messages(self, begin: int, stop: anyio.Event) -> AsyncIterator[str]:
        return LogPages(self.site)._messages(NAME, begin, stop)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def added(message: str) -> str:
    """What a message adds to the log."""
    text = json.loads(message.partition("data: ")[2])
    assert isinstance(text, str)
    return text


def test_list_and_log(builder: Builder) -> None:
    """WP-49"""
    builder.write("first line\n")
    builder.write("x", f"arch-{'1' * 32}")
    builder.running.add(BUILD)
    pages = crawl(builder.client)
    assert {answer.status_code for answer in pages.values()} == {200}
    assert pages[f"/logs/{NAME}/text"].text == "first line\n"
    assert ">building</td>" in pages["/"].text
    assert "The build is running" in pages[f"/logs/{NAME}"].text
    assert "The build has ended" in pages[f"/logs/arch-{'1' * 32}"].text


def test_no_logs(builder: Builder) -> None:
    assert "No log is there." in builder.client.get("/").text


def test_hostile_log(builder: Builder) -> None:
    """WP-49"""
    builder.write("<script>alert(1)</script>\x1b[31m\u202e\n\tafter\n".encode() + b"\xff")
    text = builder.log()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [31m \n\tafter\n\ufffd" in text


def test_end_of_a_long_log(builder: Builder) -> None:
    """WP-49: the page has its end, from the begin of a line on, and the rest is a link away."""
    builder.write("".join(f"line {number}\n" for number in range(20_000)))
    text = builder.log()
    assert len(text) < logs.TAIL_BYTES + 10_000
    assert "line 19999\n" in text
    assert '"0">line ' in text
    assert builder.client.get(f"/logs/{NAME}/text").text.startswith("line 0\n")


@pytest.mark.parametrize(
    "name", ["nothing", f"gone-{BUILD}", "%2e%2e%2fpasswd", f"..%2Flogs%2Fdebian-{BUILD}", "%00", "."]
)
def test_no_such_log(builder: Builder, name: str) -> None:
    """WP-49"""
    builder.write("x")
    assert builder.client.get(f"/logs/{name}").status_code == 404
    assert builder.client.get(f"/logs/{name}/text").status_code == 404


def test_page_leads_to_the_stream_while_the_build_runs(builder: Builder) -> None:
    builder.write("12345")
    assert "data-stream" not in builder.log()
    builder.running.add(BUILD)
    assert f'data-stream="../logs/{NAME}/stream?from=5"' in builder.log()


def test_what_is_added_while_the_build_runs(builder: Builder) -> None:
    """WP-49"""
    builder.write("old ")
    builder.running.add(BUILD)

    async def follow() -> list[str]:
        stream = builder.messages(4, anyio.Event())
        builder.write("one\n")
        first = await anext(stream)
        builder.write("two\n")
        second = await anext(stream)
        builder.running.clear()
        return [first, second, *[message async for message in stream]]

    first, second, end = anyio.run(follow)
    assert (first, added(second)) == ('id: 8\ndata: "one\\n"\n\n', "two\n")
    assert end.startswith("event: end\n")


def test_stream_ends_with_the_server(builder: Builder) -> None:
    """WP-49"""
    builder.write("x")
    builder.running.add(BUILD)

    async def follow() -> list[str]:
        stop = anyio.Event()
        found = []
        async for message in builder.messages(0, stop):
            found.append(message)
            stop.set()
        return found

    assert len(anyio.run(follow)) == 1


def test_stream_over_http(builder: Builder) -> None:
    """WP-49: a client that comes back goes on where it was."""
    builder.write("one\ntwo\n")
    with builder.client as client:
        answer = client.get(f"/logs/{NAME}/stream?from=0", headers={"Last-Event-ID": "4"})
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.text == 'id: 8\ndata: "two\\n"\n\nevent: end\ndata: {}\n\n'
        assert client.get(f"/logs/{NAME}/stream?from=x").status_code == 400


def test_viewers_are_bounded(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-49"""
    monkeypatch.setattr(logs, "MOST_VIEWERS", 0)
    with builder.client as client:
        assert client.get(f"/logs/{NAME}/stream").status_code == 503


def test_half_a_character_waits_for_its_rest(builder: Builder) -> None:
    whole = "ä".encode()
    builder.write(b"a" + whole[:1])
    reader = LogTail(str(builder.directory), NAME, 0)
    assert (reader.read(), reader.position) == ("a", 1)
    builder.write(whole[1:])
    assert (reader.read(), reader.position) == ("ä", 3)
    assert reader.read() == ""


def test_tail_of_a_short_log(builder: Builder) -> None:
    builder.write("no line break")
    assert tail(str(builder.directory), NAME) == ("no line break", 13)
