# SPDX-License-Identifier: Apache-2.0
"""Commands that take things out of service (reference/commands 2).

``nodepool pause``, ``drain``, ``resume``, ``quarantine``, ``release`` and ``maintenance``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from nodepool.clock import wall_time
from nodepool.cmd.app import HOST, CommandError
from nodepool.cmd.session import end_of, open_zookeeper, operator, show_listing
from nodepool.listing.records import maintenance_table
from nodepool.listing.table import Table, moment
from nodepool.model.status import Maintenance, Mode
from nodepool.plan.maintenance import Subject, UnclearSubject, find
from nodepool.plan.observed import host_name
from nodepool.zk import components, status
from nodepool.zk.images import read_images
from nodepool.zk.zookeeper import ZooKeeper

#: What a record that was written has for consequences. Only a launcher is drained.
_WHAT_NOW: Final = {
    Mode.PAUSE: "Requests wait or go to other pools; what runs goes on.",
    Mode.DRAIN: "It finishes what it does and ends; `nodepool launchers` shows it until then.",
    Mode.QUARANTINE: "It is held after its job, and not registered again.",
}


def do_pause(options: argparse.Namespace) -> int:
    """``nodepool pause``, ``drain`` and ``quarantine``"""
    mode, kinds, now = options.mode, options.kinds, wall_time()
    until = end_of(options, now)
    with open_zookeeper(options) as zk:
        subject = _meant(options.subject, kinds, lambda: _known(zk, kinds), force=options.force)
        alias = mode is Mode.DRAIN and subject.kind != "launcher"
        mode = Mode.PAUSE if alias else mode
        record = Maintenance(subject.kind, subject.name, mode, options.reason.strip(), operator(), now, until)
        zk.maintenance.put(record)
    if alias:
        print("A drain of a provider or a pool is a pause: its nodes stay until their jobs end or you delete them.")
    end = "" if until is None else f" The {mode.value} ends by itself at {moment(until, now)}."
    back = f"release {record.name}" if mode is Mode.QUARANTINE else f"resume {record.kind} {record.name}"
    print(f"{record.text}. {_WHAT_NOW[mode]}{end} Back with: nodepool {back}")
    return 0


do_drain = do_quarantine = do_pause


def do_resume(options: argparse.Namespace) -> int:
    """``nodepool resume`` and ``release``"""
    kinds: Sequence[str] = options.kinds
    with open_zookeeper(options) as zk:
        store = zk.maintenance
        records = store.read_all()
        known = {kind: {name for of, name in records if of == kind} for kind in kinds}
        done = "quarantined" if kinds == HOST else "paused or drained"
        if not any(known.values()):
            raise CommandError(f"nothing is {done}")
        words = options.subject
        if kinds == HOST and words[-1] not in known["host"]:
            # Listings and `explain` name it with user and port, also if the record is of the host's name alone.
            alone = host_name(words[-1])
            words = [alone] if alone in known["host"] else words
        subject = _meant(words, kinds, lambda: known, force=False, done=done)
        store.remove(*subject)
    print(f"{subject.kind} {subject.name} is back in service")
    return 0


do_release = do_resume


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
    if kinds == HOST:
        names = {host.name for pool in status.read_pools(zk.client) for host in pool.hosts}
        return {"host": names | {host_name(name) for name in names}}
    pools = zk.getRegisteredPools()
    return {
        "provider": {pool.provider_name for pool in pools},
        "pool": {f"{pool.provider_name}/{pool.name}" for pool in pools if pool.name},
        "label": {label for pool in pools for label in pool.supported_labels},
        "launcher": {launcher.hostname for launcher in components.read_launchers(zk.client)},
    }


def do_maintenance(options: argparse.Namespace) -> int:
    """``nodepool maintenance``"""

    def look(zk: ZooKeeper) -> Table:
        records = [*zk.maintenance.read_all().values(), *read_images(zk.client).pauses()]
        return maintenance_table(records, wall_time())

    return show_listing(options, look, "Nothing is paused, drained or quarantined.")
