# SPDX-License-Identifier: Apache-2.0
"""What comes of a connection to ZooKeeper: answers, events, how long they take, and why there is none.

First the answer to one call, in the order in which the server sent it (`Reply`). Kazoo hands results to a completion
thread and events to a callback thread, which loses their order. A cache must see its own writes and foreign events in
the order in which the server sent them. So the connection thread sets a reply.

Then what a watch reports, and how long ZooKeeper takes to answer; then the log of a connection, why a server cannot be
used, and our files of TLS. Nothing of Kazoo is imported: commands that only read a configuration check these files.
"""

from __future__ import annotations

import bisect
import enum
import functools
import logging
import re
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from nodepool import log_names
from nodepool.exceptions import ZKConnectionError

log = logging.getLogger(log_names.ZOOKEEPER)


class Reply:
    """The answer to one call, set by the connection thread.

    :param on_done: called in the connection thread with (result, error), before waiters wake. Must be quick, must not
        block and must not wait for another reply.
    """

    __slots__ = ("_done", "_on_done", "_result", "answered", "error")

    def __init__(self, on_done: Callable[[Any, BaseException | None], None] | None = None) -> None:
        # A lock that is released once is the cheapest thing to wait for.
        self._done = threading.Lock()
        self._done.acquire()
        self._on_done = on_done
        self.answered = False
        #: What came instead of an answer.
        self.error: BaseException | None = None
        self._result: Any = None

    def _finish(self, result: Any, error: BaseException | None) -> None:
        # Kazoo may report an error twice (queue and socket): the first answer counts.
        if self.answered:
            return
        self.answered = True
        self._result = result
        self.error = error
        try:
            if self._on_done is not None:
                self._on_done(result, error)
        except ZKConnectionError as closing:
            # Someone ends the connection at this moment: what was to be asked next is of no use any more.
            log.debug("Nothing more is made of a ZooKeeper reply: %s", closing)
        except Exception:
            # An error here would end Kazoo's connection loop.
            log.exception("Error while handling a ZooKeeper reply")
        finally:
            self._done.release()

    def set(self, value: Any = None) -> None:
        self._finish(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._finish(None, error)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is an answer, at most ``timeout`` seconds; returns whether there is one."""
        if not self._done.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self._done.release()
        return True

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the answer and return it, or raise the error that came instead.

        :raises TimeoutError: no answer within ``timeout`` seconds.
        """
        if not self.wait(timeout):
            raise TimeoutError("no answer from ZooKeeper")
        if self.error is not None:
            raise self.error
        return self._result


# What a recursive watch reports of a znode.

#: Kinds of events, as ZooKeeper numbers them.
CREATED: Final = 1
DELETED: Final = 2
CHANGED: Final = 3
EVENTS: Final = (CREATED, DELETED, CHANGED)

#: ``on_event(kind, path without chroot)``, called in the connection thread: must be quick and must not block.
WatchFunction = Callable[[int, str], None]


# `Latency`: how long ZooKeeper takes to answer, counted by the connection thread.

#: Upper bounds of the counts, in seconds.
BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Latency:
    """Written by one thread without a lock; others read, and may miss what is being added."""

    def __init__(self) -> None:
        #: Answers up to each bound, and those above all of them; not cumulative.
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count an answer. Does not block."""
        self.counts[bisect.bisect_left(BOUNDS, seconds)] += 1
        self.sum_seconds += seconds


# `KazooLog`: the logger of a connection of Kazoo (rule J-4).

#: How warnings about one attempt to connect begin.
ATTEMPTS: Final = ("Connection dropped", "Connection time-out", "Cannot resolve")


class KazooLog(logging.LoggerAdapter[logging.Logger]):
    """Without a connection Kazoo warns of each attempt to get one, about once a second and without the server.

    `nodepool.zk.client.ZooKeeperClient` logs the cause, once a minute; the attempts are for DEBUG.

    :param connected: is there a session?
    """

    def __init__(self, logger: logging.Logger, connected: Callable[[], bool]) -> None:
        super().__init__(logger, {})
        self._connected = connected

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a warning, or what is less than one."""
        attempt = str(msg).startswith(ATTEMPTS) and not self._connected()
        self.log(logging.DEBUG if attempt else logging.WARNING, msg, *args, **kwargs)


# Why a server of ZooKeeper cannot be used: the cause, and a sentence with server, key and remedy.
#
# Nothing here blocks. If our own TLS files are the cause, they are read, to find out which of them: the last part.

#: What says nothing: ``(_ssl.c:1006)`` at the end of OpenSSL's texts, and a number or a second name at their beginning.
_NOISE: Final = re.compile(r"\s*\(_ssl\.c:\d+\)$|^\[[^\]]*\] ")


class ServerPlace(NamedTuple):
    """One entry of ``zookeeper-servers``."""

    host: str
    port: int


class ConnectStep(enum.Enum):
    """How far an attempt to connect came. The order counts: a later one says more."""

    RESOLVE = 1
    CONNECT = 2
    TLS_FILES = 3
    HANDSHAKE = 4
    SESSION = 5


class Cause(enum.Enum):
    """Why an attempt failed: what an operator is shown of it behind the server's name, and what to do.

    ``text`` is what the system, OpenSSL or Kazoo reports, ``place`` the entry of ``zookeeper-servers``; the others are
    files of ``zookeeper-tls``.
    """

    UNKNOWN_NAME = "the name cannot be resolved ({text}); correct {place}.host, or the name service"
    REFUSED = "connection refused, nothing listens on this port; correct {place}.host and port, or start ZooKeeper"
    UNREACHABLE = "cannot be reached ({text}); correct {place}.host, or look at network and firewall"
    SILENT = "no answer ({text}); correct {place}, or look at the server and at firewalls"
    TLS_FILES = "zookeeper-tls: cert, key and ca cannot be used ({text}); compare {cert}, {key}, {ca}"
    NO_TLS = "does not speak TLS on this port ({text}); {place}.port must be the secureClientPort of ZooKeeper"
    SERVER_CERTIFICATE = (
        "its certificate is not accepted ({text}); zookeeper-tls.ca ({ca}) "
        "must hold the CA that issued the server's certificate, which must be valid now"
    )
    CLIENT_CERTIFICATE = (
        "it does not accept our certificate ({text}); zookeeper-tls.cert ({cert}) must be valid now, "
        "and issued by a CA of the server's trust store (ssl.trustStore.location)"
    )
    HANDSHAKE = "the TLS handshake failed ({text}); compare zookeeper-tls with the TLS settings of the server"
    NEEDS_TLS = "closed the connection ({text}); if this is its secureClientPort, set zookeeper-tls: cert, key and ca"
    NOT_SERVING = "accepts connections, but does not serve ({text}); look at its log: has it lost the other servers?"


#: Causes that last until an operator changes a configuration or a certificate.
LASTING: Final = frozenset({Cause.TLS_FILES, Cause.SERVER_CERTIFICATE, Cause.CLIENT_CERTIFICATE})


@dataclass(frozen=True)
class ConnectFailure:
    """One attempt to connect to one server that failed.

    :param error: what the system, OpenSSL or Kazoo stated.
    """

    stage: ConnectStep
    error: BaseException

    @property
    def text(self) -> str:
        """What was stated, without the places in the source of OpenSSL."""
        error = self.error
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _NOISE.sub("", str(reason)).strip() or type(error).__name__


def cause_of(failure: ConnectFailure, *, tls: bool) -> Cause:
    """Classify a failure.

    :param tls: did we speak TLS?
    """
    match failure.stage, failure.error:
        case ConnectStep.RESOLVE, _:
            return Cause.UNKNOWN_NAME
        case ConnectStep.TLS_FILES, _:
            return Cause.TLS_FILES
        case ConnectStep.CONNECT, ConnectionRefusedError():
            return Cause.REFUSED
        case _, ssl.SSLCertVerificationError():
            return Cause.SERVER_CERTIFICATE
        case _, ssl.SSLError() as error:
            return _tls_error(error)
        case _, TimeoutError():
            return Cause.SILENT
        case ConnectStep.CONNECT, _:
            return Cause.UNREACHABLE
        case ConnectStep.HANDSHAKE, _:
            # ZooKeeper takes the first bytes of TLS for the length of a packet, and closes the connection.
            return Cause.NO_TLS
    return Cause.NOT_SERVING if tls else Cause.NEEDS_TLS


def _tls_error(error: ssl.SSLError) -> Cause:
    reason = f"{error.reason or ''} {error}".upper().replace(" ", "_")
    if "WRONG_VERSION_NUMBER" in reason or "UNKNOWN_PROTOCOL" in reason or "PACKET_LENGTH" in reason:
        return Cause.NO_TLS
    # An alert is the server's: it has seen our certificate. The names of all alerts on certificates have one of these.
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "ACCESS_DENIED" in reason):
        return Cause.CLIENT_CERTIFICATE
    return Cause.HANDSHAKE


