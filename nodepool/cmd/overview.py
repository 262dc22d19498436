# SPDX-License-Identifier: Apache-2.0
"""``nodepool status``, ``providers``, ``hosts``, ``launchers`` and ``tenants`` (reference/commands 2)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.format_option import Wait, add_format_option, add_watch_option, show_listing, watch
from nodepool.cmd.observation import observe
from nodepool.cmd.session import open_zookeeper
from nodepool.listing import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.listing.overview import Overview
    from nodepool.listing.table import Table
    from nodepool.plan.attention import Registered
    from nodepool.plan.pool_summary import PoolSummary
    from nodepool.zk.zookeeper import ZooKeeper

#: Exit status of ``status --fail-on-problems`` when something needs attention.
PROBLEMS: Final = 3
NO_LAUNCHER: Final = (
    "no launcher reports its state: is nodepool-launcher running, with the same zookeeper-servers and chroot?"
)


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "status", help="show what is wrong, what waits, and how much room there is", epilog="example: nodepool status"
    )
    parser.add_argument(
        "--fail-on-problems",
        action="store_true",
        help=f"exit with status {PROBLEMS} if a request waits too long or something needs attention",
    )
    parser.add_argument(
        *("-o", "--format"),
        choices=("table", "json"),
        default="table",
        help="how to print the result (default: %(default)s)",
    )
    add_watch_option(parser, "it when it changes")
    parser.set_defaults(run=show_status)

    parser = add(
        "providers",
        help="list providers and their pools: state, since when, last error, most used limit",
        epilog="example: nodepool providers cloud-1 --limits",
    )
    parser.add_argument("provider", metavar="PROVIDER", nargs="?", help="provider name (default: all)")
    parser.add_argument("--limits", action="store_true", help="list each limit instead: used, used by others, free")
    parser.set_defaults(run=list_providers)
    add_format_option(parser, watch=True)

    parser = add(
        "hosts",
        help="list static hosts: up or down, since when, why, and their nodes",
        epilog="example: nodepool hosts --down",
    )
    parser.add_argument("--down", action="store_true", help="only those that are not up")
    parser.set_defaults(run=list_hosts)
    add_format_option(parser, watch=True)

    parser = add(
        "launchers", help="list launchers: version, configuration, state, pools", epilog="example: nodepool launchers"
    )
    parser.set_defaults(run=list_launchers)
    add_format_option(parser, watch=True)

    parser = add("tenants", help="list what tenants use of their limits", epilog="example: nodepool tenants")
    parser.add_argument("tenant", metavar="TENANT", nargs="?", help="tenant name (default: all)")
    parser.set_defaults(run=list_tenants)
    add_format_option(parser, watch=True)


def show_status(options: argparse.Namespace) -> int:
    """``nodepool status``"""
    from nodepool.listing.overview import as_object, as_report

    seen: list[Overview] = []

    def look(zk: ZooKeeper) -> Overview:
        seen[:] = [_overview(zk)]
        return seen[0]

    if options.watch:

        def follow(zk: ZooKeeper, wait: Wait) -> None:
            terminal.follow_report(lambda: as_report(look(zk)), wait, options.format)

        watch(options, follow, caches=True)
    else:
        with open_zookeeper(options) as zk:
            look(zk)
        if options.format == "json":
            print(json.dumps(as_object(seen[0]), indent=1))
        else:
            terminal.show_report(as_report(seen[0]))
    trouble = any(overview.problems or overview.waits for overview in seen)
    return PROBLEMS if options.fail_on_problems and trouble else 0


def _overview(zk: ZooKeeper) -> Overview:
    from nodepool.listing.overview import overview
    from nodepool.zk.status import read_launchers

    launchers, seen = read_launchers(zk.client), observe(zk, None)
    return overview(seen, launchers, _registered(zk))


def list_providers(options: argparse.Namespace) -> int:
    """``nodepool providers``"""
    return show_listing(options, lambda zk: _providers(zk, options.provider, limits=options.limits))


def _providers(zk: ZooKeeper, wanted: str | None, *, limits: bool) -> Table:
    """Raises CommandError: no launcher has heard of the provider."""
    from nodepool.listing.pools import limit_table, provider_table
    from nodepool.zk.status import read_launchers

    pools, launchers = _pools(zk), read_launchers(zk.client)
    table = provider_table(pools, launchers, wall_time())
    names = {row[0].partition("/")[0] for row in table.rows}
    if wanted is not None and wanted not in names:
        there_are = f"there are: {', '.join(sorted(names))}" if names else NO_LAUNCHER
        raise CommandError(f"no launcher serves a provider {wanted}; {there_are}")
    if limits:
        return limit_table([pool for pool in pools if wanted in (None, pool.provider)], wall_time())
    return _with_hint(_only(table, lambda row: wanted in (None, row[0].partition("/")[0])), NO_LAUNCHER)


def list_hosts(options: argparse.Namespace) -> int:
    """``nodepool hosts``"""
    from nodepool.listing.nodes import host_table

    def look(zk: ZooKeeper) -> Table:
        pools = _pools(zk)
        table = _with_hint(host_table(pools, wall_time()), "no static host is served" if pools else NO_LAUNCHER)
        return _only(table, lambda row: not options.down or row[2] != "up")

    return show_listing(options, look)


def list_launchers(options: argparse.Namespace) -> int:
    """``nodepool launchers``"""
    from nodepool.listing.records import launcher_table
    from nodepool.zk.status import read_launchers

    def look(zk: ZooKeeper) -> Table:
        return _with_hint(launcher_table(read_launchers(zk.client), _registered(zk), wall_time()), NO_LAUNCHER)

    return show_listing(options, look)


def list_tenants(options: argparse.Namespace) -> int:
    """``nodepool tenants``"""
    from nodepool.listing.pools import tenant_limits, tenant_table
    from nodepool.zk.status import read_launchers

    def look(zk: ZooKeeper) -> Table:
        limits = tenant_limits(read_launchers(zk.client))
        table = tenant_table(limits, zk.nodeIterator(cached=False), zk.nodeRequestIterator(cached=False))
        table = _with_hint(table, "no tenant has a limit, a node or a request")
        names = sorted({row[0] for row in table.rows})
        if options.tenant is not None and options.tenant not in names:
            there_are = f"; there are: {', '.join(names)}" if names else ""
            raise CommandError(f"no tenant {options.tenant} has a limit, a node or a request{there_are}")
        return _only(table, lambda row: options.tenant in (None, row[0]))

    return show_listing(options, look)


def _only(table: Table, wanted: Callable[[Sequence[Any]], bool]) -> Table:
    """The rows that are wanted."""
    return replace(table, rows=[row for row in table.rows if wanted(row)])


def _with_hint(table: Table, text: str) -> Table:
    """Say why a listing is empty, to somebody at a terminal."""
    if not table.rows:
        terminal.hint(text)
    return table


def _pools(zk: ZooKeeper) -> list[PoolSummary]:
    from nodepool.plan.pool_summary import summarize
    from nodepool.zk.status import read_pools

    return summarize(read_pools(zk.client))


def _registered(zk: ZooKeeper) -> list[Registered]:
    from nodepool.plan.attention import Registered
    from nodepool.zk.components import read_launchers

    return [Registered(entry.hostname, entry.version, entry.state) for entry in read_launchers(zk.client)]
