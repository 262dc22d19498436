# SPDX-License-Identifier: Apache-2.0
"""Commands about nodes and requests (reference/commands 2).

First ``nodepool list`` (``nodes``), ``hold`` and ``delete``, then the options that choose nodes and requests, then
``request-list`` (``requests``) and ``label-list``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nodepool.clock import wall_time
from nodepool.cmd.format_option import add_format_option, is_as_released, no_launcher, show_listing
from nodepool.cmd.maintenance import add_end_options, duration
from nodepool.listing.nodes import ALLOCATED, Filter, NodeFacts, names_in, node_table, states_in
from nodepool.listing.requests import label_table, request_table
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.listing.table import Table
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.plan.explain import WaitCause
    from nodepool.zk.zookeeper import ZooKeeper


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``list``, ``hold`` and ``delete``.

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
        epilog="example: nodepool delete 0000000042 0000000043 --wait",
    )
    parser.add_argument("ids", metavar="ID", nargs="+", help="node id")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--now", action="store_true", help="delete the nodes in the foreground, with the provider's driver"
    )
    # An abbreviation of Nodepool 11: now there is --no-headers, too.
    how.add_argument("--n", "--no", dest="now", action="store_true", help=argparse.SUPPRESS)
    how.add_argument("--wait", action="store_true", help="wait until the nodes are gone")
    parser.set_defaults(run=_delete)
    add_format_option(parser)

    parser = add(
        "hold",
        help="keep nodes, e.g. to look at them",
        description="Keeps nodes in any state: nobody gets them, and launchers delete them only at the end.",
        epilog="example: nodepool hold 0000000042 --reason 'disk full, bug 17' --for 2d",
    )
    parser.add_argument("ids", metavar="ID", nargs="+", help="node id")
    parser.add_argument("--reason", metavar="TEXT", help="why; it is shown by list and explain")
    add_end_options(parser, "the launchers delete the nodes")
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
        from nodepool.cmd import direct

        return direct.delete_nodes(options)
    from nodepool.cmd import node_changes

    return node_changes.delete_nodes(options)


# Options that choose nodes and requests: ``--state``, ``--label``, ``--provider``, ``--pool``, ``--tenant``,
# ``--older-than`` (reference/commands 2).


def add_filter_options(parser: argparse.ArgumentParser, states: Sequence[str], *, pools: bool, age: str) -> None:
    """Give a command the options.

    :param states: those that there are.
    :param pools: are there pools to choose?
    :param age: since when ``--older-than`` counts, for the help text.
    """
    group = parser.add_argument_group("what is shown", "names may be patterns; several are divided by commas")
    group.add_argument(
        "--state", metavar="A,B", type=_states(states), default=[], help=f"in one of these states: {', '.join(states)}"
    )
    group.add_argument("--label", metavar="A,B", type=names_in, default=[], help="with one of these labels, e.g. gpu-*")
    group.add_argument("--provider", metavar="A,B", type=names_in, default=[], help="of these providers")
    if pools:
        group.add_argument(
            "--pool", metavar="A,B", type=names_in, default=[], help="of these pools: POOL or PROVIDER/POOL"
        )
    group.add_argument("--tenant", metavar="A,B", type=names_in, default=[], help="of these tenants")
    group.add_argument("--older-than", metavar="TIME", type=duration, help=f"{age} for longer, e.g. 90s, 15m, 1h30m")


def filter_of(options: argparse.Namespace) -> Filter:
    """What the options choose."""
    pools = getattr(options, "pool", [])
    return Filter(options.state, options.label, options.provider, pools, options.tenant, options.older_than)


def _states(known: Sequence[str]) -> Callable[[str], list[str]]:
    def states(text: str) -> list[str]:
        try:
            return states_in(text, known)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return states


# ``nodepool request-list`` (``requests``) and ``label-list`` (reference/commands 2).


def add_request_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``request-list`` and ``label-list``.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "request-list",
        aliases=["requests"],
        help="list node requests",
        description="Lists node requests: for which job each is, how old it is, and what it waits for.",
        epilog="example: nodepool request-list --state requested --older-than 10m --sort=-age_seconds",
    )
    parser.set_defaults(run=list_requests)
    add_filter_options(parser, states.REQUEST_STATES, pools=False, age="waiting")
    add_format_option(parser, watch=True)

    parser = add(
        "label-list",
        help="list the labels that running launchers serve",
        description="Lists the labels that running launchers serve. A request for another one fails.",
        epilog="example: nodepool label-list -o name",
    )
    parser.set_defaults(run=list_labels)
    add_format_option(parser, watch=True)


def list_requests(options: argparse.Namespace) -> int:
    """``nodepool request-list``"""
    wanted = filter_of(options)
    as_released = is_as_released(options)

    def look(zk: ZooKeeper) -> Table:
        now = wall_time()
        everything = list(zk.nodeRequestIterator())
        requests = [request for request in everything if wanted.request(request, now)]
        if as_released:
            return request_table(requests, now)
        return request_table(requests, now, _causes(zk, requests, everything, now))

    return show_listing(options, look, caches=True, empty=no_launcher)


def _causes(
    zk: ZooKeeper, requests: Sequence[NodeRequest], everything: Sequence[NodeRequest], now: float
) -> Mapping[str, WaitCause]:
    """Why requests wait or failed.

    :param everything: all requests, of which others may come first.
    """
    if all(request.state == states.FULFILLED for request in requests):
        return {}
    from nodepool.plan.explain import causes
    from nodepool.plan.observed import Observed
    from nodepool.zk.maintenance_store import MaintenanceStore
    from nodepool.zk.status import read_pools

    seen = Observed(
        now=now,
        requests={request.key: request for request in everything},
        registered=zk.getRegisteredPools(),
        statuses=read_pools(zk.client),
        maintenance=list(MaintenanceStore(zk.client).read_all().values()),
    )
    return causes(requests, seen)


def list_labels(options: argparse.Namespace) -> int:
    """``nodepool label-list``"""
    return show_listing(options, lambda zk: label_table(zk.getRegisteredPools()), empty=no_launcher)
