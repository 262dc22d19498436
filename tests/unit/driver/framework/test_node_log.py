# SPDX-License-Identifier: Apache-2.0
"""Messages about a node say for which request and event it was (rule J-10)."""

from __future__ import annotations

import logging

import pytest

from nodepool.driver.framework.node_log import node_logger
from nodepool.model.node import Node


def test_ids(caplog: pytest.LogCaptureFixture) -> None:
    """J-10."""
    node = Node("small", id="0000000001")
    node.allocated_to, node.request_event_id, node.provider, node.pool = "200-1", "E", "lab", "main"
    node_logger(logging.getLogger("test.node_log"), node).warning("Returned")
    (record,) = caplog.records
    assert record.getMessage() == "[e: E] [node_request: 200-1] [node: 0000000001] Returned"
    assert [vars(record)[key] for key in ("provider", "pool", "label")] == ["lab", "main", "small"]


def test_what_is_not_known(caplog: pytest.LogCaptureFixture) -> None:
    """J-10: of a node that nobody had."""
    node_logger(logging.getLogger("test.node_log"), Node(["small", "any"], id="0000000001")).warning("Removed")
    (record,) = caplog.records
    assert record.getMessage() == "[node: 0000000001] Removed"
    assert "label" not in vars(record)
