# SPDX-License-Identifier: Apache-2.0
"""What a command works with (reference/commands 2).

First its connection to ZooKeeper, without caches, as everything is read directly; then how a listing is shown, once or
until Ctrl-C; the progress of work; who uses a command; and a provider that is started for it.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from nodepool import log_names
from nodepool.cmd.app import CommandError
from nodepool.exceptions import ZKConnectionError
from nodepool.listing import terminal
from nodepool.listing.table import ONLY_JSON, Place, Report, Table, printable

if TYPE_CHECKING:
    from types import FrameType

    from nodepool.config.objects import Config
    from nodepool.config.zookeeper import ZooKeeperSettings
    from nodepool.driver.interface import Provider
    from nodepool.zk.zookeeper import ZooKeeper

#: How long a command waits for ZooKeeper, in seconds.
CONNECT_SECONDS: Final = 10.0
#: After so many seconds a terminal shows what it waits for.
QUIET_SECONDS: Final = 1.0
#: Ends the main thread's work when the connection is lost. Not SIGINT: a shell that starts a command in the background
#: has it ignored, and then Python does not make it an exception.
LOST_SIGNAL: Final = signal.SIGUSR1


class _Lost(BaseException):
    """The connection did not come back. No handler of errors in between is to take it for its own."""


def open_zookeeper(options: argparse.Namespace) -> contextlib.AbstractContextManager[ZooKeeper]:
    """Connect as the configuration file says, without reading the rest of it.

    :param options: with the paths ``config`` and ``secure``.
    :raises ConfigError: the file or its ZooKeeper part is bad.
    :raises ZKException: ZooKeeper does not answer within `CONNECT_SECONDS`.
    """
    from nodepool.config.loader import load_zookeeper

    return connect(load_zookeeper(options.config, options.secure))


@contextlib.contextmanager
def connect(settings: ZooKeeperSettings) -> Iterator[ZooKeeper]:
    """Connect, and disconnect at the end. Blocks up to `CONNECT_SECONDS`.

    :raises ZKException: there is no connection; the text has a sentence with the cause for each server.
    :raises ConfigError: a TLS file cannot be used.
    """
    from nodepool.config.zookeeper import make_client
    from nodepool.zk.zookeeper import ZooKeeper

    client = make_client(settings)
    try:
        with quiet("kazoo", log_names.ZOOKEEPER), say_what_is_waited_for(f"ZooKeeper at {client.hosts}"):
            client.connect(timeout=CONNECT_SECONDS)
        with give_up_without_connection(client.add_session_listener, client.hosts, why=client.trouble):
            yield ZooKeeper(client, None)
    finally:
        # Without a connection there is nothing to give back, and a person who pressed Ctrl-C does not want to wait.
        if client.connected:
            client.disconnect()


@contextlib.contextmanager
def give_up_without_connection(
    add_listener: Callable[[Callable[[str], None]], None],
    hosts: str,
    seconds: float = CONNECT_SECONDS,
    why: Callable[[], Sequence[str]] = tuple,
) -> Iterator[None]:
    """Inside, a connection that is lost and does not come back ends the main thread's work.

    A daemon waits for ZooKeeper as long as it takes, and so do the calls that daemons and commands share. A person
    at a terminal should not, nor a script. The main thread must call it, because only there a signal is an exception.

    :param add_listener: where to hear of 'connected', 'suspended' and 'lost'.
    :param seconds: how long to wait for the connection to come back.
    :param why: a sentence for each server that cannot be used.
    :raises ZKConnectionError: it did not.
    """
    main = threading.get_ident()
    timer: threading.Timer | None = None

    def interrupt() -> None:
        if not done.is_set():
            # A real signal: it also ends a wait for a lock.
            signal.pthread_kill(main, LOST_SIGNAL)

    def lost(_number: int, _frame: FrameType | None) -> None:
        if not done.is_set():
            raise _Lost

    def on_state(state: str) -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
            timer = None
        if state != "connected" and not done.is_set():
            timer = threading.Timer(seconds, interrupt)
            timer.daemon = True
            timer.start()

    done = threading.Event()
    before = signal.signal(LOST_SIGNAL, lost)
    add_listener(on_state)
    try:
        yield
    except _Lost:
        raise ZKConnectionError("\n".join([f"the connection to ZooKeeper at {hosts} was lost", *why()])) from None
    finally:
        done.set()
        if timer is not None:
            timer.cancel()
            timer.join()
        signal.signal(LOST_SIGNAL, before)


@contextlib.contextmanager
def say_what_is_waited_for(what: str, seconds: float = QUIET_SECONDS, limit: float = CONNECT_SECONDS) -> Iterator[None]:
    """Inside, a terminal is informed on standard error what the command waits for, once it has waited for a while.

    :param seconds: how long to wait with it.
    :param limit: how long the command waits at most, in seconds; part of the text.
    """
    timer = threading.Timer(seconds, terminal.hint, [f"waiting for {what}, up to {limit:g} s ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextlib.contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Hide what some loggers write on the way: the user gets it in a line at the end. Not with ``--debug``."""
    loggers = [logging.getLogger(name) for name in names]
    hidden = [(logger, logger.level) for logger in loggers if not logger.isEnabledFor(logging.DEBUG)]
    for logger, _ in hidden:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in hidden:
            logger.setLevel(level)


