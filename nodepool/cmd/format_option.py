# SPDX-License-Identifier: Apache-2.0
"""What commands that print a listing have in common: options of its form, and showing it (reference/commands 2)."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.cmd.app import CommandError
from nodepool.cmd.session import CONNECT_SECONDS, open_zookeeper
from nodepool.listing import terminal
from nodepool.listing.nodes import names_in
from nodepool.listing.table import FORMATS, ONLY_JSON, Place, Table

if TYPE_CHECKING:
    from nodepool.zk.zookeeper import ZooKeeper

#: Blocks for at most so many seconds.
Wait = Callable[[float], object]


def add_form_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup, forms: Sequence[str], more: str) -> None:
    """Give a command ``--format``.

    :param forms: the first is the default. ``more``: the end of the help text.
    """
    text = f"how to print the result (default: %(default)s){more}"
    parser.add_argument("-o", "--format", choices=forms, default=forms[0], help=text)


def add_format_option(parser: argparse.ArgumentParser, *, columns: bool = True, watch: bool = False) -> None:
    """Give a listing command the options of its form: ``--format``, ``--sort``, ``--columns``, ``--no-headers``.

    :param columns: False: only ``--format``, because there are several tables.
    :param watch: it has ``--watch``, too: `show_listing` shows it.
    """
    group = parser.add_argument_group("output")
    add_form_option(group, FORMATS, "; wide: with more columns; name: only the first column")
    if not columns:
        return
    group.add_argument(
        "--sort", metavar="COLUMN", help="sort by a column, named as in JSON; --sort=-COLUMN: the other way round"
    )
    group.add_argument(
        "--columns", metavar="A,B", type=names_in, default=[], help="show these columns, named as in JSON"
    )
    group.add_argument("--no-headers", dest="headers", action="store_false", help="print only rows, and no box")
    if watch:
        add_watch_option(group, "the rows that change")


def add_watch_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup, what: str) -> None:
    """Give a command ``--watch``, see `watch`.

    :param what: what is printed again without a terminal.
    """
    parser.add_argument(
        *("-w", "--watch"),
        action="store_true",
        help=f"go on until Ctrl-C: draw it again, or without a terminal print {what}",
    )


def _display_of(options: argparse.Namespace) -> terminal.Display:
    """How the options want a listing to be shown."""
    return terminal.Display(options.format, options.sort, options.columns, options.headers)


def show(table: Table, options: argparse.Namespace) -> None:
    """Print a listing as the options want it. Raises UnknownColumn."""
    terminal.show(table, _display_of(options))


def show_listing(
    options: argparse.Namespace,
    look: Callable[[ZooKeeper], Table],
    *,
    caches: bool = False,
    empty: Callable[[ZooKeeper], str] = lambda zk: "",
) -> int:
    """Show what ZooKeeper has now, or with ``--watch`` until Ctrl-C; returns the exit status. Blocks.

    :param look: reads the listing.
    :param caches: a listing of nodes or requests: with ``--watch`` they are read from caches, if there are some.
    :param empty: what a person at a terminal reads below an empty listing; an empty text = nothing.
    :raises CommandError: ZooKeeper does not answer in time.
    :raises UnknownColumn: as `show`.
    """
    if options.watch:
        display = _display_of(options)
        watch(options, lambda zk, wait: terminal.follow(lambda: look(zk), wait, display), caches=caches)
        return 0
    with open_zookeeper(options) as zk:
        table = look(zk)
        show(table, options)
        if not table.rows and (text := empty(zk)):
            terminal.hint(text)
    return 0


#: Shortest time between two looks, in seconds, however much changes.
_PAUSE: Final = 0.2


def watch(options: argparse.Namespace, follow: Callable[[ZooKeeper, Wait], None], *, caches: bool) -> None:
    """Connect for a command with ``--watch``, and go on until Ctrl-C. Blocks.

    :param follow: goes on for ever; gets the connection, and what blocks until the next look.
    :param caches: nodes and requests are read from caches: a change costs one read and ends the wait.
    :raises CommandError: ZooKeeper does not answer in time.
    """
    changed = threading.Event()

    def wait(seconds: float) -> None:
        threading.Event().wait(_PAUSE)
        changed.wait(max(0.0, seconds - _PAUSE))
        changed.clear()

    # That of a person; that of a lost connection became an error further inside.
    with contextlib.suppress(KeyboardInterrupt), open_zookeeper(options) as zk:
        if caches:
            from nodepool.zk.caches import NodepoolCache
            from nodepool.zk.zookeeper import ZooKeeper

            cache = NodepoolCache(zk.client)
            if not cache.wait_ready(CONNECT_SECONDS):
                raise CommandError("the nodes and requests could not be read from ZooKeeper in time")
            for records in (cache.nodes, cache.requests):
                records.add_listener(lambda *_: changed.set())
            zk = ZooKeeper(zk.client, cache)
        follow(zk, wait)


def is_as_released(options: argparse.Namespace) -> bool:
    """Is only what released Nodepool shows printed? Then nothing else needs to be read."""
    if options.columns or options.sort:
        return False
    return options.format in ("csv", "name") or (options.format == "table" and not sys.stdout.isatty())


def place_of(options: argparse.Namespace) -> Place:
    """Only columns that are shown there are needed; `ONLY_JSON`: all are."""
    return Place.TABLE if is_as_released(options) and not options.watch else ONLY_JSON


def no_launcher(zk: ZooKeeper) -> str:
    """What a person reads below an empty listing if no launcher runs; empty = one does."""
    if zk.getRegisteredPools():
        return ""
    return "No launcher is registered in ZooKeeper: start nodepool-launcher, or check zookeeper-servers and its chroot."
