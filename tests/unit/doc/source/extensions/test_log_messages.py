# SPDX-License-Identifier: Apache-2.0
"""doc/source/reference/log-messages.rst has each message that is logged at INFO and above, and no other."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from doc.source.extensions import log_messages

PAGE = Path(__file__).parents[5] / "doc" / "source" / "reference" / "log-messages.rst"
ROW = re.compile(r"^   \* - (``.*(?:\n       ``.*)*)\n     - (.*)\n     - (.*)\n     - (.*)$", re.MULTILINE)
LEVELS = ("INFO", "WARNING", "ERROR", "CRITICAL", "varies")


def rows() -> list[tuple[list[str], str, str, str]]:
    """Messages, level, meaning and remedy of each row."""
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [(re.findall(r"``(.*?)``", texts), level, meaning, remedy) for texts, level, meaning, remedy in found]


@cache
def logged() -> dict[str, set[str]]:
    """Each message of the code with its levels."""
    found: dict[str, set[str]] = {}
    for message in log_messages.messages():
        found.setdefault(message.text, set()).add(message.level or "varies")
    return found


def test_each_message_has_a_row() -> None:
    there = {text for texts, *_ in rows() for text in texts}
    missing = sorted(set(logged()) - there)
    assert not missing, f"add a row to doc/source/reference/log-messages.rst for: {missing}"


def test_each_row_is_a_message() -> None:
    gone = sorted({text for texts, *_ in rows() for text in texts} - set(logged()))
    assert not gone, f"remove from doc/source/reference/log-messages.rst what nobody logs: {gone}"


def test_levels_are_right() -> None:
    found = logged()
    for texts, level, _, _ in rows():
        levels = set().union(*(found.get(text, set()) for text in texts))
        right = ", ".join(name for name in LEVELS if name in levels)
        assert level == right, f"doc/source/reference/log-messages.rst: the level of {texts} is {right}"


def test_each_row_says_something() -> None:
    assert len(rows()) > 100
    assert all(meaning.endswith(".") and remedy.endswith(".") for _, _, meaning, remedy in rows())


def test_no_message_stands_twice() -> None:
    there = [text for texts, *_ in rows() for text in texts]
    assert sorted(there) == sorted(set(there))


def test_collection(tmp_path: Path) -> None:
    """What counts as a message, and how it is written."""
    (tmp_path / "part.py").write_text(
        "log.info('Taking %s after %.1f s', a, b)\n"
        "log.debug('not this')\n"
        "self.log.log(level, 'It depends: %r', x)\n"
        "log.log(logging.DEBUG, 'nor this')\n"
        "log.warning('%s: %s', a, b)\n"
        "hooks.log.error('one\\n%s%s', a, b)\n"
        "with Guard(log, 'Error in %s', name): pass\n"
        "with Guard(log, 'A small error', level=DEBUG): pass\n"
        "messages.error('no logger')\n"
    )
    assert [(message.text, message.level) for message in log_messages.messages(tmp_path)] == [
        ("Taking ... after ... s", "INFO"),
        ("It depends: ...", ""),
        ("one ...", "ERROR"),
    ]
    assert [message.text for message in log_messages.unforeseen(tmp_path)] == ["Error in ..."]
    assert "* ``Error at the start of a build``" in log_messages.expand(".. unforeseen-errors::\n")
