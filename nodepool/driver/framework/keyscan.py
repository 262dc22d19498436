# SPDX-License-Identifier: Apache-2.0
"""Connection check: does a host answer, and which SSH host keys does it have (rules K)?

`scan` blocks; callers run it in a thread pool of their own size (K-4). One key exchange a key type is done with
paramiko, which is imported on first use. Everything that the host sends is counted and timed, so that a host that sends
garbage, or one byte a second, costs neither memory nor more than the timeout. A scan may run a command between two
collections of keys: the ``ready-check`` of a label. After the scan come the scans of new nodes, each in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.exceptions import LaunchKeyscanException
from nodepool.guard import Guard, OnError
from nodepool.plan.retries import Backoff

if TYPE_CHECKING:
    import paramiko

    from nodepool.model.node import Node

#: Connection types that speak SSH; for others a TCP connect is enough (K-2).
SSH_CONNECTION_TYPES: Final = frozenset({"ssh", "network_cli"})
#: Longest time for one connect attempt (K-3).
CONNECT_SECONDS: Final = 10.0
#: Who waits looks so often whether the scan was cancelled, in seconds.
LOOK_SECONDS: Final = 0.5
#: For the first key exchange with a host; twice as long for each further one.
EXCHANGE_SECONDS: Final = 10.0
#: From an attempt to connect that failed to the next one, which costs next to nothing; and from a key exchange.
CONNECT_AGAIN: Final = Backoff(0.1, 0.5)
EXCHANGE_AGAIN: Final = Backoff(0.2, 2.0)
#: What a host may send in one key exchange. An ordinary one takes 2-4 KiB.
MAX_ANSWER_BYTES: Final = 256 * 1024

#: The same of a command that is run; and how much of the end of it is kept.
MAX_SENT_BYTES: Final = 4 * 1024 * 1024
MAX_OUTPUT_BYTES: Final = 2048
#: In seconds; else a firewall may drop the connection of a command that writes nothing.
KEEPALIVE_SECONDS: Final = 15
#: What ``ready-check: cloud-init`` runs. Exit code 2 means errors that cloud-init has got over.
CLOUD_INIT: Final = "cloud-init status --wait --long || test $? -eq 2"

#: Longest reason in an error; a host may give one of its own.
MAX_REASON: Final = 200

#: The key type of a signature algorithm, where the names differ.
_KEY_TYPE: Final = {"rsa-sha2-512": "ssh-rsa", "rsa-sha2-256": "ssh-rsa"}
#: The CPU time of a scan is that of the key exchange; these cost less than 1 ms.
_CHEAP_KEX: Final = ("curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
_PARAMIKO_LOGGER: Final = f"{__name__}.paramiko"
#: At the beginning of an SSH_MSG_KEXINIT (RFC 4253 7.1).
_COOKIE_BYTES: Final = 16


class ScanFailed(LaunchKeyscanException):
    """The host did not pass the check; the text says why, in one line."""


class CheckFailed(ScanFailed):
    """The ``ready-check`` of a host failed (K-7).

    :param output: the end of what it wrote, at most `MAX_OUTPUT_BYTES`.
    """

    statsd_key = "error.readycheck"

    def __init__(self, text: str, output: str = "") -> None:
        super().__init__(text)
        self.output = output


class Command(NamedTuple):
    """What is run on a host, and how to log in."""

    text: str
    username: str
    key: paramiko.PKey


@dataclass(frozen=True)
class ScanResult:
    """A host that passed.

    :param host_keys: ``"<type> <base64>"``, one a key type; empty when keys were not asked for.
    :param public_ipv4: first IPv4 address that the name resolved to.
    :param public_ipv6: first IPv6 address that the name resolved to.
    """

    host_keys: tuple[str, ...] = ()
    public_ipv4: str | None = None
    public_ipv6: str | None = None


#: What a host name resolved to, in the order of preference: family and address.
Targets = Sequence[tuple[int, Any]]


def resolve(host: str, port: int) -> Targets:
    """Look a host name or address up. Blocks as long as the system's resolver does.

    :raises ScanFailed: the name is unknown.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ScanFailed(f"cannot resolve {host}: {error}") from None
    families = (socket.AF_INET, socket.AF_INET6)
    targets = tuple((int(family), address) for family, _, _, _, address in found if family in families)
    if not targets:
        raise ScanFailed(f"{host} has no IP address")
    return targets


