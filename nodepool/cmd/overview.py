# SPDX-License-Identifier: Apache-2.0
"""Commands that show how a system is (reference/commands 2).

First ``nodepool status``, ``providers``, ``hosts``, ``launchers`` and ``tenants``, then ``explain``, then ``events``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.format_option import Wait, add_format_option, add_watch_option, show, show_listing, watch
from nodepool.cmd.maintenance import duration
from nodepool.cmd.observation import observe
from nodepool.cmd.session import open_zookeeper
from nodepool.listing import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.listing.overview import Overview
    from nodepool.listing.table import Table
    from nodepool.model.event import Event
    from nodepool.plan.attention import Registered
    from nodepool.plan.explained import Explained
    from nodepool.plan.observed import Observed
    from nodepool.plan.pool_summary import PoolSummary
    from nodepool.zk.zookeeper import ZooKeeper

#: Exit status of ``status --fail-on-problems`` when something needs attention.
PROBLEMS: Final = 3
NO_LAUNCHER: Final = (
    "no launcher reports its state: is nodepool-launcher running, with the same zookeeper-servers and chroot?"
)


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``status`` and the listings.

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


# ``nodepool explain``: why a request waits, a node is held, a label is not served (reference/commands 2).

_EXAMPLES: Final = """\
examples:
  nodepool explain 200-0000000123    why a request waits or failed, and what would help
  nodepool explain 0000000042        for whom a node is, and what is done with it
  nodepool explain debian-large      who serves a label
  nodepool explain cloud-1           how a provider is; cloud-1/main for one pool of it
"""


def add_explain_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``explain``.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "explain",
        help="tell why a request waits, a node is held, a label is not served or a provider does not work",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="REQUEST|NODE|LABEL|PROVIDER", help="id or name of what to explain")
    parser.add_argument(
        *("-o", "--format"), choices=("table", "json"), default="table", help="how to print it (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """``nodepool explain``"""
    from nodepool.plan import explain

    name = options.name
    with open_zookeeper(options) as zk:
        seen = observe(zk, name)
    kind = explain.kind_of(name, seen)
    if kind is None:
        near = explain.similar(name, seen) or "; nodepool request-list, list and label-list show what there is"
        raise CommandError(f"there is no request, node, label or provider {name!r}{near}")
    _print(explain.explain(name, kind, seen), seen, options.format)
    return 0


def _print(answer: Explained, seen: Observed, form: str) -> None:
    if form == "json":
        import json

        print(json.dumps(answer.to_dict()))
    else:
        from nodepool.listing.overview import explanation_text

        print(explanation_text(answer, seen.now))


# ``nodepool events``: what happened in all launchers (reference/commands 2).

#: Between two looks of ``--follow``: launchers tell at most so often.
LOOK_SECONDS: Final = 2.0


def add_event_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``events``.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "events",
        help="list what happened: failures, outages, hosts that went, reloads, maintenance",
        epilog="example: nodepool events --since 1h -f",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C, a line for each event")
    parser.add_argument(
        "--since",
        metavar="AGE",
        type=duration,
        help="only events that are not older, e.g. 15m, 1h or 2d (default: all)",
    )
    parser.add_argument(
        "--subject", metavar="TEXT", help="only events about this, e.g. cloud-1, node or 200-0000000001"
    )
    parser.set_defaults(run=list_events)
    add_format_option(parser)


def list_events(options: argparse.Namespace) -> int:
    """``nodepool events``"""
    from nodepool.listing.records import event_line, event_table

    begin = 0.0 if options.since is None else wall_time() - options.since
    if options.follow:
        # That of a person ends the command as asked; that of a lost connection became an error further inside.
        with contextlib.suppress(KeyboardInterrupt), open_zookeeper(options) as zk:
            _follow(zk, begin, options)
        return 0
    with open_zookeeper(options) as zk:
        events = _read(zk, begin, options.subject)
    if not events:
        which = "an event" if options.subject is None and options.since is None else "such an event"
        terminal.hint(
            f"no launcher reports {which}; a launcher forgets its events when it ends, the logs have all of them"
        )
    if options.format == "table" and not options.columns and not options.sort and sys.stdout.isatty():
        # The cause is what people look for: it is not cut, as a column would be.
        for event in events:
            print(event_line(event, wall_time()))
    else:
        show(event_table(events, wall_time()), options)
    return 0


def _read(zk: ZooKeeper, begin: float, about: str | None) -> list[Event]:
    """Events of all launchers, the oldest first."""
    from nodepool.listing.records import is_about
    from nodepool.plan.attention import merged
    from nodepool.zk.status import read_launchers

    events = (event for launcher in read_launchers(zk.client) for event in launcher.events)
    return merged((event for event in events if about is None or is_about(event, about)), begin)


def _follow(zk: ZooKeeper, begin: float, options: argparse.Namespace) -> None:
    """Print what is there, and then what comes. Ends with KeyboardInterrupt."""
    from nodepool.listing.records import event_line

    #: Those of the last look: launchers forget older ones, too.
    shown: set[tuple[float, str, str, int]] = set()
    pause = threading.Event()
    while True:
        events = {
            (event.at, event.subject, event.what, event.count): event for event in _read(zk, begin, options.subject)
        }
        for key, event in events.items():
            if key not in shown:
                line = json.dumps(event.to_dict()) if options.format == "json" else event_line(event, wall_time())
                print(line, flush=True)
        shown = set(events)
        pause.wait(LOOK_SECONDS)
