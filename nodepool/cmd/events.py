# SPDX-License-Identifier: Apache-2.0
"""``nodepool events``: what happened in all launchers (reference/commands 2)."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.cmd.durations import duration
from nodepool.cmd.format_option import add_format_option, show
from nodepool.cmd.session import open_zookeeper
from nodepool.listing import terminal

if TYPE_CHECKING:
    from nodepool.model.event import Event
    from nodepool.zk.zookeeper import ZooKeeper

#: Between two looks of ``--follow``: launchers tell at most so often.
LOOK_SECONDS: Final = 2.0


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

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
