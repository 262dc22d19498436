# SPDX-License-Identifier: Apache-2.0
"""``nodepool request-list`` (``requests``) and ``label-list`` (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nodepool.clock import wall_time
from nodepool.cmd.filter_options import add_filter_options, filter_of
from nodepool.cmd.format_option import add_format_option, is_as_released, no_launcher, show_listing
from nodepool.listing.requests import label_table, request_table
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.listing.table import Table
    from nodepool.model.request import NodeRequest
    from nodepool.plan.explain import WaitCause
    from nodepool.zk.zookeeper import ZooKeeper


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

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
