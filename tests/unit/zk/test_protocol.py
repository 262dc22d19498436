# SPDX-License-Identifier: Apache-2.0
"""An answer of ZooKeeper reaches who waits for it, whatever becomes of what was to be done with it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.zk.protocol import Reply


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
