# SPDX-License-Identifier: Apache-2.0
"""``nodepool request-list`` and ``label-list`` (cli.md 2 and 6)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from nodepool.cmd.session import open_zookeeper
from nodepool.cmd.tables import Column, Table, add_format_option, render

if TYPE_CHECKING:
    from nodepool.model.component import PoolComponent
    from nodepool.model.request import NodeRequest

_REQUEST_COLUMNS: Final = (
    Column("Request ID", "id"),
    Column("Priority", "relative_priority"),
    Column("State", "state"),
    Column("Requestor", "requestor"),
    Column("Node Types", "node_types"),
    Column("Nodes", "nodes"),
    Column("Declined By", "declined_by"),
    Column("Event ID", "event_id"),
)
_LABEL_COLUMNS: Final = (Column("Label", "label"),)


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add("request-list", help="list node requests")
    parser.set_defaults(run=list_requests)
    add_format_option(parser)

    parser = add("label-list", help="list the labels that running launchers serve")
    parser.set_defaults(run=list_labels)
    add_format_option(parser)


def request_table(requests: Iterable[NodeRequest]) -> Table:
    """The request table."""
    return Table(
        _REQUEST_COLUMNS,
        [
            [
                request.id,
                request.relative_priority,
                request.state,
                request.requestor,
                request.node_types,
                request.nodes,
                request.declined_by,
                request.event_id,
            ]
            for request in requests
        ],
    )


def label_table(pools: Iterable[PoolComponent]) -> Table:
    """The union of the labels of registered pools, sorted."""
    labels = {label for pool in pools for label in pool.supported_labels}
    return Table(_LABEL_COLUMNS, [[label] for label in sorted(labels)])


def list_requests(options: argparse.Namespace) -> int:
    """``nodepool request-list``"""
    with open_zookeeper(options) as zk:
        table = request_table(zk.nodeRequestIterator(cached=False))
    print(render(table, options.format))
    return 0


def list_labels(options: argparse.Namespace) -> int:
    """``nodepool label-list``"""
    with open_zookeeper(options) as zk:
        table = label_table(zk.getRegisteredPools())
    print(render(table, options.format))
    return 0