# A listing, as the options of its form want it.

#: Shortest time between two looks at what is watched, in seconds, however much changes.
_PAUSE: Final = 0.2


def _display_of(options: argparse.Namespace) -> terminal.Display:
    """How the options want a listing to be shown."""
    given = {name: value for name, value in vars(options).items() if name in ("sort", "columns", "headers")}
    return terminal.Display(options.format, **given)


def show(table: Table, options: argparse.Namespace, empty: str = "") -> None:
    """Print a listing as the options want it. Raises UnknownColumn.

    :param empty: what a person at a terminal reads below an empty table.
    """
    terminal.show(table, _display_of(options))
    if empty and not table.rows and options.format in ("table", "wide"):
        terminal.hint(empty)


def show_listing(
    options: argparse.Namespace,
    look: Callable[[ZooKeeper], Table],
    empty: Callable[[ZooKeeper], str] | str,
    *,
    caches: bool = False,
) -> int:
    """Show what ZooKeeper has now, or with ``--watch`` until Ctrl-C; returns the exit status. Blocks.

    :param look: reads the listing.
    :param empty: what a person at a terminal reads below an empty table.
    :param caches: a listing of nodes or requests: with ``--watch`` they are read from caches, if there are some.
    :raises CommandError: ZooKeeper does not answer in time.
    :raises UnknownColumn: as `show`.
    """
    if options.watch:
        watch(options, look, caches=caches)
        return 0
    with open_zookeeper(options) as zk:
        table = look(zk)
        show(table, options, empty if isinstance(empty, str) else "" if table.rows else empty(zk))
    return 0


def watch(options: argparse.Namespace, look: Callable[[ZooKeeper], Table | Report], *, caches: bool) -> None:
    """Show for a command with ``--watch`` what there is, again and again until Ctrl-C. Blocks.

    :param look: reads what is shown.
    :param caches: nodes and requests are read from caches: a change costs one read and ends the wait.
    :raises CommandError: this is no terminal, or ZooKeeper does not answer in time.
    """
    changed, display = threading.Event(), _display_of(options)
    if not terminal.can_follow(display):
        raise CommandError("--watch needs a terminal that can be drawn again, and the form table or wide")

    def wait(seconds: float) -> None:
        threading.Event().wait(_PAUSE)
        changed.wait(max(0.0, seconds - _PAUSE))
        changed.clear()

    # That of a person; that of a lost connection became an error further inside.
    with contextlib.suppress(KeyboardInterrupt), open_zookeeper(options) as zk:
        if caches:
            from nodepool.zk.nodes import NodepoolCache
            from nodepool.zk.zookeeper import ZooKeeper

            cache = NodepoolCache(zk.client)
            if not cache.wait_ready(CONNECT_SECONDS):
                raise CommandError("the nodes and requests could not be read from ZooKeeper in time")
            for records in (cache.nodes, cache.requests):
                records.add_listener(lambda *_: changed.set())
            zk = ZooKeeper(zk.client, cache)
        terminal.follow(lambda: look(zk), wait, display)


def is_as_released(options: argparse.Namespace) -> bool:
    """Is only what released Nodepool shows printed? Then nothing else needs to be read."""
    if options.columns or options.sort:
        return False
    return options.format in ("csv", "name") or (options.format == "table" and not sys.stdout.isatty())


def place_of(options: argparse.Namespace) -> Place:
    """Only columns that are shown there are needed; `ONLY_JSON`: all are."""
    return Place.TABLE if is_as_released(options) and not options.watch else ONLY_JSON


def none_of(what: str, *, everything: bool = True) -> Callable[[ZooKeeper], str]:
    """What a person reads below an empty listing of nodes, requests or labels.

    :param everything: were all of them wanted?
    """
    text = f"There is no {what}." if everything else f"There is no {what} as the options want it."

    def empty(zk: ZooKeeper) -> str:
        start = "start nodepool-launcher, or check zookeeper-servers and its chroot"
        return text if zk.getRegisteredPools() else f"{text} No launcher is registered in ZooKeeper: {start}."

    return empty


