# SPDX-License-Identifier: Apache-2.0
"""``nodepool status``, ``providers``, ``hosts``, ``launchers`` and ``tenants`` (reference/commands 2)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.format_option import add_format_option
from nodepool.cmd.session import open_zookeeper
from nodepool.listing.table import Table, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodepool.listing.overview import Overview
    from nodepool.model.launcher_status import LauncherStatus
    from nodepool.model.maintenance import Maintenance
    from nodepool.plan.attention import Registered
    from nodepool.plan.pool_summary import PoolSummary
    from nodepool.zk.zookeeper import ZooKeeper

#: Exit status of ``status --fail-on-problems`` when something needs attention.
PROBLEMS: Final = 3


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add("status", help="show what is wrong, what waits, and how much room there is")
    parser.add_argument(
        "--fail-on-problems",
        action="store_true",
        help=f"exit with status {PROBLEMS} if a request waits too long or something needs attention",
    )
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="how to print the result (default: %(default)s)"
    )
    parser.set_defaults(run=show_status)

    parser = add("providers", help="list providers and their pools: state, since when, last error, most used limit")
    parser.add_argument("provider", metavar="PROVIDER", nargs="?", help="provider name (default: all)")
    parser.add_argument("--detail", action="store_true", help="show each limit: used, used by others, free")
    parser.set_defaults(run=list_providers)
    add_format_option(parser)

    parser = add("hosts", help="list static hosts: up or down, since when, why, and their nodes")
    parser.add_argument("--down", action="store_true", help="only those that are not up")
    parser.set_defaults(run=list_hosts)
    add_format_option(parser)

    parser = add("launchers", help="list launchers: version, configuration, state, pools")
    parser.set_defaults(run=list_launchers)
    add_format_option(parser)

    parser = add("tenants", help="list what tenants use of their limits")
    parser.add_argument("tenant", metavar="TENANT", nargs="?", help="tenant name (default: all)")
    parser.set_defaults(run=list_tenants)
    add_format_option(parser)


def show_status(options: argparse.Namespace) -> int:
    """``nodepool status``"""
    from nodepool.listing.overview import as_object, as_text

    with open_zookeeper(options) as zk:
        overview = _overview(zk)
    if options.format == "json":
        print(json.dumps(as_object(overview), indent=1))
    else:
        print(as_text(overview, render(overview.capacity)))
    trouble = bool(overview.problems or overview.waits)
    return PROBLEMS if options.fail_on_problems and trouble else 0


def _overview(zk: ZooKeeper) -> Overview:
    from nodepool.listing.overview import Overview, capacity_table, sentence
    from nodepool.plan.attention import problems
    from nodepool.plan.long_waits import long_waits
    from nodepool.plan.pool_summary import summarize
    from nodepool.zk.status_records import read_launchers, read_pools

    records, launchers = read_pools(zk.client), read_launchers(zk.client)
    nodes, requests = list(zk.nodeIterator(cached=False)), list(zk.nodeRequestIterator(cached=False))
    now, pools = wall_time(), summarize(records)
    found = problems(pools, launchers, _registered(zk), nodes, _maintenance(zk), now)
    waits = long_waits(requests, records, now)
    return Overview(sentence(waits, found, requests), found, waits, capacity_table(pools, nodes), now)


def list_providers(options: argparse.Namespace) -> int:
    """``nodepool providers``"""
    from nodepool.listing.pools import limit_table, provider_table
    from nodepool.zk.status_records import read_launchers

    with open_zookeeper(options) as zk:
        pools, launchers = _pools(zk), read_launchers(zk.client)
    now = wall_time()
    table = provider_table(pools, launchers, now)
    names = sorted({row[0].partition("/")[0] for row in table.rows}) or ["none"]
    if options.provider is not None:
        table = Table(table.columns, [row for row in table.rows if row[0].partition("/")[0] == options.provider])
        pools = [pool for pool in pools if pool.provider == options.provider]
        if not table.rows:
            raise CommandError(f"no launcher serves a provider {options.provider}; there are: {', '.join(names)}")
    if options.detail:
        print(_two_tables("providers", table, "limits", limit_table(pools, now), options.format))
    else:
        print(render(table, options.format))
    return 0


def _two_tables(name: str, one: Table, other_name: str, other: Table, form: str) -> str:
    if form == "json":
        return f'{{"{name}": {render(one, form)},\n"{other_name}": {render(other, form)}}}'
    if form == "csv":
        return f"{render(one, form)}\n\n{render(other, form)}"
    return f"{render(one)}\n\nLimits:\n{render(other)}"


def list_hosts(options: argparse.Namespace) -> int:
    """``nodepool hosts``"""
    from nodepool.listing.hosts import host_table

    with open_zookeeper(options) as zk:
        pools = _pools(zk)
    table = host_table(pools, wall_time())
    if options.down:
        table = Table(table.columns, [row for row in table.rows if row[2] != "up"])
    print(render(table, options.format))
    return 0


def list_launchers(options: argparse.Namespace) -> int:
    """``nodepool launchers``"""
    from nodepool.listing.launchers import launcher_table
    from nodepool.zk.status_records import read_launchers

    with open_zookeeper(options) as zk:
        launchers, registered = read_launchers(zk.client), _registered(zk)
    print(render(launcher_table(launchers, registered, wall_time()), options.format))
    return 0


def list_tenants(options: argparse.Namespace) -> int:
    """``nodepool tenants``"""
    from nodepool.listing.tenants import tenant_table
    from nodepool.zk.status_records import read_launchers

    with open_zookeeper(options) as zk:
        limits = _tenant_limits(read_launchers(zk.client))
        nodes, requests = list(zk.nodeIterator(cached=False)), list(zk.nodeRequestIterator(cached=False))
    table = tenant_table(limits, nodes, requests)
    if options.tenant is not None:
        table = Table(table.columns, [row for row in table.rows if row[0] == options.tenant])
    print(render(table, options.format))
    return 0


def _pools(zk: ZooKeeper) -> list[PoolSummary]:
    from nodepool.plan.pool_summary import summarize
    from nodepool.zk.status_records import read_pools

    return summarize(read_pools(zk.client))


def _registered(zk: ZooKeeper) -> list[Registered]:
    from nodepool.plan.attention import Registered
    from nodepool.zk.components import read_launchers

    return [Registered(entry.hostname, entry.version, entry.state) for entry in read_launchers(zk.client)]


def _tenant_limits(launchers: list[LauncherStatus]) -> Mapping[str, Mapping[str, float]]:
    """All launchers have the same; of those that do not, the limits of all."""
    found: dict[str, dict[str, float]] = {}
    for launcher in launchers:
        for tenant, limits in launcher.tenant_limits.items():
            found.setdefault(tenant, {}).update(limits)
    return found


def _maintenance(zk: ZooKeeper) -> list[Maintenance]:
    return []
