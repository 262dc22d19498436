# SPDX-License-Identifier: Apache-2.0
"""Loggers whose messages say which node they are about, and for which request and event it was (rule J-10)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nodepool.logconfig import AnnotatedLogger, get_annotated_logger

if TYPE_CHECKING:
    from nodepool.model.node import Node


def node_logger(logger: logging.Logger | logging.LoggerAdapter[logging.Logger], node: Node) -> AnnotatedLogger:
    """A logger for one node. What its record does not tell is left out; ids that the logger has already stay.

    :param node: also one that is given back or deleted: its record keeps the ids.
    """
    return get_annotated_logger(
        logger,
        event_id=node.request_event_id,
        node_request_id=node.allocated_to,
        node_id=node.id,
        provider=node.provider,
        pool=node.pool,
        label=node.type[0] if len(node.type) == 1 else None,
    )
