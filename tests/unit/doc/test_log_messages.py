# SPDX-License-Identifier: Apache-2.0
"""The page about log messages says what each message of WARNING and above means, and names none that is not there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from doc.source.extensions import log_messages
from doc.source.extensions.log_messages import Message
from tests.support.tables import table

PAGE = log_messages.ENTRIES.with_suffix(".rst")


def test_entries_and_messages() -> None:
    """A message at INFO may have an entry, where there is something to do."""
    levels: dict[str, set[str]] = {}
    for message in log_messages.messages():
        levels.setdefault(message.text, set()).add(message.level)
    found = Counter(text for entry in log_messages.entries() for text in entry.texts)
    assert {text for text, where in levels.items() if where != {"INFO"}} - found.keys() == set(), "without an entry"
    assert found.keys() - levels.keys() == set(), "no message of the code"
    assert [text for text, count in found.items() if count > 1] == []
    for entry in log_messages.entries():
        assert entry.section, entry
        assert entry.meaning.endswith("."), entry
        assert not entry.advice or entry.advice.endswith("."), entry
        assert entry.advice or any(levels[text] != {"INFO"} for text in entry.texts), entry


def test_page() -> None:
    """Each text is there with its level and logger, and so is each of errors that were not foreseen."""
    page = log_messages.expand(PAGE.read_text(encoding="utf-8"))
    unforeseen = [f"* ``{message.text}``" for message in log_messages.unforeseen()]
    assert len(unforeseen) > 50
    assert [line for line in unforeseen if line not in page] == []
    assert "| ``ZooKeeper session lost``\n       | WARNING, ``nodepool.zk.ZooKeeper``\n     - " in page
    assert page.count("   * - | ``") == len(list(log_messages.entries()))


def test_collection(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text(table(__file__, "log_messages"), encoding="utf-8")
    assert list(log_messages.messages(tmp_path)) == [
        Message("Provider ...: 5% of the ... times ...", "WARNING", "nodepool.CleanupWorker", "some.py"),
        Message("As a whole", "INFO", "nodepool.first", "some.py"),
        Message("It depends", "", "nodepool.first", "some.py"),
        Message("Attempt ... failed", "ERROR", "", "some.py"),
    ]
    assert [message.text for message in log_messages.unforeseen(tmp_path)] == ["Not foreseen"]