def furthest(failures: Mapping[str, ConnectFailure]) -> ConnectFailure:
    """Of the failures with the addresses of one server: that which says most."""
    return max(failures.values(), key=lambda failure: failure.stage.value)


def sentence(server: ServerPlace, index: int, failure: ConnectFailure, files: TlsFiles | None) -> str:
    """One line for an operator, e.g. ``ZooKeeper zk1.example.com:2281 (zookeeper-servers[0]): no answer ...``.

    :param index: position of the server in ``zookeeper-servers``.
    :param files: of our side of TLS; None: we do not speak TLS.
    """
    host = f"[{server.host}]" if ":" in server.host else server.host
    place = f"zookeeper-servers[{index}]"
    cause = cause_of(failure, tls=files is not None)
    found = check_tls_files(files) if files is not None and cause is Cause.TLS_FILES else ()
    wrong = "; ".join(f"zookeeper-tls.{problem.name}: {problem.text}" for problem in found)
    cert, key, ca = files or ("", "", "")
    happened = wrong or cause.value.format(text=failure.text, place=place, cert=cert, key=key, ca=ca)
    return f"ZooKeeper {host}:{server.port} ({place}): {happened}"


def sentences(
    servers: Sequence[ServerPlace], failures: Mapping[ServerPlace, Mapping[str, ConnectFailure]], files: TlsFiles | None
) -> list[str]:
    """A `sentence` for each server whose last attempts failed, in the order of ``zookeeper-servers``."""
    return [
        sentence(server, index, furthest(failures[server]), files)
        for index, server in enumerate(servers)
        if failures.get(server)
    ]


