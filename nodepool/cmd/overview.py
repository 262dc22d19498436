# SPDX-License-Identifier: Apache-2.0
"""Commands that show how a system is (reference/commands 2).

First ``nodepool status``, ``label-list``, ``providers``, ``hosts``, ``launchers`` and ``tenants``, then ``explain``,
then ``events``. Then what ``status`` and ``explain`` read, and last the names that shells complete.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import wall_time
from nodepool.cmd.app import DEFAULT_CONFIG, PROBLEMS, CommandError, absolute_path, write_file
from nodepool.cmd.session import is_as_released, none_of, open_zookeeper, show, show_listing, watch
from nodepool.exceptions import ConfigError
from nodepool.listing import terminal
from nodepool.listing.nodes import host_table
from nodepool.listing.records import event_line, event_table, is_about, launcher_table
from nodepool.listing.table import Table
from nodepool.model.event import Event
from nodepool.model.image import NO_IMAGES
from nodepool.zk import components
from nodepool.zk.images import read_images
from nodepool.zk.status import builder_status, read_launchers, read_pools
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from nodepool.plan.observed import Observed
    from nodepool.plan.pool_summary import PoolSummary

NO_LAUNCHER: Final = (
    "no launcher reports its state: is nodepool-launcher running, with the same zookeeper-servers and chroot?"
)


def do_status(options: argparse.Namespace) -> int:
    """``nodepool status``"""
    from nodepool.listing.overview import Overview, as_object, as_report, overview

    seen: list[Overview] = []

    def look(zk: ZooKeeper) -> Overview:
        observed = observe(zk, None)
        seen[:] = [overview(observed, components.read_launchers(zk.client))]
        return seen[0]

    if options.watch:
        watch(options, lambda zk: as_report(look(zk)), caches=True)
    else:
        with open_zookeeper(options) as zk:
            look(zk)
        if options.format == "json":
            print(json.dumps(as_object(seen[0]), indent=1))
        else:
            terminal.show(as_report(seen[0]))
    trouble = any(overview.problems or overview.waits for overview in seen)
    return PROBLEMS if options.fail_on_problems and trouble else 0


def do_label_list(options: argparse.Namespace) -> int:
    """``nodepool label-list``"""
    from nodepool.listing.pools import label_overview
    from nodepool.listing.requests import label_table

    served_only = is_as_released(options) and not options.watch

    def look(zk: ZooKeeper) -> Table:
        return label_table(zk.getRegisteredPools()) if served_only else label_overview(observe(zk, None))

    return show_listing(options, look, none_of("label"), caches=True)


def do_providers(options: argparse.Namespace) -> int:
    """``nodepool providers``"""
    wanted, limits = options.provider, options.limits
    return show_listing(
        options,
        lambda zk: _providers(zk, wanted, limits=limits),
        lambda zk: "No limit is known." if read_pools(zk.client) else NO_LAUNCHER,
    )


def _providers(zk: ZooKeeper, wanted: str | None, *, limits: bool) -> Table:
    """:param wanted: a provider or a pool of one. Raises CommandError: no launcher serves it."""
    from nodepool.listing.pools import limit_table, provider_table

    pools, launchers = _pools(zk), read_launchers(zk.client)
    table = provider_table(pools, launchers, wall_time())
    names = {row[0].partition("/")[0] for row in table.rows}
    if wanted is not None and wanted not in names | {row[0] for row in table.rows}:
        there_are = f"there are: {', '.join(sorted(names))}" if names else NO_LAUNCHER
        raise CommandError(f"no launcher serves a provider {wanted}; {there_are}")
    if limits:
        return limit_table([pool for pool in pools if wanted in (None, pool.provider, pool.name)], wall_time())
    return _only(table, lambda row: wanted in (None, row[0], row[0].partition("/")[0]))


def do_hosts(options: argparse.Namespace) -> int:
    """``nodepool hosts``"""

    def look(zk: ZooKeeper) -> Table:
        return _only(host_table(_pools(zk), wall_time()), lambda row: not options.down or row[2] != "up")

    def empty(zk: ZooKeeper) -> str:
        pools = _pools(zk)
        served = "no static host is served" if pools else NO_LAUNCHER
        return "Every host is up." if any(pool.hosts for pool in pools) else served

    return show_listing(options, look, empty)


def do_launchers(options: argparse.Namespace) -> int:
    """``nodepool launchers``"""

    def look(zk: ZooKeeper) -> Table:
        return launcher_table(read_launchers(zk.client), components.read_launchers(zk.client), wall_time())

    return show_listing(options, look, NO_LAUNCHER)


def do_tenants(options: argparse.Namespace) -> int:
    """``nodepool tenants``"""
    from nodepool.listing.pools import tenant_table
    from nodepool.plan.observed import Observed

    def look(zk: ZooKeeper) -> Table:
        seen = Observed(
            wall_time(),
            requests={request.key: request for request in zk.nodeRequestIterator(cached=False)},
            nodes={node.key: node for node in zk.nodeIterator(cached=False)},
            registered=components.read_pools(zk.client),
            launchers=read_launchers(zk.client),
        )
        table = tenant_table(seen)
        names = sorted({row[0] for row in table.rows})
        if options.tenant is not None and options.tenant not in names:
            there_are = f"; there are: {', '.join(names)}" if names else ""
            raise CommandError(f"no tenant {options.tenant} has a limit, a node or a request{there_are}")
        return _only(table, lambda row: options.tenant in (None, row[0]))

    return show_listing(options, look, "no tenant has a limit, a node or a request")


def _only(table: Table, wanted: Callable[[Sequence[Any]], bool]) -> Table:
    """The rows that are wanted."""
    return replace(table, rows=[row for row in table.rows if wanted(row)])


def _pools(zk: ZooKeeper) -> list[PoolSummary]:
    from nodepool.plan.pool_summary import summarize

    return summarize(read_pools(zk.client))


# ``nodepool explain``: why a request waits, a node is held, a label is not served (reference/commands 2).


def do_explain(options: argparse.Namespace) -> int:
    """``nodepool explain``"""
    from nodepool.listing.overview import explanation_text
    from nodepool.plan import explain
    from nodepool.plan.observed import KINDS, UnclearName, meant, similar

    *kinds, name = options.name
    if len(kinds) > 1 or not set(kinds) <= {*KINDS}:
        raise CommandError(f"write NAME or KIND NAME, where KIND is one of {', '.join(KINDS)}")
    with open_zookeeper(options) as zk:
        seen = observe(zk, name)
    try:
        found = meant(name, seen, kinds or KINDS)
        if found is None or found[0] == "image":
            # What no node is made of is in the configuration only.
            seen = replace(seen, cloud_images=_cloud_images(options))
            found = meant(name, seen, kinds or KINDS)
    except UnclearName as unclear:
        raise CommandError(str(unclear)) from None
    if found is None:
        what = kinds[0] if kinds else f"{', '.join(KINDS)} or address"
        raise CommandError(f"there is no {what} {name!r}{similar(name, seen)}")
    kind, name = found
    answer = explain.explain(name, kind, seen)
    print(json.dumps(answer.to_dict()) if options.format == "json" else explanation_text(answer, seen.now))
    return 0


def _cloud_images(options: argparse.Namespace) -> dict[str, list[str]]:
    """Images of clouds in the configuration -> labels that boot from each; empty if it cannot be read here."""
    from nodepool.config.loader import load_config

    found: dict[str, list[str]] = {}
    # A driver from elsewhere may have other labels.
    with contextlib.suppress(ConfigError, AttributeError):
        for provider in load_config(options.config, options.secure, complete=False).providers.values():
            images = getattr(provider, "cloud_images", {})
            found |= {image: found.get(image, []) for image in images}
            for pool in provider.pools.values() if images else ():
                for label in pool.labels.values():
                    if label.cloud_image is not None:
                        labels = found.setdefault(label.cloud_image.name, [])
                        labels.append(f"{label.name} of {provider.name}/{pool.name}")
    return found


# ``nodepool events``: what happened in all launchers (reference/commands 2).

#: Between two looks of ``--follow``, in seconds: launchers report at most so often.
LOOK_SECONDS: Final = 2.0


def do_events(options: argparse.Namespace) -> int:
    """``nodepool events``"""
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
    from nodepool.plan.attention import merged

    events = (event for launcher in read_launchers(zk.client) for event in launcher.events)
    return merged((event for event in events if about is None or is_about(event, about)), begin)


def _follow(zk: ZooKeeper, begin: float, options: argparse.Namespace) -> None:
    """Print what is there, and then what comes. Ends with KeyboardInterrupt."""
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


# What `nodepool.plan.explain` needs to know of a subject: read directly.


def observe(zk: ZooKeeper, name: str | None) -> Observed:
    """What ZooKeeper says of a subject, and of what it depends on. Blocks for some round trips. Raises ZKException.

    :param zk: with a cache all nodes and requests come from there.
    :param name: of anything; None = of everything.
    """
    from nodepool.plan.observed import Observed

    registered = components.read_pools(zk.client)
    requests = {request.key: request for request in zk.nodeRequestIterator()}
    node = zk.getNode(name.zfill(10)) if name is not None and name.isdecimal() else None
    nodes = {found.key: found for found in (zk.nodeIterator() if node is None else [node])}
    launchers = read_launchers(zk.client)
    images = NO_IMAGES if name in requests or node is not None else read_images(zk.client)
    builders = builder_status(zk.client)
    return Observed(
        now=wall_time(),
        requests=requests,
        nodes=nodes,
        registered=registered,
        statuses=read_pools(zk.client),
        maintenance=[*zk.maintenance.read_all().values(), *images.pauses()],
        events=[event for launcher in launchers for event in launcher.events],
        launchers=launchers,
        images=images,
        builders=frozenset(components.read_hosts(zk.client, "builder")),
        builder_providers=builders.providers,
        lacking_files=builders.lacking_files,
        locked=frozenset(zk.nodes.locked_ids([*nodes]) if node is not None else ()),
        issued={} if name is None or node is not None else {"node": zk.nodes.issued(), "request": zk.requests.issued()},
    )


# Names of what there is, for shells that complete a command line. No error reaches the terminal.

#: So long names are used again, in seconds. Older ones are used if there is no answer.
NAMES_SECONDS: Final = 5.0
#: A shell waits at most so long, in seconds, with the start of the program on top.
_PATIENCE_SECONDS: Final = 0.6
_MOST_NAMES: Final = 1000
#: Shells take no others as they stand.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./+-]+")
#: Kinds of which a name may be.
_SEVERAL: Final = {
    "served": ("provider", "pool", "label", "launcher"),
    "any": ("request", "node", "provider", "pool", "label", "host", "launcher", "image", "build", "tenant"),
}


def print_names(kind: str, words: Sequence[str]) -> None:
    """Print the names of a kind that begin like the last word, one a line. After some time those of the last time.

    :param words: of the command line, of which -c and -s name the configuration. Of names divided by commas the last
        one is completed.
    """
    given = dict(pairwise(words))
    config = absolute_path(given.get("-c", DEFAULT_CONFIG))
    known = _known_names(config, None if "-s" not in given else absolute_path(given["-s"]))
    before, comma, begin = (words[-1] if words else "").rpartition(",")
    found = {name for one in _SEVERAL.get(kind, (kind,)) for name in known.get(one, ()) if name.startswith(begin)}
    for name in sorted(filter(_PLAIN.fullmatch, found))[:_MOST_NAMES]:
        print(f"{before}{comma}{name}")


def _known_names(config: str, secure: str | None) -> dict[str, list[str]]:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(cache, "nodepool", f"names-{hashlib.sha256(config.encode()).hexdigest()[:16]}.json")
    known: dict[str, list[str]] = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(path.read_bytes())
        if wall_time() - path.stat().st_mtime < NAMES_SECONDS:
            return known

    # As Ctrl-C: it also ends a wait for ZooKeeper.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS)
    # Without a configuration that can be read, or a ZooKeeper that answers, there are no names. That is no error here.
    with contextlib.suppress(KeyboardInterrupt, Exception):
        with open_zookeeper(argparse.Namespace(config=config, secure=secure)) as zk:
            known = _read_names(zk)
            signal.setitimer(signal.ITIMER_REAL, 0)
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        write_file(path, json.dumps(known).encode(), 0o600)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return known


def _read_names(zk: ZooKeeper) -> dict[str, list[str]]:
    """Names by kind. Blocks for some round trips."""
    from nodepool.plan.observed import Observed, names

    seen = Observed(
        wall_time(),
        registered=zk.getRegisteredPools(),
        statuses=read_pools(zk.client),
        launchers=read_launchers(zk.client),
        images=read_images(zk.client),
    )
    found = {kind: sorted(known) for kind, known in names(seen).items()}
    return {**found, "request": zk.requests.ids(), "node": zk.nodes.ids()}
