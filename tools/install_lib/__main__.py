# SPDX-License-Identifier: Apache-2.0
"""Options, the order of things, and one line for what is wrong."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from install_lib.advice import after
from install_lib.errors import InstallError
from install_lib.host import Host
from install_lib.options import DIRECTORY, parse
from install_lib.plan import steps
from install_lib.record import PLACE, load
from install_lib.release import Release, check_directory, read_stamp
from install_lib.removal import check_stopped, removals
from install_lib.source import Source
from install_lib.steps import go

TOP: Final = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None, host: Host | None = None) -> int:
    """Run it. Blocks. Returns the exit code: 0, or 1 when it could not go on; 130 when it was interrupted.

    :param host: the machine; None = that of ``--root``.
    """
    options = parse(arguments)
    try:
        (uninstall if options.uninstall else install)(host or Host(options.root), options)
    except InstallError as error:
        print(f"tools/install: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"tools/install: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ntools/install: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


def install(host: Host, options: argparse.Namespace) -> None:
    """Make everything as it should be. Blocks. :raises InstallError: it cannot go on."""
    place = host.path(PLACE)
    record = load(place)
    directory = options.directory or record.directory or DIRECTORY
    check_directory(host, record, directory)
    present = read_stamp(host.path(directory))
    extras, also = (sorted({*present.get(name, ()), *getattr(options, name)}) for name in ("extras", "also"))
    source = Source(TOP, options.wheel, extras, also)
    source.check()
    record.directory = directory
    release = Release(host, source, directory, options.man_pages)
    count = go(steps(host, record, release), say, options.dry_run, lambda: record.save(place))
    tell(count, options.dry_run)
    if count and not options.dry_run:
        say(f"\n{after(host.is_tree, bool(present))}")


def uninstall(host: Host, options: argparse.Namespace) -> None:
    """Remove what was installed. Blocks. :raises InstallError: it cannot go on."""
    place = host.path(PLACE)
    record = load(place)
    if record.directory:
        check_stopped(host, record.directory)
        if host.path(record.directory).exists():
            check_directory(host, record, record.directory)
    count = go(removals(host, record, options.purge), say, options.dry_run, lambda: record.save(place))
    if options.purge and not options.dry_run:
        forget(place)
    tell(count, options.dry_run)


def forget(place: Path) -> None:
    """Remove the record itself, and its directory if nothing else is there."""
    place.unlink(missing_ok=True)
    if place.parent.is_dir() and not any(place.parent.iterdir()):
        place.parent.rmdir()


def tell(count: int, dry_run: bool) -> None:
    """The last line."""
    if dry_run:
        say(f"Dry run: nothing was changed; {count} steps would be done.")
    else:
        say(f"Done: {count} steps changed something." if count else "Nothing to do: everything is as it should be.")


def say(text: str) -> None:
    """A line for the person at the terminal, at once."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