def first_of(targets: Targets) -> dict[int, str]:
    """The first address of each family."""
    return {family: str(address[0]) for family, address in reversed(targets)}


def scan(
    host: str,
    port: int,
    *,
    timeout: float,
    connection_type: str = "ssh",
    gather_keys: bool = True,
    retry_connect: bool = True,
    cancelled: threading.Event | None = None,
    turns: threading.Semaphore | None = None,
    command: Command | None = None,
) -> ScanResult:
    """Check a host. Blocks at most about ``timeout`` seconds (plus the name look-up, and the wait for ``turns``).

    :param timeout: seconds for everything: connects, retries, one key exchange a key type, the command.
    :param connection_type: as in a node; decides whether SSH is spoken.
    :param gather_keys: False: a TCP connect is enough, whatever the connection type (liveness).
    :param retry_connect: try again while the host refuses or cannot be reached; False: fail at once. An
        SSH negotiation that failed is always tried again.
    :param cancelled: set by another thread: no further attempt is made, and none waits for a connection.
    :param turns: held during a key exchange; None = no other scan waits.
    :param command: run on the host, whose key must be one of those that were collected. Then they are collected again.
        It is run again if the connection breaks.
    :raises ScanFailed: when time is up, or on an error that is not tried again.
    :raises CheckFailed: the command failed, or has not ended in time.
    """
    stop = cancelled or threading.Event()
    failures = 0
    addresses: Targets | None = None
    attempt = _Attempt(host, port, monotonic() + timeout, stop, turns or threading.Semaphore())
    while True:
        try:
            addresses = addresses or resolve(host, port)
            keys = attempt.run(addresses, gather_keys and connection_type in SSH_CONNECTION_TYPES)
            if command is not None:
                attempt.execute(command, addresses, keys)
                keys = attempt.run(addresses, gather_keys=True)
            first = first_of(addresses)
            return ScanResult(keys, first.get(socket.AF_INET), first.get(socket.AF_INET6))
        except CheckFailed:
            raise
        except ScanFailed as error:
            failure, again = error, EXCHANGE_AGAIN if isinstance(error, _NegotiationFailed) else CONNECT_AGAIN
            if again is CONNECT_AGAIN and not retry_connect:
                raise
        left = attempt.deadline - monotonic()
        if left <= again.first_seconds:
            raise ScanFailed(f"{attempt.refusal or failure} (gave up after {timeout:g} s)") from None
        failures += 1
        # The last pause must leave time for an attempt.
        if stop.wait(min(again.pause(failures), left / 2)):
            raise failure


class _NegotiationFailed(ScanFailed):
    """The host answered, but the key exchange failed: tried again within the time (K-3)."""


