# SPDX-License-Identifier: Apache-2.0
"""``nodepool list`` (``nodes``), ``hold`` and ``delete`` (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nodepool.clock import wall_time
from nodepool.cmd.durations import add_end_options
from nodepool.cmd.filter_options import add_filter_options, filter_of
from nodepool.cmd.format_option import add_format_option, is_as_released, no_launcher, show_listing
from nodepool.listing.nodes import ALLOCATED, NodeFacts, node_table
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.listing.table import Table
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.zk.zookeeper import ZooKeeper

_WHEN_FREE = "wait until whoever has the node gives it back, e.g. until its job has ended"


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "list",
        aliases=["nodes"],
        help="list nodes",
        description="Lists nodes: their state, what they are for, and who has them.",
        epilog="example: nodepool list --state in-use --label 'gpu-*' --older-than 2h -o wide",
    )
    parser.add_argument("--detail", action="store_true", help="show every column of Nodepool 11")
    # An abbreviation of Nodepool 11: now there is --debug, too.
    parser.add_argument("--d", "--de", dest="detail", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=list_nodes)
    add_filter_options(parser, (*states.NODE_STATES, ALLOCATED), pools=True, age="in its state")
    add_format_option(parser, watch=True)

    parser = add(
        "delete",
        help="delete nodes",
        description="Asks the launchers to delete nodes. A node of a static host is registered again afterwards.",
        epilog="example: nodepool delete 0000000042 0000000043 --when-free --wait",
    )
    parser.add_argument("ids", metavar="ID", nargs="+", help="node id")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--now", action="store_true", help="delete the nodes in the foreground, with the provider's driver"
    )
    # An abbreviation of Nodepool 11: now there is --no-headers, too.
    how.add_argument("--n", "--no", dest="now", action="store_true", help=argparse.SUPPRESS)
    how.add_argument("--wait", action="store_true", help="wait until the nodes are gone")
    parser.add_argument("--when-free", action="store_true", help=_WHEN_FREE)
    parser.set_defaults(run=_delete)
    add_format_option(parser)

    parser = add(
        "hold",
        help="keep nodes, e.g. to look at them",
        description="Keeps nodes in any state: nobody gets them, and launchers delete them only at the end.",
        epilog="example: nodepool hold 0000000042 --reason 'disk full, bug 17' --for 2d --when-free",
    )
    parser.add_argument("ids", metavar="ID", nargs="+", help="node id")
    parser.add_argument("--reason", metavar="TEXT", help="why; it is shown by list and explain")
    add_end_options(parser, "the launchers delete the nodes")
    parser.add_argument("--when-free", action="store_true", help=_WHEN_FREE)
    parser.set_defaults(run=_hold)
    add_format_option(parser)


def list_nodes(options: argparse.Namespace) -> int:
    """``nodepool list``"""
    wanted = filter_of(options)
    as_released = is_as_released(options)
    with_lockers = not options.watch and (
        options.format in ("wide", "json", "yaml") or {"locked_by"} & {*options.columns, options.sort}
    )

    def look(zk: ZooKeeper) -> Table:
        now = wall_time()
        nodes = [node for node in zk.nodeIterator() if wanted.node(node, now)]
        locked = zk.nodes.locked_ids([node.key for node in nodes])
        requests = {} if as_released else _requests(zk, nodes)
        facts = NodeFacts(locked, requests, _lockers(zk, nodes, locked) if with_lockers else {})
        return node_table(nodes, facts, now, detail=options.detail)

    return show_listing(options, look, caches=True, empty=no_launcher)


def _requests(zk: ZooKeeper, nodes: Sequence[Node]) -> Mapping[str, NodeRequest]:
    """The requests that nodes belong to, by their ids, as far as they exist."""
    from nodepool.zk import paths

    ids = sorted({node.allocated_to for node in nodes if node.allocated_to and paths.is_name(node.allocated_to)})
    if zk.cache is not None:
        return {request_id: found for request_id in ids if (found := zk.cache.requests.get(request_id)) is not None}
    return {request.key: request for request in zk.requests.read_some(ids)}


def _lockers(zk: ZooKeeper, nodes: Sequence[Node], locked: set[str]) -> Mapping[str, str]:
    from nodepool.zk.locks import LockOwners

    return LockOwners(zk.client).of_nodes([node.key for node in nodes if node.key in locked]) if locked else {}


def _hold(options: argparse.Namespace) -> int:
    from nodepool.cmd import node_changes

    return node_changes.hold_nodes(options)


def _delete(options: argparse.Namespace) -> int:
    if options.now:
        from nodepool.cmd import delete_now

        return delete_now.delete_nodes(options)
    from nodepool.cmd import node_changes

    return node_changes.delete_nodes(options)