# The progress of work.

#: Characters of a bar.
_BAR: Final = 20


@dataclass(frozen=True)
class Item:
    """One piece of work.

    :param short: name beside a bar, where there is little room; empty = ``name``.
    :param percent: None = it is not known how much there is to do.
    :param text: what else there is to show, e.g. the present step. It may change with every look.
    :param state: what changes rarely, e.g. the step; a change is worth a line when ``percent`` is None.
    """

    name: str
    percent: float | None
    text: str
    state: str = ""
    short: str = ""


@contextlib.contextmanager
def progress(stream: TextIO) -> Iterator[Callable[[Sequence[Item]], None]]:
    """Gives the function that shows how far the work is. For one thread.

    On a terminal the bars are removed in the end. What is logged meanwhile stands above them.
    """
    printed: dict[str, object] = {}

    def print_lines(items: Sequence[Item]) -> None:
        for item in items:
            mark = item.state if item.percent is None else int(item.percent) // 10
            if printed.get(item.name) != mark:
                printed[item.name] = mark
                print(as_line(item), file=stream, flush=True)

    if not stream.isatty():
        yield print_lines
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    handlers = logging.getLogger().handlers if sys.stderr.isatty() else []
    logs = [one for one in handlers if isinstance(one, logging.StreamHandler) and one.stream is sys.stderr]
    with contextlib.ExitStack() as stack:
        live = Live(console=terminal.console_of(stream), auto_refresh=False, transient=True, redirect_stderr=bool(logs))
        for handler in logs:
            stack.callback(handler.setStream, handler.stream)
        stack.enter_context(live)
        for handler in logs:
            handler.setStream(sys.stderr)
        # A bar has one line. A sentence, such as what a request waits for, has as many as it needs.
        yield lambda items: live.update(
            Group(*(Text(_bar(item), no_wrap=item.percent is not None, overflow="crop") for item in items)),
            refresh=True,
        )


def as_line(item: Item, name: str = "") -> str:
    """A line without a bar. :param name: in place of the item's own."""
    percent = "" if item.percent is None else f" {int(item.percent):3d}%"
    return printable(f"{name or item.name}:{percent} {item.text or item.state}".rstrip())


def _bar(item: Item) -> str:
    if item.percent is None:
        return as_line(item, item.short)
    done = int(item.percent * _BAR / 100)
    bar = "#" * done + "." * (_BAR - done)
    return printable(f"{item.short or item.name} [{bar}] {int(item.percent):3d}% {item.text or item.state}".rstrip())


# Who uses a command, for records that say who changed something.


def operator() -> str:
    """``<user>@<host>``; behind ``sudo`` the user who called it."""
    user = os.environ.get("SUDO_USER")
    if not user:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            # No entry in the password database, as in many containers.
            user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def end_of(options: argparse.Namespace, now: float) -> float | None:
    """The end that ``--for`` or ``--until`` name, in seconds since the epoch; None = they want none.

    :param now: seconds since the epoch.
    :raises CommandError: it is over.
    """
    until: float | None = options.until if options.lasts is None else now + options.lasts
    if until is not None and until <= now:
        raise CommandError("--until is in the past" if options.lasts is None else "--for is no time at all")
    return until


# A provider of the configuration, started for one command.


@contextlib.contextmanager
def started_provider(zk: ZooKeeper, config: Config, name: str) -> Iterator[Provider]:
    """Inside, a provider of the configuration runs. Blocks as long as its driver does.

    :raises CommandError: it cannot be used or started.
    """
    from nodepool.driver import gateway
    from nodepool.driver.framework.sections import UnavailableProviderConfig
    from nodepool.runtime.providers import start_now

    provider_config = config.providers[name]
    if isinstance(provider_config, UnavailableProviderConfig):
        raise CommandError(f"provider {name} cannot be used: {provider_config.reason}")
    with error_in_a_line(f"provider {name} cannot be started"):
        provider = start_now(provider_config, zk)
    try:
        yield provider
    finally:
        gateway.stop_provider(provider)
        gateway.join_provider(provider)


@contextlib.contextmanager
def error_in_a_line(what: str) -> Iterator[None]:
    """Whatever a driver raises inside, the operator gets a line and no traceback.

    :param what: begins the line; the reason follows.
    :raises CommandError: instead of what was raised.
    """
    try:
        yield
    except CommandError:
        raise
    except Exception as error:
        # Nothing is known of what a driver may raise.
        raise CommandError(f"{what}: {str(error) or type(error).__name__}") from error