class _Attempt:
    """One host's scan; keeps keys that were collected, so that a retry only fetches what is missing.

    :ivar deadline: later by the time that it has waited for its turn.
    :ivar refusal: why the host did not run a command when it was asked last; empty = it was not asked.
    """

    def __init__(
        self, host: str, port: int, deadline: float, stop: threading.Event, turns: threading.Semaphore
    ) -> None:
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.deadline = deadline
        self.refusal = ""
        self._stop = stop
        self._turns = turns
        #: For a key exchange: the one who stops the scan does not wait for a host that says nothing.
        self._patience = EXCHANGE_SECONDS
        self._keys: dict[str, str] = {}

    def run(self, addresses: Targets, gather_keys: bool) -> tuple[str, ...]:
        """Connect and, where asked, collect all keys. Raises ScanFailed."""
        if not gather_keys:
            self._connect(addresses).close()
            return ()
        missing = self._exchange(addresses, None)
        while missing:
            missing = self._exchange(addresses, missing)
        return tuple(sorted(self._keys.values()))

    def execute(self, command: Command, addresses: Targets, keys: Sequence[str]) -> None:
        """Run a command to its end. What is known of the keys is forgotten: the host may have others afterwards.

        :raises CheckFailed: it failed, or there is no time left.
        :raises ScanFailed: it could not be run, or the connection broke.
        """
        self._keys.clear()
        runs, output, code = False, b"", -1
        sock = _CountingSocket(self._connect(addresses), MAX_SENT_BYTES, self._is_over)
        try:
            with self._transport(sock, None) as transport:
                self._take_turn()
                try:
                    self._log_in(transport, command, keys)
                finally:
                    self._turns.release()
                channel = transport.open_session(timeout=EXCHANGE_SECONDS)
                channel.set_combine_stderr(True)
                channel.exec_command(command.text)
                runs = True
                while data := channel.recv(MAX_OUTPUT_BYTES):
                    output = (output + data)[-MAX_OUTPUT_BYTES:]
                code = channel.recv_exit_status()
                if code < 0:
                    raise ScanFailed("the command ended without an exit code")
        except _NegotiationFailed as error:
            if not sock.trouble:
                # The host may start anew, or not know the user yet.
                self.refusal = str(error)
            if not (runs and sock.trouble):
                raise
        if code:
            text = output.decode(errors="replace")
            end = _one_line(text[-MAX_REASON:]) or "it wrote nothing"
            raise CheckFailed(f"ready-check {sock.trouble or f'ended with exit code {code}'}: {end}", text)

    def _log_in(self, transport: paramiko.Transport, command: Command, keys: Sequence[str]) -> None:
        """Raises what paramiko raises, and ScanFailed."""
        if _text_of(self._agree(transport)) not in keys:
            raise ScanFailed("it has another host key than before")
        transport.auth_timeout = EXCHANGE_SECONDS
        transport.set_keepalive(KEEPALIVE_SECONDS)
        if transport.auth_publickey(command.username, command.key):
            raise ScanFailed("ready-check-key is not enough to log in")

    def _is_cancelled(self) -> str:
        return "was cancelled" if self._stop.is_set() else ""

    def _is_over(self) -> str:
        """Why the connection that runs a command is to be ended; empty = it is not."""
        return self._is_cancelled() or ("has not ended in time" if monotonic() >= self.deadline else "")

    def _connect(self, addresses: Targets) -> socket.socket:
        """Connect to the first address that answers, within one attempt's time."""
        attempt_end = min(self.deadline, monotonic() + CONNECT_SECONDS)
        reason = "no time left"
        for index, (family, address) in enumerate(addresses):
            left = attempt_end - monotonic()
            if left <= 0:
                break
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
                with OnError(lambda _, sock=sock: sock.close()):  # type: ignore[misc]
                    # An address that swallows packets must leave time for the next one.
                    self._open(sock, address, left / (len(addresses) - index))
                return sock
            except OSError as error:
                reason = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        raise ScanFailed(f"cannot connect to {self._where}: {reason}")

    def _open(self, sock: socket.socket, address: Any, seconds: float) -> None:
        """Connect; raises OSError, and ScanFailed when the scan was cancelled."""
        end = monotonic() + seconds
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            # Not `select.select`: that takes low descriptors only.
            writable = select.poll()
            writable.register(sock, select.POLLOUT)
            while not writable.poll(1000 * max(0.0, min(LOOK_SECONDS, end - monotonic()))):
                if self._stop.is_set():
                    raise ScanFailed(f"cannot connect to {self._where}: the scan was cancelled")
                if monotonic() >= end:
                    raise TimeoutError
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        sock.settimeout(seconds)

    def _exchange(self, addresses: Targets, algorithms: Sequence[str] | None) -> Sequence[str]:
        """One key exchange; keeps the key.

        :param algorithms: what to accept as signature of the host; None = all that paramiko knows.
        :return: algorithms that both sides know, for key types that we have not got yet.
        """
        sock = _CountingSocket(self._connect(addresses), over=self._is_cancelled)
        with OnError(lambda _: sock.close()):
            self._take_turn()
        try:
            return self._negotiate(sock, algorithms)
        finally:
            self._turns.release()

    def _take_turn(self) -> None:
        begun = monotonic()
        while not self._turns.acquire(timeout=LOOK_SECONDS):
            if self._stop.is_set():
                raise ScanFailed(f"{self._where}: the scan was cancelled")
        self.deadline += monotonic() - begun

    def _negotiate(self, sock: _CountingSocket, algorithms: Sequence[str] | None) -> Sequence[str]:
        with self._transport(sock, algorithms) as transport:
            known = transport.get_security_options().key_types
            key = self._agree(transport)
        self._keys[key.get_name()] = _text_of(key)
        if algorithms is not None:
            # Accepting another key than asked for would go round for ever.
            return algorithms[1:]
        offered: Sequence[str] = getattr(transport.packetizer, "key_algorithms", ())
        return self._one_for_each_missing_type(known, offered)

    @contextlib.contextmanager
    def _transport(self, sock: _CountingSocket, algorithms: Sequence[str] | None) -> Iterator[paramiko.Transport]:
        """A connection that is closed in the end. Whatever is raised inside becomes _NegotiationFailed."""
        transport: paramiko.Transport | None = None
        try:
            transport = _make_transport(sock, algorithms)
            yield transport
        except Exception as error:  # noqa: BLE001 - paramiko's parsers raise whatever the bytes of a host lead to
            reason = sock.trouble or _one_line(str(error)) or type(error).__name__
            raise _NegotiationFailed(f"{self._where}: SSH negotiation failed: {reason}") from None
        finally:
            _close(sock, transport)

    def _agree(self, transport: paramiko.Transport) -> paramiko.PKey:
        """One key exchange. Raises what paramiko raises, and ScanFailed.

        :return: the key of the host.
        """
        left = max(min(self.deadline - monotonic(), self._patience), 0.1)
        self._patience *= 2
        transport.banner_timeout = left
        transport.start_client(timeout=left)
        if not transport.initial_kex_done:
            raise ScanFailed("no time left for the SSH negotiation")
        return transport.get_remote_server_key()

    def _one_for_each_missing_type(self, known: Iterable[str], offered: Sequence[str]) -> list[str]:
        missing: dict[str, str] = {}
        for name in known:
            key_type = _KEY_TYPE.get(name, name)
            if name in offered and key_type not in self._keys:
                missing.setdefault(key_type, name)
        return list(missing.values())


