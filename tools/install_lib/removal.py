# SPDX-License-Identifier: Apache-2.0
"""The way back: what an installation has made is removed, what an operator has made or changed stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from install_lib.accounts import USER
from install_lib.errors import InstallError
from install_lib.host import Host
from install_lib.plan import CONFIGURATION, UNIT_DIRECTORY, UNITS
from install_lib.record import Record, digest
from install_lib.release import foreign, releases
from install_lib.steps import Look, Step


@dataclass(frozen=True)
class Removal:
    """Something that is to be gone."""

    name: str
    found: Look
    action: Callable[[], object]

    def look(self) -> Look:
        return self.found

    def do(self) -> None:
        self.action()


def check_stopped(host: Host, directory: str) -> None:
    """:raises InstallError: a program of ours runs."""
    for place in releases(host, directory):
        if numbers := host.processes(f"{place}/"):
            raise InstallError(f"programs in {place} run (process {', '.join(map(str, numbers))}): stop them first")


def removals(host: Host, record: Record, purge: bool) -> Iterator[Step]:
    """What is removed, in an order in which a run that fails can be repeated.

    :param purge: also configuration, data, logs, edited files and accounts that tools/install has made.
    """
    yield from _units(host, record, purge)
    for place in sorted(record.links, key=lambda one: one == record.directory):
        yield _link(host, record, place)
    for place in releases(host, record.directory):
        more = foreign(host.path(place))
        found = Look(remark=f"it also has {', '.join(more)}, so it stays") if more else Look(f"remove {place}")
        path = host.path(place)
        yield Removal(f"virtual environment {place}", found, lambda path=path: shutil.rmtree(path))  # type: ignore[misc]
    for place in sorted(record.files):
        yield from _file(host, record, place, purge)
    if purge:
        yield from _made(host, record)


def _units(host: Host, record: Record, purge: bool) -> Iterator[Step]:
    """systemd does not start any more what is removed."""
    if not host.has_systemd():
        return
    names = [
        f"{name}.service" for name in UNITS if _is_removed(host, record, f"{UNIT_DIRECTORY}/{name}.service", purge)
    ]
    if names:
        text = f"disable {', '.join(names)}"
        yield Removal("units", Look(text), lambda: host.run(["systemctl", "--quiet", "disable", *names]))


def _is_removed(host: Host, record: Record, place: str, purge: bool) -> bool:
    path = host.path(place)
    if place not in record.files or not path.is_file():
        return False
    return purge or (place != CONFIGURATION and digest(path.read_bytes()) == record.files[place])


def _link(host: Host, record: Record, place: str) -> Step:
    path, old = host.path(place), record.moved.get(place)
    ours = path.is_symlink() and str(path.readlink()) == record.links[place]
    back = old is not None and host.path(old).exists()

    def remove() -> None:
        path.unlink()
        if old is not None and back:
            host.path(old).rename(path)
        record.links.pop(place)
        record.moved.pop(place, None)

    if not ours:
        return Removal(f"link {place}", Look(remark="it is not ours any more"), remove)
    return Removal(f"link {place}", Look(f"remove link {place}{f', and put {old} back' if back else ''}"), remove)


def _file(host: Host, record: Record, place: str, purge: bool) -> Iterator[Step]:
    path = host.path(place)

    def remove(what: str) -> None:
        host.path(what).unlink()
        record.files.pop(what, None)

    beside = record.beside.get(place)
    if beside and host.path(beside).is_file() and digest(host.path(beside).read_bytes()) == record.offered[place]:
        yield Removal(f"file {beside}", Look(f"remove {beside}"), lambda: remove(beside))
    if _is_removed(host, record, place, purge):
        yield Removal(f"file {place}", Look(f"remove {place}"), lambda: remove(place))
    elif path.is_file():
        why = "configuration" if place == CONFIGURATION else "it was edited"
        yield Removal(f"file {place}", Look(remark=f"{why}, so it stays"), lambda: remove(place))


def _made(host: Host, record: Record) -> Iterator[Step]:
    for what in reversed(record.made):
        if what.startswith("/"):
            path = host.path(what)
            found = Look(f"remove {what} with all that is in it") if path.is_dir() else Look()
            yield Removal(f"directory {what}", found, lambda path=path: shutil.rmtree(path))  # type: ignore[misc]
    for kind, command, there in (("user", "userdel", host.has_user), ("group", "groupdel", host.has_group)):
        if f"{kind} {USER}" in record.made:
            yield Removal(
                f"{kind} {USER}",
                Look(f"remove {kind} {USER}"),
                # userdel may have removed the group.
                lambda command=command, there=there: there(USER) and host.run([command, USER]),  # type: ignore[misc]
            )
