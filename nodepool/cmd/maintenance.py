# SPDX-License-Identifier: Apache-2.0
"""Commands that take things out of service (reference/commands 2).

First ``nodepool pause``, ``drain``, ``resume``, ``quarantine``, ``release`` and ``maintenance``, then durations and
moments as their arguments.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from nodepool.clock import wall_time
from nodepool.cmd.app import Add, CommandError
from nodepool.cmd.format_option import add_format_option, show_listing
from nodepool.cmd.session import open_zookeeper, operator
from nodepool.listing import table
from nodepool.model.maintenance import MODES, Maintenance, Mode
from nodepool.plan.maintenance import Subject, UnclearSubject, find

if TYPE_CHECKING:
    from nodepool.listing.table import Table
    from nodepool.zk.zookeeper import ZooKeeper

T = TypeVar("T")

#: Kinds that hold requests back, and those that can be drained.
PAUSED_KINDS: Final = tuple(kind for kind, modes in MODES.items() if Mode.PAUSE in modes)
DRAINED_KINDS: Final = tuple(kind for kind, modes in MODES.items() if Mode.DRAIN in modes)
HOST: Final = ("host",)
#: What a record that was written has for consequences. Only a launcher is drained.
_WHAT_NOW: Final = {
    Mode.PAUSE: "Requests wait or go to other pools; what runs goes on.",
    Mode.DRAIN: "It finishes what it does and ends; `nodepool launchers` shows it until then.",
    Mode.QUARANTINE: "It is held after its job, and not registered again.",
}


def add_commands(add: Add) -> None:
    """Add the commands of this module."""
    pause = "let a provider, pool, label or launcher take nothing new"
    drain = "let a launcher finish what it does and end; of a provider or pool the same as pause"
    quarantine = "take a static host out of service: it is held after its job"
    for name, mode, kinds, text, example in (
        ("pause", Mode.PAUSE, PAUSED_KINDS, pause, "provider cloud-1 --reason 'upgrade of the cloud' --for 2h"),
        ("drain", Mode.DRAIN, DRAINED_KINDS, drain, "launcher host-1 --reason 'new kernel'"),
        ("resume", None, PAUSED_KINDS, "end a pause or a drain", "provider cloud-1"),
        ("quarantine", Mode.QUARANTINE, HOST, quarantine, "host-7 --reason 'disk errors'"),
        ("release", None, HOST, "end the quarantine of a static host", "host-7"),
    ):
        parser = add(name, end if mode is None else begin, text, f"nodepool {name} {example}")
        parser.set_defaults(mode=mode, kinds=kinds)
        if kinds == HOST:
            text = "as it was quarantined" if mode is None else "<user>@<host>:<port>, or the host's name alone"
            parser.add_argument("subject", metavar="HOST", nargs=1, help=text)
        else:
            text = f"its name; before it may stand what it is: {', '.join(kinds)}. A pool is <provider>/<pool>"
            parser.add_argument("subject", metavar="NAME", nargs="+", help=text)
        if mode is None:
            continue
        text, required = "why, for everybody who asks", mode is Mode.QUARANTINE
        parser.add_argument("--reason", metavar="TEXT", default="", required=required, help=text)
        add_end_options(parser, "end it")
        text = "even if no running launcher knows it; then say what it is, too"
        parser.add_argument("--force", action="store_true", help=text)

    text = "list what is paused, drained or quarantined: by whom, why, until when"
    add_format_option(add("maintenance", list_maintenance, text, "nodepool maintenance"), watch=True)


def begin(options: argparse.Namespace) -> int:
    """``nodepool pause``, ``drain`` and ``quarantine``"""
    from nodepool.zk.maintenance_store import MaintenanceStore

    mode, kinds, now = options.mode, options.kinds, wall_time()
    until = end_of(options, now)
    with open_zookeeper(options) as zk:
        subject = _meant(options.subject, kinds, lambda: _known(zk, kinds), force=options.force)
        alias = mode is Mode.DRAIN and subject.kind != "launcher"
        mode = Mode.PAUSE if alias else mode
        record = Maintenance(subject.kind, subject.name, mode, options.reason.strip(), operator(), now, until)
        MaintenanceStore(zk.client).put(record)
    if alias:
        print("A drain of a provider or a pool is a pause: its nodes stay until their jobs end or you delete them.")
    back = f"release {record.name}" if mode is Mode.QUARANTINE else f"resume {record.kind} {record.name}"
    print(f"{record.text}. {_WHAT_NOW[mode]} Back with: nodepool {back}")
    return 0


def end(options: argparse.Namespace) -> int:
    """``nodepool resume`` and ``release``"""
    from nodepool.zk.maintenance_store import MaintenanceStore

    kinds: Sequence[str] = options.kinds
    with open_zookeeper(options) as zk:
        store = MaintenanceStore(zk.client)
        records = store.read_all()
        known = {kind: {name for of, name in records if of == kind} for kind in kinds}
        done = "quarantined" if kinds == HOST else "paused or drained"
        if not any(known.values()):
            raise CommandError(f"nothing is {done}")
        words = options.subject
        if kinds == HOST and words[-1] not in known["host"]:
            # Listings and `explain` name it with user and port, also if the record is of the host's name alone.
            alone = words[-1].rpartition(":")[0].rpartition("@")[2]
            words = [alone] if alone in known["host"] else words
        subject = _meant(words, kinds, lambda: known, force=False, done=done)
        store.remove(*subject)
    print(f"{subject.kind} {subject.name} is back in service")
    return 0


def _meant(
    words: Sequence[str],
    kinds: Sequence[str],
    known: Callable[[], Mapping[str, Collection[str]]],
    *,
    force: bool,
    done: str = "",
) -> Subject:
    """The subject of a command line.

    :param done: what all that is known is, e.g. ``quarantined``; empty = nothing special.
    :raises CommandError: nothing or several things are meant.
    """
    if len(words) > 2 or (len(words) == 2 and words[0] not in kinds):
        raise CommandError(f"write NAME or KIND NAME, where KIND is one of {', '.join(kinds)}")
    kinds = kinds if len(words) == 1 else [words[0]]
    name = words[-1]
    if not name.isprintable() or name in ("", ".", ".."):
        raise CommandError(f"{name!r} is no name")
    try:
        return find(name, kinds, known(), done)
    except UnclearSubject as unclear:
        if force and unclear.unknown and len(kinds) == 1:
            return Subject(kinds[0], name)
        raise CommandError(str(unclear)) from None


def _known(zk: ZooKeeper, kinds: Sequence[str]) -> Mapping[str, Collection[str]]:
    """Names of what running launchers know. Blocks for some round trips."""
    from nodepool.zk import components, status

    if kinds == HOST:
        names = {host.name for pool in status.read_pools(zk.client) for host in pool.hosts}
        return {"host": names | {name.rpartition("@")[2].rpartition(":")[0] for name in names}}
    pools = zk.getRegisteredPools()
    return {
        "provider": {pool.provider_name for pool in pools},
        "pool": {f"{pool.provider_name}/{pool.name}" for pool in pools if pool.name},
        "label": {label for pool in pools for label in pool.supported_labels},
        "launcher": {launcher.hostname for launcher in components.read_launchers(zk.client)},
    }


def list_maintenance(options: argparse.Namespace) -> int:
    """``nodepool maintenance``"""
    from nodepool.listing.records import maintenance_table
    from nodepool.zk.images import read_images
    from nodepool.zk.maintenance_store import MaintenanceStore

    def look(zk: ZooKeeper) -> Table:
        records = [*MaintenanceStore(zk.client).read_all().values(), *read_images(zk.client).pauses()]
        return maintenance_table(records, wall_time())

    return show_listing(options, look)


# Durations and moments as arguments of commands: ``90s``, ``15m``, ``1h30m``, ``2d``; ``18:30``.

_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}")


def argument(read: Callable[[str], T]) -> Callable[[str], T]:
    """For ``type`` of an argument: the text of a ValueError is what the user reads."""

    def parsed(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


#: The seconds of a duration.
duration: Final = argument(table.duration)


@argument
def moment(text: str) -> float:
    """A moment, in seconds since the epoch, of e.g. ``18:30``, ``2026-12-24`` or ``2026-12-24T18:30``.

    In local time, unless the text has an offset. A time without a date is the next one.
    """
    now = datetime.now(UTC).astimezone()
    try:
        if _CLOCK.fullmatch(text):
            clock = time.fromisoformat(text.zfill(5))
            when = _at(now, clock) if _at(now, clock) > now else _at(now + timedelta(days=1), clock)
        else:
            when = datetime.fromisoformat(text)
        return when.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no moment; write e.g. 18:30, 2026-12-24 or 2026-12-24T18:30") from None


def _at(day: datetime, clock: time) -> datetime:
    return datetime.combine(day.date(), clock).astimezone()


def add_end_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Give a command ``--for`` and ``--until``, of which one may be used: see `end_of`.

    :param what: what happens at the end, for the help text.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--for", dest="lasts", metavar="TIME", type=duration, help=f"{what} after this time, e.g. 90m, 8h, 2d"
    )
    group.add_argument(
        "--until", metavar="MOMENT", type=moment, help=f"{what} then: 18:30, 2026-12-24 or 2026-12-24T18:30"
    )


def end_of(options: argparse.Namespace, now: float) -> float | None:
    """The end that the options of `add_end_options` want, in seconds since the epoch; None = they want none.

    :param now: seconds since the epoch.
    :raises CommandError: it is over.
    """
    until: float | None = options.until if options.lasts is None else now + options.lasts
    if until is not None and until <= now:
        raise CommandError("--until is in the past" if options.lasts is None else "--for is no time at all")
    return until