class _CountingSocket(socket.socket):
    """A connected socket that ends after some bytes, or when it is not wanted any more.

    Read by paramiko's thread only, which looks ten times a second, also while the host takes nothing that is sent.
    ``trouble`` says why the stream was ended, or is empty.

    :param over: why it is not wanted any more; empty = it is.
    """

    def __init__(
        self, connected: socket.socket, most: int = MAX_ANSWER_BYTES, over: Callable[[], str] = lambda: ""
    ) -> None:
        super().__init__(connected.family, connected.type, connected.proto, connected.detach())
        self._most = self._left = most
        self._over = over
        self.trouble = ""

    def recv(self, size: int, flags: int = 0) -> bytes:
        self._look()
        if self._left <= 0:
            self.trouble = f"sent more than {self._most // 1024} KiB"
        if self.trouble:
            return b""
        data = super().recv(min(size, self._left), flags)
        self._left -= len(data)
        return data

    def send(self, data: Any, flags: int = 0) -> int:
        self._look()
        if self.trouble:
            raise OSError(self.trouble)
        return super().send(data, flags)

    def _look(self) -> None:
        self.trouble = self.trouble or self._over()


def _text_of(key: paramiko.PKey) -> str:
    """A host key as in a node."""
    return f"{key.get_name()} {key.get_base64()}"


def _one_line(text: str) -> str:
    """What a host stated, or what was made of it, for a message."""
    return " ".join("".join(char if char.isprintable() else " " for char in text[:MAX_REASON]).split())


@functools.cache
def _packetizer_class() -> type[paramiko.packet.Packetizer]:
    from paramiko.common import MSG_KEXINIT
    from paramiko.packet import Packetizer

    class Reader(Packetizer):
        #: Algorithms of host keys that the host offers; empty until it has done so.
        key_algorithms: Sequence[str] = ()

        def read_message(self) -> tuple[int, paramiko.Message]:
            """Note what paramiko does not hand out (RFC 4253 7.1). Only the first offer counts."""
            kind, message = super().read_message()
            if kind == MSG_KEXINIT and not self.key_algorithms:
                message.get_bytes(_COOKIE_BYTES)
                message.get_list()
                self.key_algorithms = message.get_list()
                message.rewind()
            return kind, message

        def start_handshake(self, timeout: float) -> None:
            """paramiko would start a thread that outlives a failed handshake; the scan has its own deadline."""

    return Reader


def _make_transport(sock: socket.socket, algorithms: Sequence[str] | None) -> paramiko.Transport:
    import paramiko

    transport = paramiko.Transport(sock, packetizer_class=_packetizer_class())
    # It logs a traceback for each host that misbehaves; the error of the scan says it in a line. Each time: a logging
    # configuration that was loaded meanwhile may have reset it.
    logger = logging.getLogger(_PARAMIKO_LOGGER)
    logger.setLevel(logging.CRITICAL + 1)
    logger.propagate = False
    transport.set_log_channel(_PARAMIKO_LOGGER)
    options = transport.get_security_options()
    if algorithms is not None:
        options.key_types = list(algorithms)
    cheap = [name for name in _CHEAP_KEX if name in options.kex]
    options.kex = cheap + [name for name in options.kex if name not in cheap]
    return transport