def is_hopeless(
    servers: Sequence[ServerPlace], failures: Mapping[ServerPlace, Mapping[str, ConnectFailure]], files: TlsFiles | None
) -> bool:
    """Was each server tried, and did each fail for a `LASTING` cause?"""
    return bool(servers) and all(
        failures.get(server) and cause_of(furthest(failures[server]), tls=files is not None) in LASTING
        for server in servers
    )


# What is wrong with the PEM files of ``zookeeper-tls``: which file, which key, and what to do.


class TlsFiles(NamedTuple):
    """Paths of the PEM files of ``zookeeper-tls``."""

    cert: str
    key: str
    ca: str


@dataclass(frozen=True)
class FileProblem:
    """What is wrong with one file.

    :param name: of the key below ``zookeeper-tls``: ``cert``, ``key`` or ``ca``.
    :param text: with the path and the remedy.
    :param readable: the file is there, and may be read by this user: it is its content that is wrong.
    """

    name: str
    text: str
    readable: bool


def check_tls_files(files: TlsFiles) -> list[FileProblem]:
    """Everything that keeps these files from being used. Reads them; contacts no one."""
    problems: list[FileProblem] = []
    for name, path in zip(("cert", "key", "ca"), files, strict=True):
        try:
            with open(path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            problems.append(
                FileProblem(name, f"there is no file {path}; correct the path, or put the file there", False)
            )
        except (OSError, ValueError) as error:
            text = f"{path} cannot be read by this user: {getattr(error, 'strerror', None) or error}"
            problems.append(FileProblem(name, text, False))
        else:
            text = _key_problem(path, content) if name == "key" else _certificate_problem(path)
            problems += [FileProblem(name, text, True)] if text else []
    if {problem.name for problem in problems} <= {"ca"} and (text := _pair_problem(files)):
        problems.append(FileProblem("key", text, True))
    return problems


# Each: what is wrong; empty = nothing.


def _key_problem(path: str, content: bytes) -> str:
    if b"ENCRYPTED" in content:
        return f"{path} is protected by a pass phrase, which cannot be entered here; store the key without one"
    return "" if b"PRIVATE KEY-----" in content else f"{path} is no private key in PEM form"


def _certificate_problem(path: str) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError:
        return f"{path} is no certificate in PEM form; is it cut off?"
    return ""


def _pair_problem(files: TlsFiles) -> str:
    """:param files: their certificate can be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a pass phrase: OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.cert, files.key, password=lambda: b"")
    except OSError as error:
        if isinstance(error, ssl.SSLError) and "MISMATCH" in (error.reason or ""):
            return f"{files.key} does not belong to the certificate {files.cert}; use the key that it was made with"
        return f"{files.key} is damaged: its private key cannot be read; is it cut off?"
    return ""


@functools.lru_cache(maxsize=8)
def tls_context(files: TlsFiles, _changed: tuple[float, ...]) -> ssl.SSLContext:
    """The context of our side of TLS. Raises OSError: a file cannot be used.

    :param _changed: when each file was written last: one that was renewed is read again.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in earlier releases: who has a certificate of this CA is ZooKeeper, whatever its name. So it has to be
    # this CA alone: Kazoo takes those of the system too, and thereby the certificate of anybody's web server.
    context.check_hostname = False
    context.load_verify_locations(files.ca)
    context.load_cert_chain(files.cert, files.key)
    return context
