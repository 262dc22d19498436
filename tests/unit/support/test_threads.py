# SPDX-License-Identifier: Apache-2.0
"""The check for leaked threads finds them, and waits for those that are about to end."""

from __future__ import annotations

import threading

import pytest

from tests.support import threads


def test_leaked_thread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GRACE_SECONDS", 0.01)
    before, end = set(threading.enumerate()), threading.Event()
    leaked = threading.Thread(target=end.wait, name="forgotten")
    leaked.start()
    found = threads.leaked_threads(before)
    end.set()
    leaked.join()
    assert len(found) == 1
    assert "forgotten" in found[0]
    assert threads.leaked_threads(before) == []


def test_thread_that_is_about_to_end() -> None:
    before, end = set(threading.enumerate()), threading.Event()
    ending = threading.Thread(target=end.wait)
    ending.start()
    end.set()
    assert threads.leaked_threads(before) == []