def _close(sock: socket.socket, transport: paramiko.Transport | None) -> None:
    """End the connection and wait for paramiko's thread, which wakes up because the stream ended."""
    # The host may have been faster.
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    if transport is not None:
        transport.close()
        if transport.is_alive():
            transport.join(1.0)
    sock.close()


# `Scans`: connection checks of new nodes, each in a thread: they wait for their hosts most of the time.

log = logging.getLogger("nodepool.driver.statemachine.Scans")

#: Hosts that are checked at once; others queue (K-4).
MAX_SCANS: Final = 100
#: Key exchanges at once, of all checks of a provider: they need the interpreter.
MAX_EXCHANGES: Final = 8


class Scans:
    """All checks of one provider.

    The time of a host begins with its check, not while it waits for its turn.

    :param executor: runs the checks, `MAX_SCANS` at once; it is shut down at the end.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._stopped = threading.Event()
        self._turns = threading.BoundedSemaphore(MAX_EXCHANGES)

    def scan(self, host: str, port: int, timeout: float, connection_type: str | None) -> Future[tuple[str, ...]]:
        """Begin a check; does not block. The result is the host keys; it raises ScanFailed.

        :param timeout: ``boot-timeout``, seconds.
        :param connection_type: of the node; only for those that speak SSH are keys collected (K-2).
        """
        given = {"timeout": timeout, "connection_type": connection_type or "ssh"}
        return self._submit(host, lambda: self._scan(host, port, **given))

    def check(self, node: Node, command: str, timeout: float, key_file: str) -> Future[tuple[str, ...]]:
        """Begin the ``ready-check`` of a node whose SSH server answers; does not block.

        The result is the host keys that it has afterwards; it raises CheckFailed.

        :param command: as in the configuration. ``timeout``: seconds. ``key_file``: has the private key of the log-in.
        """
        host, port = str(node.interface_ip), node.connection_port
        text = CLOUD_INIT if command == "cloud-init" else command

        def check() -> tuple[str, ...]:
            from cryptography.exceptions import UnsupportedAlgorithm
            from paramiko import SSHException
            from paramiko.pkey import PKey, UnknownKeyType

            unusable = (OSError, TypeError, ValueError, SSHException, UnknownKeyType, UnsupportedAlgorithm)
            try:
                key = PKey.from_path(key_file)
            except unusable as error:
                reason = _one_line(str(error)) or type(error).__name__
                raise CheckFailed(f"ready-check-key {key_file} cannot be used: {reason}") from None
            try:
                return self._scan(host, port, timeout=timeout, command=Command(text, str(node.username), key))
            except CheckFailed:
                raise
            except ScanFailed as error:
                raise CheckFailed(f"ready-check could not be run: {error}") from None

        return self._submit(host, check)

    def _scan(self, host: str, port: int, **given: Any) -> tuple[str, ...]:
        return scan(host, port, cancelled=self._stopped, turns=self._turns, **given).host_keys

    def _submit(self, host: str, work: Callable[[], tuple[str, ...]]) -> Future[tuple[str, ...]]:
        try:
            return self._executor.submit(self._run, host, work)
        except RuntimeError as error:
            # It was shut down, or the system has no more threads.
            ended: Future[tuple[str, ...]] = Future()
            ended.set_exception(ScanFailed("the provider stops" if self._stopped.is_set() else str(error)))
            return ended

    def stop(self) -> None:
        """Give all up; what runs ends soon. Does not block."""
        self._stopped.set()
        self._executor.shutdown(wait=False)

    def join(self) -> None:
        """Wait for what runs, after `stop`."""
        self._executor.shutdown(wait=True)

    def _run(self, host: str, work: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        # An error that was not foreseen is one of this host: it does not count against the cloud.
        with Guard(log, "Error while scanning %s", host, but=ScanFailed) as guard:
            try:
                if not self._stopped.is_set():
                    return work()
            except ScanFailed:
                if not self._stopped.is_set():
                    raise
            raise ScanFailed("the provider stops")
        raise ScanFailed(f"{host}: {type(guard.error).__name__}: {guard.error}")
