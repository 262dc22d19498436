# SPDX-License-Identifier: Apache-2.0
"""Bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import logging

import pytest

from nodepool.cmd.image_wait import Item, ProgressDisplay, ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_for_each_tenth() -> None:
    stream = io.StringIO()
    progress = ProgressDisplay(stream)
    for percent in (0.0, 3.0, 9.9, 10.0, 15.0, 99.0, 100.0):
        progress.show([Item("lab", percent, "of 1.0 GiB")])
    progress.clear()
    assert stream.getvalue().splitlines() == [f"lab: {percent:3d}% of 1.0 GiB" for percent in (0, 10, 99, 100)]


def test_without_a_percentage_a_line_for_each_step() -> None:
    stream = io.StringIO()
    progress = ProgressDisplay(stream)
    for seconds, step in ((1, "root"), (2, "root"), (3, "install")):
        progress.show([Item("deb", None, f"{seconds} s {step}", step)])
    assert stream.getvalue().splitlines() == ["deb: 1 s root", "deb: 3 s install"]


def test_items_are_told_apart() -> None:
    stream = io.StringIO()
    progress = ProgressDisplay(stream)
    progress.show([Item("a", 50.0, ""), Item("b", None, "", "waiting")])
    progress.show([Item("a", 50.0, ""), Item("b", 50.0, "")])
    assert stream.getvalue().splitlines() == ["a:  50%", "b: waiting", "b:  50%"]


def test_bars_replace_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    progress = ProgressDisplay(stream)
    progress.show([Item("lab", 50.0, "x" * 80), Item("odd", None, "waiting")])
    first = stream.getvalue()
    assert first.splitlines()[0] == f"lab [{'#' * 10}{'.' * 10}]  50% {'x' * 27}"
    assert first.splitlines()[1] == "odd: waiting"
    progress.show([Item("lab", 60.0, "")])
    assert stream.getvalue()[len(first) :] == f"\x1b[1A\x1b[2K\x1b[1A\x1b[2Klab [{'#' * 12}{'.' * 8}]  60%\n"
    progress.clear()
    assert stream.getvalue().endswith("60%\n\x1b[1A\x1b[2K")


def test_short_names_beside_bars() -> None:
    for percent, line in ((None, "deb-1: root\n"), (100.0, f"deb-1 [{'#' * 20}] 100% root\n")):
        stream = Terminal()
        ProgressDisplay(stream).show([Item("deb-123456", percent, "root", "", "deb-1")])
        assert stream.getvalue() == line
    lines = io.StringIO()
    ProgressDisplay(lines).show([Item("deb-123456", None, "root", "", "deb-1")])
    assert lines.getvalue() == "deb-123456: root\n"


def test_no_control_characters_reach_the_terminal() -> None:
    """The step comes out of the log of a build."""
    for stream in (Terminal(), io.StringIO()):
        ProgressDisplay(stream).show([Item("deb", None, "a\x1b[31mb\rc")])
        assert stream.getvalue() == "deb: a [31mb c\n"


class TestLine:
    """One line of a terminal to which others log."""

    def test_it_is_replaced_and_taken_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "12")
        stream = Terminal()
        with ProgressLine(stream) as line:
            assert line.is_shown
            line.show("deleting\x1b for 1 s")
            line.show("done")
        assert stream.getvalue() == "\r\x1b[2Kdeleting  f\r\x1b[2Kdone\r\x1b[2K"

    def test_what_is_logged_is_not_deleted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stream = Terminal()
        root = logging.getLogger()
        handler = logging.StreamHandler(stream)
        monkeypatch.setattr(root, "handlers", [handler])
        with ProgressLine(stream) as line:
            line.show("deleting")
            root.error("a line of the log")
            root.error("another")
        root.error("later")
        assert stream.getvalue() == "\r\x1b[2Kdeleting\r\x1b[2Ka line of the log\nanother\nlater\n"
        assert handler.filters == []

    @pytest.mark.parametrize("stream", [io.StringIO(), None])
    def test_elsewhere_nothing_is_written(self, stream: io.StringIO | None) -> None:
        with ProgressLine(stream) as line:
            assert not line.is_shown
            line.show("deleting")
        assert stream is None or stream.getvalue() == ""
