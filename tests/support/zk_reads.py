# SPDX-License-Identifier: Apache-2.0
"""Counts what a client reads from ZooKeeper."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.protocol.serialization import GetChildren, GetData

from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import Reply
from nodepool.zk.wire import MultiRead


def count_reads(client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The returned list grows by the path (without the chroot) of each znode that is read from now on."""
    reads: list[str] = []
    kazoo = client.kazoo
    call = kazoo.call

    def counting(request: Any, reply: Reply) -> Reply:
        for each in request.operations if isinstance(request, MultiRead) else (request,):
            if isinstance(each, (GetData, GetChildren)):
                reads.append(kazoo.unchroot(each.path))
        return call(request, reply)

    monkeypatch.setattr(kazoo, "call", counting)
    return reads
