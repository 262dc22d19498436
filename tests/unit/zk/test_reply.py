# SPDX-License-Identifier: Apache-2.0
"""An answer of ZooKeeper reaches who waits for it, whatever becomes of what was to be done with it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.zk.reply import Reply


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZKConnectionError("not connected to ZooKeeper"), []),
        (RuntimeError("a mistake"), ["Error while handling a ZooKeeper reply"]),
    ],
)
def test_errors_of_a_callback(caplog: pytest.LogCaptureFixture, error: Exception, said: list[str]) -> None:
    """The connection is closed while an answer is handled: no mistake. Anything else is told. Neither is raised."""

    def on_done(_result: Any, _error: BaseException | None) -> None:
        raise error

    reply = Reply(on_done)
    with caplog.at_level(logging.WARNING):
        reply.set("answer")
    assert reply.get(0) == "answer"
    assert [record.message for record in caplog.records] == said


def test_reply_that_does_not_come() -> None:
    reply = Reply()
    assert not reply.wait(0.01)
    with pytest.raises(TimeoutError):
        reply.get(0.01)


def test_first_answer_counts() -> None:
    """Kazoo may report an error twice, or after the answer."""
    calls: list[tuple[Any, BaseException | None]] = []
    reply = Reply(lambda result, error: calls.append((result, error)))
    reply.set(1)
    reply.set_exception(KeyError())
    reply.set(2)
    assert calls == [(1, None)]
    assert reply.get() == 1
    assert reply.get(1) == 1
